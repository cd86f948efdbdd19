"""Figure 24: a difficult goal alone, and at the end of an instruction that leads to it."""

from yamame.experiments import AMAGO, Experiment, Panel
from yamame.experiments.fig9 import ABLATIONS, crafter_panels

_WAYS = {
    "make stone pickaxe": "collect wood, place table, make wood pickaxe, collect stone, make stone pickaxe",
    "collect coal": "collect wood, place table, make wood pickaxe, collect stone, collect coal",
}
_AGENTS = {label: ABLATIONS[label] for label in (AMAGO, "w/o full instruction")}


def _panels() -> tuple[Panel, ...]:
    return crafter_panels(_AGENTS, {text: (None, None) for pair in _WAYS.items() for text in pair})


EXPERIMENT = Experiment(
    title="Instructions as plans of exploration",
    source="appendix C.5, figure 24",
    panels=_panels(),
    style="bars",
    notes=("The instructions and numbers of the paper's figure are not known.",),
)
