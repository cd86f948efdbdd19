"""Figure 12: mean values at every gamma through training."""

from yamame.experiments import AMAGO, Analysis, Arm, Experiment

_MILESTONES = ("--checkpoint.milestone-interval-env-steps", "20000")
_ARM = Arm(label=AMAGO, recipe="popgym", flags=("--env.name", "RepeatPreviousEasy", *_MILESTONES))

EXPERIMENT = Experiment(
    title="Values at every gamma",
    source="appendix A.2, figure 12",
    analyses=(Analysis(title="values", figure="q-by-gamma", arm=_ARM),),
    notes=("The paper does not name its environment.",),
)
