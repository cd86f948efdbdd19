"""Instructions in Crafter (figures 9 and 24 to 28, tables 1 and 2)."""

from collections.abc import Sequence

import numpy as np

from yamame.envs.crafter.goals import instruction_text
from yamame.envs.crafter.instructions import RandomInstructionSampler
from yamame.studies.base import AMAGO, Analysis, Arm, Panel, Study

TRAINING = ("--env.horizon", "2000")
FIVE_STEPS = "eat cow, make stone pickaxe, collect coal, make wood sword, defeat zombie"
RANDOM = "all random instructions"
ABLATIONS: dict[str, Sequence[str]] = {
    AMAGO: (),
    "w/o memory": ("no-memory",),
    "w/o relabeling": ("no-relabeling",),
    "w/o multi-goal": ("no-multi-goal",),
    "w/o full instruction": ("no-planning",),
}
PUBLISHED: dict[str, Sequence[int | None]] = {
    "place table": (100, 99, 94, 100, 100),
    "defeat zombie": (97, 86, 69, 89, 82),
    "make wood sword": (100, 98, 0, 98, 94),
    "collect stone": (100, 39, 0, 83, 0),
    "make stone pickaxe": (99, 0, 0, 0, 0),
    "place furnace": (94, 0, 0, 0, 0),
    "collect coal": (90, 0, 0, 0, 0),
    FIVE_STEPS: (66, 0, 0, None, 0),
    RANDOM: (62, 12, 27, None, 24),
}
"""Percent, for the agents of `ABLATIONS`."""


def crafter_panels(agents: dict[str, Sequence[str]], published: dict[str, Sequence[int | None]]) -> tuple[Panel, ...]:
    """Return a panel for each instruction with an arm for each agent; published scores are percentages."""
    return tuple(
        Panel(
            title=instruction,
            arms=tuple(
                Arm(
                    label=label,
                    recipe="crafter",
                    flags=TRAINING,
                    variants=tuple(variants),
                    published=None if percent is None else percent / 100,
                )
                for (label, variants), percent in zip(agents.items(), percents, strict=True)
            ),
            score="progress",
            instructions=() if instruction == RANDOM else (instruction,),
        )
        for instruction, percents in published.items()
    )


FIG9 = Study(
    name="fig9",
    title="Instructions in Crafter",
    source="section 5, figure 9; numbers printed in the figure",
    panels=crafter_panels(ABLATIONS, PUBLISHED),
    style="bars",
    notes=(
        "The score is the return divided by the number of sub-goals.",
        "The agent w/o multi-goal takes instructions of one sub-goal: at others it has no bar, as in the paper.",
    ),
)


_WAYS = {
    "make stone pickaxe": "collect wood, place table, make wood pickaxe, collect stone, make stone pickaxe",
    "collect coal": "collect wood, place table, make wood pickaxe, collect stone, collect coal",
}
_PLANNING_AGENTS = {label: ABLATIONS[label] for label in (AMAGO, "w/o full instruction")}


def _way_panels() -> tuple[Panel, ...]:
    return crafter_panels(_PLANNING_AGENTS, {text: (None, None) for pair in _WAYS.items() for text in pair})


FIG24 = Study(
    name="fig24",
    title="Instructions as plans of exploration",
    source="appendix C.5, figure 24",
    panels=_way_panels(),
    style="bars",
    notes=("The instructions and numbers of the paper's figure are not known.",),
)


_TASKS = {
    AMAGO: TRAINING,
    "w/ tech tree": (*TRAINING, "--env.instruction-source", "tech-tree"),
    "expanded": (*TRAINING, "--env.instruction-source", "tech-tree", "--env.expanded"),
}
_PUBLISHED_EXPANDED = {
    FIVE_STEPS: {AMAGO: 0.66},
    "make stone pickaxe, collect iron": {"expanded": 0.4},
    "travel to (10, 10), place stone, travel to (50, 50), place stone": {},
    RANDOM: {AMAGO: 0.62},
}


def _tasks_panel(instruction: str) -> Panel:
    arms = tuple(
        Arm(label=label, recipe="crafter", flags=flags, published=_PUBLISHED_EXPANDED[instruction].get(label))
        for label, flags in _TASKS.items()
    )
    instructions = () if instruction == RANDOM else (instruction,)
    return Panel(title=instruction, arms=arms, score="progress", instructions=instructions)


