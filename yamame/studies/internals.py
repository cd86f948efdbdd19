"""What happens inside a trained agent: values, exploration, activations, attention (figures 12 to 15)."""

from yamame.studies.base import AMAGO, Analysis, Arm, Study

_MILESTONES = ("--checkpoint.milestone-interval-env-steps", "20000")
_VALUES_ARM = Arm(label=AMAGO, recipe="popgym", flags=("--env.name", "RepeatPreviousEasy", *_MILESTONES))

FIG12 = Study(
    name="fig12",
    title="Values at every gamma",
    source="appendix A.2, figure 12",
    analyses=(Analysis(title="values", figure="q-by-gamma", arm=_VALUES_ARM),),
    notes=("The paper does not name its environment.",),
)


_NOISE_ARM = Arm(label=AMAGO, recipe="dark-key-to-door")

FIG13 = Study(
    name="fig13",
    title="Exploration noise",
    source="appendix A.2, figure 13",
    analyses=(Analysis(title="noise", figure="exploration-schedule", arm=_NOISE_ARM),),
)


_RECALL_FLAGS = ("--env.name", "RepeatPreviousMedium", "--checkpoint.milestone-interval-env-steps", "20000")
_ACTIVATION_ARMS = (
    Arm(label=AMAGO, recipe="popgym", flags=_RECALL_FLAGS),
    Arm(label="naive", recipe="popgym", flags=_RECALL_FLAGS, variants=("naive",)),
)

FIG14 = Study(
    name="fig14",
    title="Activations of the Transformer",
    source="appendix A.3, figure 14",
    analyses=tuple(Analysis(title=arm.label, figure="activations", arm=arm) for arm in _ACTIVATION_ARMS),
    notes=("The paper does not name its environment, which needs recall.",),
)


_ATTENTION_TASKS = ("RepeatPreviousEasy", "RepeatFirstEasy")

FIG15 = Study(
    name="fig15",
    title="Attention",
    source="appendix A.3, figure 15",
    analyses=tuple(
        Analysis(
            title=name,
            figure="attention",
            arm=Arm(label=AMAGO, recipe="popgym", flags=("--env.name", name)),
            flags=("--step", "45"),
        )
        for name in _ATTENTION_TASKS
    ),
    notes=("The paper does not name its two environments.",),
)
