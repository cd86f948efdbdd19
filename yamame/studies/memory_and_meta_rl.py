"""Memory and meta-RL: T-Maze, Dark Key-To-Door, Half-Cheetah-Velocity, Wind (figures 5, 19 and 20).

The methods that the paper compares with are arms, too, where `--algorithm` has them.
"""

from dataclasses import replace

from yamame.studies.base import AMAGO, Arm, Panel, Study, read_table


def figure_5_curve(panel: str, series: str, unit: float) -> tuple[tuple[float, float], ...]:
    """Return points of a curve of figure 5, its x values multiplied by `unit`."""
    rows = (row for row in read_table("fig5_curves.csv") if (row["panel"], row["series"]) == (panel, series))
    return tuple((max(0.0, float(row["x"]) * unit), float(row["y"])) for row in rows)


DARK_9X9 = ("--env.size", "9", "--env.horizon", "500", "--env.attempt-length", "50")
"""The room of the paper."""


def dark_key_to_door() -> Panel:
    """Dark Key-To-Door in the room of 9 x 9 cells."""
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
        known_budget="1 (success 1.0 on three seeds, which stop after at most 12,648 steps)",
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
        known_budget="1 (-288 / -261 / -164, random actions -1,037)",
        references=(("variBAD", -82.5), ("BOReL, online", -75.0), ("TD3-LSTM", -126.0), ("RL2", -154.0)),
    )


def _half_cheetah_rivals() -> Panel:
    recipe = "half-cheetah-velocity"
    return Panel(
        title="Other methods in Half-Cheetah-Velocity",
        arms=(
            Arm(label=AMAGO, recipe=recipe, published=-57.6),
            Arm(label="RL2", recipe=recipe, algorithm="ppo", variants=("gru", "rl2-half-cheetah"), published=-154.0),
            Arm(
                label="variBAD",
                recipe=recipe,
                algorithm="varibad",
                variants=("varibad-half-cheetah",),
                published=-82.5,
            ),
            Arm(
                label="TD3, recurrent",
                recipe=recipe,
                algorithm="recurrent_sac",
                flags=("--learner.method", "td3"),
                published=-126.0,
            ),
        ),
        known_budget=_half_cheetah().known_budget,
        references=(("BOReL, online", -75.0),),
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
            Arm(label="SAC, recurrent", recipe=recipe, algorithm="recurrent_sac", published=61.0),
        ),
        references=(("oracle", 62.0),),
        known_budget="1 (60.5 / 60.1 / 61.7 in unseen winds, random actions 0.01)",
    )


FIG5 = Study(
    name="fig5",
    title="Memory and meta-RL",
    source="section 4, figure 5; curves read from the figure",
    panels=(_tmaze(), dark_key_to_door(), _half_cheetah(), _half_cheetah_rivals(), _wind()),
    notes=(
        "The paper's corridors have 1,500 to 10,000 steps; here it is that of the preset: 30 steps in small, 1,500 in "
        "paper (`--env.horizon` with `yamame train` for others). The paper has no GRU in T-Maze and Half-Cheetah, and "
        "runs without memory in Half-Cheetah only.",
        "The other methods are our implementations, for as many environment steps as AMAGO; the paper's numbers for "
        "them are those of their authors, after 100 million steps (RL2, variBAD) and 5 million (TD3, with an LSTM).",
    ),
)


_DARK_KEY_TO_DOOR = dark_key_to_door()

FIG19 = Study(
    name="fig19",
    title="Trajectory encoders in Dark Key-To-Door",
    source="appendix C.2, figure 19; curves read from figure 5",
    panels=(replace(_DARK_KEY_TO_DOOR, arms=_DARK_KEY_TO_DOOR.arms[:2]),),
)


_DARK_8X8 = ("--env.size", "8", "--env.fixed-start", "--env.horizon", "500", "--env.attempt-length", "50")
_DISTILLATION_UPDATES = "4000"

FIG20 = Study(
    name="fig20",
    title="Adaptation in Dark Key-To-Door 8x8",
    source="appendix C.2, figure 20",
    panels=(
        Panel(
            title="Dark Key-To-Door 8x8",
            arms=(
                Arm(label=AMAGO, recipe="dark-key-to-door", flags=_DARK_8X8),
                Arm(
                    label="Algorithm Distillation",
                    recipe="dark-key-to-door",
                    algorithm="distillation",
                    histories=4000,
                    flags=(
                        *_DARK_8X8,
                        *("--offline.total-updates", _DISTILLATION_UPDATES),
                        *("--learner.lr-decay-updates", _DISTILLATION_UPDATES),
                    ),
                ),
            ),
            x_axis="attempts",
        ),
    ),
    notes=(
        "The paper's numbers are not known. Histories are those of a scripted learner whose noise falls, in place of "
        "700 agents that learn for 50,000 steps each (`yamame data histories --from RUN` makes them of runs).",
    ),
)
