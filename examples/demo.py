"""What `make demo` runs: an agent that searches a dark room for a key and a door, and remembers where they are.

A trial is several attempts in one room. No observation shows where key and door are, so the agent has to explore in
its first attempts and can go straight to both in later ones. The same agent with its memory erased before every attempt
shows what memory is worth. First comes an agent of the zoo, which was trained before, then one is trained here.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np
import torch

import yamame

ENV_STEPS, UPDATES = 320_000, 2500
ROOMS = 256
ARROWS = "↓←↑→·"


@dataclass(frozen=True)
class Rooms:
    """Rooms of size x size cells; steps of an attempt, and of all attempts in a room."""

    size: int
    attempt_length: int
    horizon: int


def main() -> None:
    torch.set_num_threads(1)  # the matrices are too small for more, above all on a busy machine
    zoo = yamame.open("zoo:dark-key-to-door")
    show(zoo, Rooms(zoo.config.env.size, zoo.config.env.attempt_length, zoo.config.env.horizon))
    rooms = Rooms(size=4, attempt_length=8, horizon=64)
    print(
        "\n\nTraining an agent from scratch, for smaller rooms and shorter attempts: about three minutes ...",
        flush=True,
    )
    run = yamame.train(
        "dark-key-to-door",
        run_dir=Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S"),
        quiet=False,
        env={"size": rooms.size, "attempt_length": rooms.attempt_length, "horizon": rooms.horizon},
        env_steps=ENV_STEPS,
        updates_per_env_step=UPDATES / ENV_STEPS,
        exploration={"anneal_env_steps": 120_000},
        algorithm={"learner": {"lr_decay_updates": UPDATES}},
        eval={"interval_env_steps": ENV_STEPS // 4, "trials": 64},
    )
    remembered, erased = show(run, rooms)
    plot_attempts(run.directory / "attempts.png", remembered, erased)
    run.record_video(run.directory / "trial.gif")
    print(f"\nThe bars as a plot: {run.directory / 'attempts.png'}; the agent at work: {run.directory / 'trial.gif'}")
    print(f"The whole run: {run.directory / 'report.html'}")


def show(run: yamame.Run, rooms: Rooms) -> tuple[list[float], list[float]]:
    """Print what the agent does in new rooms; return how often each attempt opens the door, with memory and without."""
    print(
        f"Rooms of {rooms.size} x {rooms.size} cells, with a key and then a door to find in the dark. "
        f"{rooms.attempt_length} steps an attempt, {rooms.horizon} steps a room.",
        flush=True,
    )
    remembered, attempts = play(run, rooms, erase_memory=False)
    erased, _ = play(run, rooms, erase_memory=True)
    print(f"\nAttempts that open the door, in {ROOMS} new rooms:\n")
    print_bars(remembered, erased)
    times = remembered[-1] / max(remembered[0], 1 / ROOMS)
    print(f"\nAttempt {len(remembered)} opens the door {times:.1f} times as often as attempt 1.")
    print("\nOne of these rooms, attempt by attempt:\n")
    room = next((each for each in attempts if "key" not in each[0] and "door" in each[-1]), attempts[0])
    for number, steps in enumerate(room, start=1):
        print(f"{number:7d}  {steps}")
    return remembered, erased


def play(run: yamame.Run, rooms: Rooms, *, erase_memory: bool) -> tuple[list[float], list[list[str]]]:
    """Return how often each attempt opens the door, and for each room what happened in its attempts."""
    env = gymnasium.make_vec("yamame/DarkKeyToDoor-v0", ROOMS, size=rooms.size, attempt_length=rooms.attempt_length)
    policy = run.load(num_envs=ROOMS)
    observation, _ = env.reset(seed=1)
    start, reward = np.ones(ROOMS, bool), np.zeros(ROOMS)
    attempts = [[""] for _ in range(ROOMS)]
    for _ in range(rooms.horizon):
        if erase_memory:
            policy.reset(start)
            reward = np.where(start, 0.0, reward)
        action = policy.act(observation, reward=reward, episode_start=start)
        observation, reward, terminated, truncated, _ = env.step(action)
        start = terminated | truncated
        for room in range(ROOMS):
            found = "" if not reward[room] else " door" if terminated[room] else " key "
            attempts[room][-1] += ARROWS[action[room]] + found
            if start[room]:
                attempts[room].append("")
        if start.any():
            observation, _ = env.reset(options={"reset_mask": start, "new_task": np.zeros(ROOMS, bool)})
    complete = [room[:-1] for room in attempts]  # the end of the trial cuts the last attempt short
    number = min(map(len, complete))
    return [float(np.mean(["door" in room[each] for room in complete])) for each in range(number)], complete


def print_bars(remembered: list[float], erased: list[float], width: int = 30) -> None:
    print(f"attempt  {'with its memory':{width + 6}}  memory erased before the attempt")
    for number, (rate, without) in enumerate(zip(remembered, erased, strict=False), start=1):
        bars = [f"{each:4.0%} {'█' * round(width * each)}" for each in (rate, without)]
        print(f"{number:7d}  {bars[0]:{width + 6}}  {bars[1]}")


def plot_attempts(path: Path, remembered: list[float], erased: list[float]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for rates, label, color in (
        (remembered, "with its memory", "C0"),
        (erased, "memory erased before each attempt", "0.6"),
    ):
        axes.plot(range(1, len(rates) + 1), [100 * rate for rate in rates], "o-", color=color, linewidth=2, label=label)
    axes.set(xlabel="attempt in the same room", ylabel="attempts that open the door [%]", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", frameon=False)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