FIG25 = Study(
    name="fig25",
    title="Crafter, success at instructions",
    source="appendix C.5, figure 25; numbers from figure 9 and the text",
    panels=tuple(map(_tasks_panel, _PUBLISHED_EXPANDED)),
    style="bars",
    notes=(
        "Instructions of the paper's figure that the text does not name are not known.",
        "All random instructions of the expanded agent are those of its own task, which has more goals.",
    ),
)


FIG26 = Study(
    name="fig26",
    title="Importance sampling of goals in Crafter",
    source="appendix C.5, figure 26",
    panels=(
        Panel(
            title="Crafter, random instructions",
            arms=(
                Arm(label=AMAGO, recipe="crafter", flags=TRAINING, published=0.621),
                Arm(
                    label="w/o goal importance sampling",
                    recipe="crafter",
                    flags=TRAINING,
                    variants=("no-goal-importance-sampling",),
                ),
            ),
            score="progress",
        ),
    ),
    notes=("The paper's curves are of training and one seed, and not known; ours are of evaluations.",),
)


WITHOUT_INSTRUCTION = "w/o full instruction"
_SINGLE_GOAL_ARM = Arm(
    label=WITHOUT_INSTRUCTION, recipe="crafter", flags=TRAINING, variants=tuple(ABLATIONS[WITHOUT_INSTRUCTION])
)

FIG27 = Study(
    name="fig27",
    title="Goals that relabeling chooses",
    source="appendix C.5, figure 27: data of the agent without full instruction",
    analyses=(Analysis(title="goals", figure="relabeling-priorities", arm=_SINGLE_GOAL_ARM),),
    notes=("The paper's numbers are not known.",),
)


NUM_INSTRUCTIONS = 8
"""Random instructions of each length."""
_PLANNING_LABELS = (AMAGO, "w/o full instruction")


def _sample_instructions(length: int) -> tuple[str, ...]:
    """Return instructions of the task's own distribution."""
    sampler, rng = RandomInstructionSampler(length, expanded=False), np.random.default_rng(length)
    texts: dict[str, None] = {}
    while len(texts) < NUM_INSTRUCTIONS:
        goals = sampler.sample(rng)
        if len(goals) == length:
            texts[instruction_text(goals)] = None
    return tuple(texts)


def _length_panel(length: int) -> Panel:
    arms = tuple(
        Arm(label=label, recipe="crafter", flags=TRAINING, variants=tuple(ABLATIONS[label]))
        for label in _PLANNING_LABELS
    )
    return Panel(
        title=f"{length} sub-goal" + ("s" if length > 1 else ""),
        arms=arms,
        score="success_rate",
        instructions=_sample_instructions(length),
    )


FIG28 = Study(
    name="fig28",
    title="Planning in Crafter",
    source="appendix C.5, figure 28",
    panels=tuple(_length_panel(length) for length in range(1, 6)),
    style="bars",
    notes=("The paper's numbers are not known.",),
)


ACHIEVEMENTS = (
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
_PUBLISHED_AGENTS: dict[str, Sequence[float | None]] = {
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
"""Percent, in the order of `ACHIEVEMENTS`."""


def _achievement_panel(number: int, goal: str) -> Panel:
    arms = []
    for label, (variants, flags) in _AGENTS.items():
        percent = _PUBLISHED_AGENTS[label][number]
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


TABLE1 = Study(
    name="table1",
    title="Crafter, success at achievements",
    source="appendix C.5, table 1: the directed agents",
    panels=tuple(_achievement_panel(number, goal) for number, goal in enumerate(ACHIEVEMENTS)),
    style="bars",
    notes=("The undirected agents of the table, which have another reward, are not trained.",),
)


_PIXEL_GOALS = (
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


def _pixels_panel(goal: str, textures: float, pixels: float) -> Panel:
    flags = (*TRAINING, "--env.observation-mode", "pixels")
    arms = (
        Arm(label="textures", recipe="crafter", flags=TRAINING, published=textures / 100),
        Arm(label="pixels", recipe="crafter", flags=flags, published=pixels / 100),
    )
    return Panel(title=goal, arms=arms, score="progress", instructions=() if goal == RANDOM else (goal,))


TABLE2 = Study(
    name="table2",
    title="Crafter from pixels",
    source="appendix C.5, table 2",
    panels=tuple(map(_pixels_panel, _PIXEL_GOALS, _TEXTURES, _PIXELS)),
    style="bars",
)
