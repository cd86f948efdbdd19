"""Figure 9: success at instructions in Crafter, with ablations."""

from collections.abc import Sequence

from yamame.experiments import AMAGO, Arm, Experiment, Panel

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


EXPERIMENT = Experiment(
    title="Instructions in Crafter",
    source="section 5, figure 9; numbers printed in the figure",
    panels=crafter_panels(ABLATIONS, PUBLISHED),
    style="bars",
    notes=("The score is the return divided by the number of sub-goals.",),
)
