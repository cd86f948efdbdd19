"""Figure 20: adaptation in Dark Key-To-Door with a fixed start, where the paper compares Algorithm Distillation."""

from yamame.experiments import AMAGO, Arm, Experiment, Panel

_ROOM = ("--env.size", "8", "--env.fixed-start", "--env.horizon", "500", "--env.attempt-length", "50")

EXPERIMENT = Experiment(
    title="Adaptation in Dark Key-To-Door 8x8",
    source="appendix C.2, figure 20",
    panels=(Panel(title="Dark Key-To-Door 8x8", arms=(Arm(label=AMAGO, recipe="dark-key-to-door", flags=_ROOM),)),),
    notes=(
        "Algorithm Distillation is not implemented, and the paper's numbers are not known. The return of each attempt "
        "is in the report of the run.",
    ),
)
