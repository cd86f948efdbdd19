"""Relabeled trajectories per second, on one core: `python benchmarks/relabeling.py [--seconds 2] [--repeats 5]`.

Trials of random actions, as they are sampled from the replay store: decoded, cached, and never completed. Crafter's are
laid end to end to 500 steps, since random actions seldom live so long.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from yamame.collect.collector import Collector, RandomPolicy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.data.relabeling import GoalStatistics, RelabelConfig, Relabeler, RelabelMode
from yamame.data.trajectory import Trajectory
from yamame.envs.config import EnvConfig
from yamame.envs.crafter.config import CrafterConfig
from yamame.envs.maze_runner import MazeRunnerConfig
from yamame.envs.package_delivery import PackageDeliveryConfig

CRAFTER_LENGTH = 500


def random_trials(config: EnvConfig, num_envs: int, vector_steps: int) -> list[Trajectory]:
    trials = config.build(num_envs, seed=0)
    rng = np.random.default_rng(0)
    collector = Collector(trials, config.task_name, Explorer(NoExploration(), trials.action_space, num_envs, rng))
    found = list(collector.collect(RandomPolicy(trials.action_space, rng), num_envs * vector_steps, False))
    trials.close()
    return [trajectory for trajectory in found if _unfinished(trajectory)]


def end_to_end(trials: Sequence[Trajectory], length: int) -> list[Trajectory]:
    """Trajectories of `length` steps, each of several trials with the first one's instruction."""
    joined, parts, steps = [], list[Trajectory](), 0
    for trial in trials:
        parts.append(trial)
        steps += len(trial)
        if steps >= length:
            joined.append(_joined(parts, length))
            parts, steps = [], 0
    return joined


def _joined(parts: Sequence[Trajectory], length: int) -> Trajectory:
    first = parts[0]
    starts = np.cumsum([0, *map(len, parts)])
    records = [part.goals for part in parts if part.goals is not None]
    step = np.concatenate([record.achieved_step + start for record, start in zip(records, starts, strict=False)])
    kept = step < length
    goals = replace(
        records[0],
        achieved_step=step[kept],
        achieved_goal=np.concatenate([record.achieved_goal for record in records])[kept],
    )
    leaves = {
        name: np.concatenate(
            [part.observation[name][: len(part)] for part in parts] + [parts[-1].observation[name][-1:]]
        )
        for name in first.observation
    }
    return replace(
        first,
        reward=np.zeros(length, np.float32),
        action=np.concatenate([part.action for part in parts])[:length],
        terminated=np.zeros(length, np.bool_),
        truncated=np.arange(length) == length - 1,
        episode_start=np.arange(length + 1) == 0,
        observation={name: leaf[: length + 1] for name, leaf in leaves.items()},
        success=np.zeros(length, np.bool_),
        goals=goals,
    )


def _unfinished(trajectory: Trajectory) -> bool:
    goals = trajectory.goals
    assert goals is not None
    return len(goals.completion_steps()) < len(goals.instruction) and len(goals.achieved_step) > 0


def told_anew_per_second(trials: Sequence[Trajectory], mode: RelabelMode, seconds: float) -> tuple[float, float]:
    """(trajectories that were given another instruction, all that were looked at) in a second of processor time."""
    relabel, known, rng = Relabeler(RelabelConfig(mode=mode)), GoalStatistics(), np.random.default_rng(0)
    began = time.process_time()
    while (spent := time.process_time() - began) < seconds:
        for trajectory in trials:
            _, known = relabel(trajectory, known, rng)
    return known.num_relabeled / spent, known.num_sampled / spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    crafter = random_trials(
        CrafterConfig(horizon=CRAFTER_LENGTH, num_workers=0), num_envs=4, vector_steps=2 * CRAFTER_LENGTH
    )
    tasks = {
        "package-delivery": random_trials(PackageDeliveryConfig(), num_envs=64, vector_steps=360),
        "maze-runner 15": random_trials(MazeRunnerConfig(), num_envs=32, vector_steps=800),
        f"crafter, {CRAFTER_LENGTH} steps": end_to_end(crafter, CRAFTER_LENGTH),
    }
    print("| trajectories | mode | relabeled per second | sampled per second | steps | achieved goals |")
    print("|---|---|---|---|---|---|")
    for name, trials in tasks.items():
        steps = np.mean([len(trial) for trial in trials])
        achieved = np.mean([len(trial.goals.achieved_step) for trial in trials if trial.goals is not None])
        for mode in ("some", "all"):
            measured = [told_anew_per_second(trials, mode, options.seconds) for _ in range(options.repeats)]
            relabeled, sampled = (statistics.median(each) for each in zip(*measured, strict=True))
            print(f"| {name} | {mode} | {relabeled:,.0f} | {sampled:,.0f} | {steps:.0f} | {achieved:.0f} |", flush=True)


if __name__ == "__main__":
    main()
