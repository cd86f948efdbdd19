"""Context lengths, and speed of training (figures 6 and 29)."""

from yamame.studies.base import Analysis, Arm, Panel, Study

REACH = ("--env.name", "reach-v3", "--env.attempts", "2", "--env.attempt-length", "500")
CONTEXTS = (16, 64, 128, 512)
ARCHITECTURES = ("transformer", "separate-gru", "shared-gru")
"""The agent of the paper, and recurrent off-policy agents of the same memory size."""


def _context_arm(context: int) -> Arm:
    return Arm(label=f"l = {context}", recipe="metaworld", flags=(*REACH, "--context-length", str(context)))


FIG6 = Study(
    name="fig6",
    title="Context lengths in Meta-World, and training speed",
    source="section 4, figure 6",
    panels=(
        Panel(
            title="Meta-World reach-v3, held-out goals", arms=tuple(map(_context_arm, CONTEXTS)), score="success_rate"
        ),
    ),
    analyses=(Analysis(title="throughput", figure="throughput", flags=("--encoders", *ARCHITECTURES)),),
    notes=("The tasks, contexts and numbers of the paper's figure are not known.",),
)


FIG29 = Study(
    name="fig29",
    title="Training throughput",
    source="appendix D, figure 29",
    analyses=(Analysis(title="throughput", figure="throughput", flags=("--encoders", *ARCHITECTURES, "gru")),),
    notes=("The paper's numbers, of an A5000, are not known.",),
)
