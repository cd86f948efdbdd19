"""Figure 14: largest activations of the Transformer through training, for the full agent and the naive one."""

from yamame.experiments import AMAGO, Analysis, Arm, Experiment

_FLAGS = ("--env.name", "RepeatPreviousMedium", "--checkpoint.milestone-interval-env-steps", "20000")
_ARMS = (
    Arm(label=AMAGO, recipe="popgym", flags=_FLAGS),
    Arm(label="naive", recipe="popgym", flags=_FLAGS, variants=("naive",)),
)

EXPERIMENT = Experiment(
    title="Activations of the Transformer",
    source="appendix A.3, figure 14",
    analyses=tuple(Analysis(title=arm.label, figure="activations", arm=arm) for arm in _ARMS),
    notes=("The paper does not name its environment, which needs recall.",),
)
