"""Figure 25: more instructions in Crafter, with tech-tree instructions and expanded goals."""

from yamame.experiments import AMAGO, Arm, Experiment, Panel
from yamame.experiments.fig9 import FIVE_STEPS, RANDOM, TRAINING

_TASKS = {
    AMAGO: TRAINING,
    "w/ tech tree": (*TRAINING, "--env.instruction-source", "tech-tree"),
    "expanded": (*TRAINING, "--env.instruction-source", "tech-tree", "--env.expanded"),
}
_PUBLISHED = {
    FIVE_STEPS: {AMAGO: 0.66},
    "make stone pickaxe, collect iron": {"expanded": 0.4},
    "travel to (10, 10), place stone, travel to (50, 50), place stone": {},
    RANDOM: {AMAGO: 0.62},
}


def _panel(instruction: str) -> Panel:
    arms = tuple(
        Arm(label=label, recipe="crafter", flags=flags, published=_PUBLISHED[instruction].get(label))
        for label, flags in _TASKS.items()
    )
    instructions = () if instruction == RANDOM else (instruction,)
    return Panel(title=instruction, arms=arms, score="progress", instructions=instructions)


EXPERIMENT = Experiment(
    title="Crafter, success at instructions",
    source="appendix C.5, figure 25; numbers from figure 9 and the text",
    panels=tuple(map(_panel, _PUBLISHED)),
    style="bars",
    notes=("Instructions of the paper's figure that the text does not name are not known.",),
)
