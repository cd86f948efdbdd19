"""What `make demo` runs: an agent that finds key and door in the dark, and the same agent without memory.

In a trial the agent has several attempts on one room. Nothing in what it sees tells where key and door are: only an
agent that remembers its earlier attempts can go straight to them in the later ones.
"""

import time
from pathlib import Path

import yamame
from yamame.tools.report import format_attempts_table

ROOM = {"size": 4, "horizon": 60, "attempt_length": 10}
ENV_STEPS = 300_000


def main() -> None:
    folder = Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    print(f"A room of {ROOM['size']} x {ROOM['size']} cells, {ROOM['attempt_length']} steps an attempt, "
          f"{ROOM['horizon']} steps a trial; 1 for the key, 1 for the door.")  # fmt: skip
    print("\nTraining an agent with memory …", flush=True)
    remembers = train(folder / "with-memory", [])
    print("\nTraining the same agent without memory …", flush=True)
    forgets = train(folder / "without-memory", ["no-memory"])

    print("\nMean return of each attempt, with memory:")
    print(format_attempts_table(remembers))
    print("\nwithout memory:")
    print(format_attempts_table(forgets))
    last, without = remembers[-2], forgets[-2]  # the very last one is often cut short by the end of the trial
    print(f"\nThe last whole attempt earns {last / remembers[0]:.1f} times what the first one earns, "
          f"and {last / without:.1f} times what the agent without memory earns.")  # fmt: skip
    draw(folder / "return_per_attempt.png", remembers, forgets)
    print(f"Picture: {folder / 'return_per_attempt.png'}; reports: {folder}/*/report.md")


def train(directory: Path, variants: list[str]) -> list[float]:
    """Mean return of each attempt of the trained agent."""
    run = yamame.train(
        "dark-key-to-door",
        variants=variants,
        run_dir=directory,
        quiet=False,
        env=ROOM,
        env_steps=ENV_STEPS,
        exploration={"anneal_env_steps": ENV_STEPS // 2},
        learner={"lr_decay_updates": ENV_STEPS // 120},
    )
    returns: list[float] = run.result["return_per_attempt"]
    return returns


def draw(path: Path, remembers: list[float], forgets: list[float]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for returns, color, label in ((remembers, "#4477aa", "with memory"), (forgets, "#999999", "without memory")):
        attempts = range(1, len(returns) + 1)
        axes.plot(attempts, returns, "o-", color=color, label=label)
    axes.set(xlabel="attempt on the same room", ylabel="mean return", ylim=(0, 2.05))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


if __name__ == "__main__":
    main()
