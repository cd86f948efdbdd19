"""Hindsight relabeling in Package Delivery and MazeRunner (figures 7, 8 and 22)."""

from collections.abc import Sequence

from yamame.studies.base import AMAGO, Arm, Panel, Study

DELIVERY_ARMS: dict[str, Sequence[str]] = {
    AMAGO: (),
    "w/o memory": ("no-memory",),
    "w/o relabeling": ("no-relabeling",),
    "w/o filtered BC": ("no-filtered-bc",),
    "relabel all": ("relabel-all",),
}


def _delivery_panel(title: str, variants: Sequence[str] = (), *, known_budget: str = "") -> Panel:
    arms = (
        Arm(label=label, recipe="package-delivery", variants=(*variants, *of_arm))
        for label, of_arm in DELIVERY_ARMS.items()
    )
    return Panel(title=title, arms=tuple(arms), known_budget=known_budget)


FIG7 = Study(
    name="fig7",
    title="Package Delivery",
    source="section 5, figure 7, and appendix C.3",
    panels=(
        _delivery_panel("w/o multi-gamma", ("no-multi-gamma",)),
        _delivery_panel("w/ multi-gamma", known_budget="1 (2.96 / 2.97 / 2.94 of 3 deliveries, random actions 0.22)"),
    ),
    notes=(
        "The paper's numbers are not known. In words: without relabeling nothing but random behavior is learned, "
        "memory is essential, filtered BC helps with one gamma and slightly hurts with many, and relabel all is "
        "worse with one gamma.",
    ),
)


MAZE = "maze-runner"
LARGE_MAZE = ("--env.size", "30")


def _maze_panels() -> tuple[Panel, ...]:
    small = (
        Arm(label=AMAGO, recipe=MAZE),
        Arm(label="w/o relabeling", recipe=MAZE, variants=("no-relabeling",)),
        Arm(label="w/o relabeling, w/o multi-gamma", recipe=MAZE, variants=("no-relabeling", "no-multi-gamma")),
        Arm(label="w/o position", recipe=MAZE, flags=("--env.no-position",), published=0.91),
        Arm(label="RL2", recipe=MAZE, algorithm="ppo", variants=("gru",)),
    )
    large = (
        Arm(label=AMAGO, recipe=MAZE, flags=LARGE_MAZE),
        Arm(label="w/o relabeling", recipe=MAZE, flags=LARGE_MAZE, variants=("no-relabeling",), published=0.0),
        Arm(label="w/o memory", recipe=MAZE, flags=LARGE_MAZE, variants=("no-memory",)),
        Arm(label="w/o planning", recipe=MAZE, flags=LARGE_MAZE, variants=("no-planning",)),
        Arm(label="w/ world model", recipe=MAZE, flags=LARGE_MAZE, variants=("world-model",)),
    )
    return (
        Panel(
            title="MazeRunner 15x15",
            arms=small,
            score="success_rate",
            known_budget="1 (77 / 73 / 73 % of the instructions)",
        ),
        Panel(title="MazeRunner 30x30", arms=large, score="success_rate"),
    )


FIG8 = Study(
    name="fig8",
    title="MazeRunner",
    source="section 5, figure 8, and appendix C.4; numbers from the text",
    panels=_maze_panels(),
    notes=(
        "The paper's curves are not known. In words: nearly perfect in mazes of 15; without relabeling about double "
        "the return of recurrent PPO there, and nothing in mazes of 30, where memory doubles the success, the world "
        "model changes nothing and planning little.",
    ),
)


def _rewired_panel(size: int) -> Panel:
    flags = ("--env.size", str(size), "--env.rewired", "--env.actions", "continuous")
    arms = (
        Arm(label=AMAGO, recipe=MAZE, flags=flags),
        Arm(label="RL2", recipe=MAZE, algorithm="ppo", flags=flags, variants=("gru",)),
        Arm(label="variBAD", recipe=MAZE, algorithm="varibad", flags=flags),
        Arm(label="HyperX", recipe=MAZE, algorithm="hyperx", flags=flags),
    )
    return Panel(title=f"MazeRunner {size}x{size}, rewired", arms=arms, score="success_rate")


FIG22 = Study(
    name="fig22",
    title="MazeRunner with random dynamics",
    source="appendix C.4, figure 22",
    panels=(_rewired_panel(15), _rewired_panel(30)),
    style="bars",
    notes=(
        "The paper's numbers are not known. In words: of the other methods RL2 alone learns a little in mazes of 15, "
        "and AMAGO nearly reaches its success without rewiring.",
    ),
)
