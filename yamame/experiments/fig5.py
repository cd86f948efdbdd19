"""Figure 5: passive T-Maze, Dark Key-To-Door, Half-Cheetah-Velocity and Wind, with a GRU and without memory."""

from yamame.experiments import AMAGO, Arm, Experiment, Panel, figure_5_curve

DARK_9X9 = ("--env.size", "9", "--env.horizon", "500", "--env.attempt-length", "50")
"""The room of the paper."""


def dark_key_to_door() -> Panel:
    """Dark Key-To-Door in the room of 9 x 9 cells; figure 19 has it too."""
    name, recipe = "dark-key-to-door 9x9", "dark-key-to-door"
    return Panel(
        title="Dark Key-To-Door 9x9",
        arms=(
            Arm(
                label=AMAGO,
                recipe=recipe,
                flags=DARK_9X9,
                published=39.5,
                published_curve=figure_5_curve(name, "AMAGO", 1e6),
            ),
            Arm(
                label="AMAGO-GRU",
                recipe=recipe,
                flags=DARK_9X9,
                variants=("gru",),
                published=3.45,
                published_curve=figure_5_curve(name, "AMAGO-GRU", 1e6),
            ),
            Arm(label="w/o memory", recipe=recipe, flags=DARK_9X9, variants=("no-memory",)),
        ),
    )


def _tmaze() -> Panel:
    recipe = "passive-tmaze"
    return Panel(
        title="Passive T-Maze",
        arms=(
            Arm(label=AMAGO, recipe=recipe, published=1.0),
            Arm(label="AMAGO-GRU", recipe=recipe, variants=("gru",)),
            Arm(label="w/o memory", recipe=recipe, variants=("no-memory",)),
        ),
    )


def _half_cheetah() -> Panel:
    recipe, name = "half-cheetah-velocity", "half-cheetah-vel"
    return Panel(
        title="Half-Cheetah-Velocity",
        arms=(
            Arm(label=AMAGO, recipe=recipe, published=-57.6, published_curve=figure_5_curve(name, "AMAGO", 1e3)),
            Arm(label="AMAGO-GRU", recipe=recipe, variants=("gru",)),
            Arm(
                label="w/o memory",
                recipe=recipe,
                variants=("no-memory",),
                published=-281.0,
                published_curve=figure_5_curve(name, "AMAGO w/o memory", 1e3),
            ),
        ),
        x_axis="updates",
        references=(("variBAD", -82.5), ("BOReL, online", -75.0), ("TD3-LSTM", -126.0), ("RL2", -154.0)),
    )


def _wind() -> Panel:
    recipe = "wind"
    return Panel(
        title="Wind",
        arms=(
            Arm(label=AMAGO, recipe=recipe, published=61.1, published_curve=figure_5_curve("wind", "AMAGO", 1e6)),
            Arm(
                label="AMAGO-GRU",
                recipe=recipe,
                variants=("gru",),
                published=61.1,
                published_curve=figure_5_curve("wind", "AMAGO-GRU", 1e6),
            ),
            Arm(label="w/o memory", recipe=recipe, variants=("no-memory",)),
        ),
        references=(("oracle", 62.0), ("RNN, off-policy", 61.0)),
    )


EXPERIMENT = Experiment(
    title="Memory and meta-RL",
    source="section 4, figure 5; curves read from the figure",
    panels=(_tmaze(), dark_key_to_door(), _half_cheetah(), _wind()),
    notes=(
        "The paper's corridors have 1,500 to 10,000 steps; here it is that of the preset: 30 steps in small, 1,500 in "
        "paper (`--env.horizon` with `yamame train` for others). The paper has no GRU in T-Maze and Half-Cheetah, and "
        "runs without memory in Half-Cheetah only.",
    ),
)
