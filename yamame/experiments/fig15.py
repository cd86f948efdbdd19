"""Figure 15: attention matrices in two environments that need recall, at step 45 of a trial."""

from yamame.experiments import AMAGO, Analysis, Arm, Experiment

_NAMES = ("RepeatPreviousEasy", "RepeatFirstEasy")

EXPERIMENT = Experiment(
    title="Attention",
    source="appendix A.3, figure 15",
    analyses=tuple(
        Analysis(
            title=name,
            figure="attention",
            arm=Arm(label=AMAGO, recipe="popgym", flags=("--env.name", name)),
            flags=("--step", "45"),
        )
        for name in _NAMES
    ),
    notes=("The paper does not name its two environments.",),
)
