"""Figure 27: which goals relabeling chooses, with and without importance sampling."""

from yamame.experiments import Analysis, Arm, Experiment
from yamame.experiments.fig9 import ABLATIONS, TRAINING

_LABEL = "w/o full instruction"
_ARM = Arm(label=_LABEL, recipe="crafter", flags=TRAINING, variants=tuple(ABLATIONS[_LABEL]))

EXPERIMENT = Experiment(
    title="Goals that relabeling chooses",
    source="appendix C.5, figure 27: data of the agent without full instruction",
    analyses=(Analysis(title="goals", figure="relabeling-priorities", arm=_ARM),),
    notes=("The paper's numbers are not known.",),
)
