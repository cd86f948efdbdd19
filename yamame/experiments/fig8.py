"""Figure 8: ablations in MazeRunner, 15 x 15 and 30 x 30."""

from yamame.experiments import AMAGO, Arm, Experiment, Panel

RECIPE = "maze-runner"
LARGE = ("--env.size", "30")


def _panels() -> tuple[Panel, ...]:
    small = (
        Arm(label=AMAGO, recipe=RECIPE),
        Arm(label="w/o relabeling", recipe=RECIPE, variants=("no-relabeling",)),
        Arm(label="w/o relabeling, w/o multi-gamma", recipe=RECIPE, variants=("no-relabeling", "no-multi-gamma")),
        Arm(label="w/o position", recipe=RECIPE, flags=("--env.no-position",), published=0.91),
    )
    large = (
        Arm(label=AMAGO, recipe=RECIPE, flags=LARGE),
        Arm(label="w/o relabeling", recipe=RECIPE, flags=LARGE, variants=("no-relabeling",), published=0.0),
        Arm(label="w/o memory", recipe=RECIPE, flags=LARGE, variants=("no-memory",)),
        Arm(label="w/o planning", recipe=RECIPE, flags=LARGE, variants=("no-planning",)),
        Arm(label="w/ world model", recipe=RECIPE, flags=LARGE, variants=("world-model",)),
    )
    return (
        Panel(title="MazeRunner 15x15", arms=small, score="success_rate"),
        Panel(title="MazeRunner 30x30", arms=large, score="success_rate"),
    )


EXPERIMENT = Experiment(
    title="MazeRunner",
    source="section 5, figure 8, and appendix C.4; numbers from the text",
    panels=_panels(),
    notes=(
        "The paper's curves are not known. In words: nearly perfect in mazes of 15; without relabeling about double "
        "the return of recurrent PPO there, and nothing in mazes of 30, where memory doubles the success, the world "
        "model changes nothing and planning little.",
    ),
)
