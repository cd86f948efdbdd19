"""Table 1: success at the achievements of Crafter."""

from collections.abc import Sequence

from yamame.experiments import AMAGO, Arm, Experiment, Panel
from yamame.experiments.fig9 import TRAINING

GOALS = (
    "collect wood", "collect drink", "place plant", "wake up", "place table", "make wood sword", "eat cow",
    "defeat zombie", "make wood pickaxe", "collect stone", "place furnace", "make stone pickaxe", "make stone sword",
    "collect coal", "defeat skeleton", "collect iron",
)  # fmt: skip

_AGENTS: dict[str, tuple[Sequence[str], Sequence[str]]] = {
    # label: variants, further flags
    "w/o relabeling": (("no-relabeling",), ()),
    "w/o memory": (("no-memory",), ()),
    "w/o multi-goal": (("no-multi-goal",), ()),
    "w/o planning": (("no-planning",), ()),
    "w/o importance sampling": (("no-goal-importance-sampling",), ()),
    AMAGO: ((), ()),
    "w/ tech tree": ((), ("--env.instruction-source", "tech-tree")),
    "expanded": ((), ("--env.instruction-source", "tech-tree", "--env.expanded")),
}
_PUBLISHED: dict[str, Sequence[float | None]] = {
    "w/o relabeling": (97.3, 79.2, 99.9, 4.5, 94.4, 0, 15.2, 68.9, 0, 0, 0, 0, 0, 0, 0, 0),
    "w/o memory": (99.8, 91.3, 99.9, 91.5, 98.9, 98.4, 62.2, 85.7, 99.2, 39.3, 0, 0, 0, 0, 0, 0),
    "w/o multi-goal": (99.8, 93.1, 99.9, 97.8, 99.4, 97.8, 93.9, 88.9, 99.5, 83.1, 0, 0, 0, 0, 10.4, 0),
    "w/o planning": (99.9, 98.1, 98.7, 93.6, 95.7, 93.9, 36.0, 82.0, 98.6, 0, 0, 0, 0, 0, 0, 0),
    "w/o importance sampling": (
        99.9, 98.4, 99.8, 93.3, 99.8, 99.9, 98.9, 95.1, 99.9, 96.1, 92.1, 98.6, 97.5, 81.5, 57.5, 0,
    ),
    AMAGO: (99.9, 99.9, 99.3, 99.9, 96.7, 99.8, 96.6, 97.2, 99.8, 99.5, 94.2, 97.8, 98.3, 90.1, 76.5, 0),
    "w/ tech tree": (99.9, 98.3, 99.8, 96.1, 99.9, 99.8, 98.5, 97.3, 99.8, 97.8, 97.0, 99.0, 99.5, 84.0, 58.4, 0),
    "expanded": (99.9, 97.4, 99.9, 94.3, 99.9, 99.8, 97.9, 96.7, 99.9, 98.6, 97.7, 99.0, 99.0, 84.8, 40.4, 0),
}  # fmt: skip
"""Percent, in the order of `GOALS`."""


def _panel(number: int, goal: str) -> Panel:
    arms = []
    for label, (variants, flags) in _AGENTS.items():
        percent = _PUBLISHED[label][number]
        arms.append(
            Arm(
                label=label,
                recipe="crafter",
                flags=(*TRAINING, *flags),
                variants=tuple(variants),
                published=None if percent is None else percent / 100,
            )
        )
    return Panel(title=goal, arms=tuple(arms), score="success_rate", instructions=(goal,))


EXPERIMENT = Experiment(
    title="Crafter, success at achievements",
    source="appendix C.5, table 1: the directed agents",
    panels=tuple(_panel(number, goal) for number, goal in enumerate(GOALS)),
    style="bars",
    notes=("The undirected agents of the table, which have another reward, are not trained.",),
)
