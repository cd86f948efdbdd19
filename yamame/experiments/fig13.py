"""Figure 13: exploration noise over the steps of a trial and over training."""

from yamame.experiments import AMAGO, Analysis, Arm, Experiment

_ARM = Arm(label=AMAGO, recipe="dark-key-to-door")

EXPERIMENT = Experiment(
    title="Exploration noise",
    source="appendix A.2, figure 13",
    analyses=(Analysis(title="noise", figure="exploration-schedule", arm=_ARM),),
)
