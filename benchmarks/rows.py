"""The rows of the table: commands, and what they are compared with."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure, from the JSON object that a command prints last; more is better, but for `wall_seconds`."""

    name: str
    title: str
    command: str
    """`{seed}` and `{folder}` are filled in."""
    figure: str = "updates_per_second"
    """A key of the object; `wall_seconds`: from the start of the command to its end."""
    unit: str = "updates/s"
    authors: float | None = None
    """The best of the authors' code on two cores with AMX, where it was measured."""
    target: float | None = None
    """Target: a minimum, of seconds a maximum."""
    runs: int = 1
    """Runs with seeds 0, 1, …, for commands that measure once."""


def learner(name: str, title: str, flags: str, *, authors: float | None = None, target: float | None = None) -> Row:
    command = f"yamame bench learner --json {flags}"
    return Row(name=f"learner-{name}", title=f"learner, {title}", command=command, authors=authors, target=target)


def collector(name: str, title: str, flags: str, *, authors: float | None = None, target: float | None = None) -> Row:
    return Row(
        name=f"collector-{name}",
        title=f"collector, popgym size, {title}",
        command=f"yamame bench collector --json --size popgym {flags}",
        figure="env_steps_per_second",
        unit="steps/s",
        authors=authors,
        target=target,
    )


def replay(size: str, context: int) -> Row:
    return Row(
        name=f"replay-{size}",
        title=f"replay, {size} size, context {context}: waiting of the learner",
        command=f"yamame bench replay --json --size {size} --context {context} --lengths uniform --repeats 3",
        figure="learner_wait_fraction",
        unit="of its time (0.02 at most)",
    )


def train(name: str, flags: str, *, authors: float, target: float) -> Row:
    return Row(
        name=f"train-{name}",
        title=f"train {flags}, from command to report",
        command=f"yamame train {flags} --json --quiet --seed {{seed}} --run-dir {{folder}}/run",
        figure="wall_seconds",
        unit="s",
        authors=authors,
        target=target,
        runs=3,
    )


def against_naive(name: str, flags: str) -> Row:
    return Row(
        name=f"naive-{name}",
        title=f"learner over a plain float32 port, {flags}",
        command=f"python benchmarks/against_naive.py --json {flags}",
        figure="ratio",
        unit="times",
    )


def memory(context: int) -> Row:
    few = " --warmup 1 --repeats 2" if context >= 3000 else ""
    return Row(
        name=f"memory-{context}",
        title=f"{context:,}",
        command=f"yamame bench learner --json --size tmaze --batch 24 --context {context}{few}",
    )


EVERYWHERE = (
    collector("tmaze-128", "T-Maze, context 128, 24 environments", "--context 128", authors=3100, target=10_000),
    collector(
        "tmaze-128-rolling",
        "T-Maze of 512 steps, context 128 (window full and rolling), 24 environments",
        "--context 128 --horizon 512",
        authors=1330,
        target=8000,
    ),
    collector("tmaze-512", "T-Maze, context 512, 24 environments", "--context 512", authors=1660, target=6000),
    collector("tmaze-128-many", "T-Maze, context 128, 512 environments", "--context 128 --num-envs 512", target=20_000),
    collector(
        "repeat-previous",
        "POPGym RepeatPreviousEasy, 24 environments",
        "--env popgym:RepeatPreviousEasy",
        authors=3440,
        target=10_000,
    ),
    replay("popgym", 128),
    replay("delivery", 180),
    replay("tmaze", 128),
    replay("crafter", 128),
    train("tmaze", "passive-tmaze --env.horizon 30", authors=82, target=25),
    train("repeat-previous", "popgym --env.name RepeatPreviousEasy", authors=83, target=30),
    Row(
        name="end-to-end",
        title="end to end, passive-tmaze --env.horizon 30",
        command="yamame bench end-to-end --json --recipe passive-tmaze --env.horizon 30",
        figure="env_steps_per_second",
        unit="steps/s",
    ),
)
MEMORY = tuple(memory(context) for context in (128, 1000, 3000, 10_000))

CPU = (
    learner("popgym-64", "popgym size, context 64", "--size popgym --context 64", authors=3.8, target=12),
    learner("popgym-128", "popgym size, context 128", "--size popgym --context 128", authors=2.6, target=7),
    learner(
        "popgym-128-uniform",
        "popgym size, context 128, lengths 20..128",
        "--size popgym --context 128 --lengths uniform",
        authors=2.6,
        target=10,
    ),
    learner("popgym-512", "popgym size, context 512", "--size popgym --context 512", authors=0.51, target=1.5),
    learner(
        "popgym-512-uniform",
        "popgym size, context 512, lengths 20..512",
        "--size popgym --context 512 --lengths uniform",
        authors=0.51,
        target=2.1,
    ),
    learner("delivery-180", "delivery size, context 180", "--size delivery --context 180", authors=2.0, target=7),
    learner(
        "popgym-128-gru",
        "popgym size, context 128, GRU",
        "--size popgym --context 128 --encoder gru",
        authors=2.5,
        target=4,
    ),
    against_naive("popgym-128", "--size popgym --context 128 --warmup 2 --repeats 5"),
    against_naive("popgym-128-uniform", "--size popgym --context 128 --lengths uniform --warmup 2 --repeats 5"),
    *EVERYWHERE,
    *MEMORY,
)
"""Where there is no GPU."""

GPU = (
    *(
        learner(f"popgym-{context}", f"popgym size, context {context}", f"--size popgym --context {context}", target=w)
        for context, w in ((128, 500), (512, 400), (1024, 220))
    ),
    learner(
        "crafter-2000",
        "crafter size, context 2,000, batch 18",
        "--size crafter --context 2000 --batch 18",
        target=45,
    ),
    learner(
        "tmaze-10000", "tmaze size, context 10,000, batch 24", "--size tmaze --context 10000 --batch 24", target=12
    ),
    learner(
        "tmaze-100000", "tmaze size, context 100,000, batch 1", "--size tmaze --context 100000 --batch 1", target=4
    ),
    against_naive("popgym-128", "--size popgym --context 128"),
    *EVERYWHERE,
    *MEMORY,
)
"""Where there is one."""
