"""Table 2: Crafter from pixels."""

from yamame.experiments import Arm, Experiment, Panel
from yamame.experiments.fig9 import RANDOM, TRAINING

_GOALS = (
    "collect sapling", "collect wood", "collect drink", "place plant", "wake up", "place table", "place furnace",
    "eat cow", "defeat zombie", "make wood pickaxe", "make wood sword", "collect stone", "make stone pickaxe",
    "make stone sword", "collect coal", "defeat skeleton", "collect iron", RANDOM,
)  # fmt: skip
_TEXTURES = (
    99.9, 99.9, 99.9, 99.3, 99.9, 99.9, 94.5, 96.2, 96.6, 99.9, 99.9, 99.5, 97.8, 98.3, 90.1, 76.5, 0.0, 62.1,
)  # fmt: skip
_PIXELS = (
    99.9, 99.9, 99.4, 99.9, 93.7, 99.5, 94.0, 99.3, 96.7, 99.9, 99.9, 98.3, 98.8, 97.7, 89.8, 80.0, 0.0, 53.9,
)  # fmt: skip


def _panel(goal: str, textures: float, pixels: float) -> Panel:
    flags = (*TRAINING, "--env.observation-mode", "pixels")
    arms = (
        Arm(label="textures", recipe="crafter", flags=TRAINING, published=textures / 100),
        Arm(label="pixels", recipe="crafter", flags=flags, published=pixels / 100),
    )
    return Panel(title=goal, arms=arms, score="progress", instructions=() if goal == RANDOM else (goal,))


EXPERIMENT = Experiment(
    title="Crafter from pixels",
    source="appendix C.5, table 2",
    panels=tuple(map(_panel, _GOALS, _TEXTURES, _PIXELS)),
    style="bars",
)
