"""Figure 6: context lengths in Meta-World, and updates per second."""

from yamame.experiments import Analysis, Arm, Experiment, Panel

TASK = ("--env.name", "reach-v3", "--env.attempts", "2", "--env.attempt-length", "500")
CONTEXTS = (16, 64, 128, 512)


def _arm(context: int) -> Arm:
    return Arm(label=f"l = {context}", recipe="metaworld", flags=(*TASK, "--context-length", str(context)))


EXPERIMENT = Experiment(
    title="Context lengths in Meta-World, and training speed",
    source="section 4, figure 6",
    panels=(Panel(title="Meta-World reach-v3, held-out goals", arms=tuple(map(_arm, CONTEXTS)), score="success_rate"),),
    analyses=(Analysis(title="throughput", figure="throughput"),),
    notes=("The tasks, contexts and numbers of the paper's figure are not known.",),
)
