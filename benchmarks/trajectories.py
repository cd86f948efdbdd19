"""Trials as runs collect them: random actions in tasks whose trials are small, middling and large."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from relabeling import end_to_end

from yamame.collect.collector import Collector, RandomPolicy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.data.trajectory import Trajectory
from yamame.envs.config import EnvConfig
from yamame.envs.crafter.config import CrafterConfig
from yamame.envs.package_delivery import PackageDeliveryConfig
from yamame.envs.tmaze import PassiveTMazeConfig

TASKS: Mapping[str, EnvConfig] = {
    "T-Maze, 31 steps": PassiveTMazeConfig(horizon=30),
    "Package Delivery, 180 steps": PackageDeliveryConfig(),
    "Crafter, 500 steps of 7 x 9 tokens": CrafterConfig(horizon=500, num_workers=0),
    "Crafter, 500 steps of 64 x 64 pixels": CrafterConfig(horizon=500, num_workers=0, observation_mode="pixels"),
}


def whole_trials(name: str, count: int) -> list[Trajectory]:
    """Trials of full length; Crafter's, which end with death, laid end to end."""
    config = TASKS[name]
    length = config.max_trial_steps
    crafter = isinstance(config, CrafterConfig)
    num_envs = min(count, 8) if crafter else count
    trials = config.build(num_envs, seed=0)
    rng = np.random.default_rng(0)
    collector = Collector(trials, config.task_name, Explorer(NoExploration(), trials.action_space, num_envs, rng))
    policy = RandomPolicy(trials.action_space, rng)
    found: list[Trajectory] = []
    while len(found) < count:
        collected = list(collector.collect(policy, num_envs * length, False))
        found += end_to_end(collected, length) if crafter else [each for each in collected if len(each) == length]
    trials.close()
    return found[:count]


def own(trajectory: Trajectory) -> Trajectory:
    """A copy whose arrays are its own, and in no object store."""
    copies: dict[str, Any] = {}
    for each in fields(trajectory):
        value = getattr(trajectory, each.name)
        if isinstance(value, np.ndarray):
            copies[each.name] = value.copy()
        elif each.name == "observation":
            copies[each.name] = {name: leaf.copy() for name, leaf in value.items()}
        elif is_dataclass(value):
            copies[each.name] = replace(value)  # type: ignore[type-var]
    return replace(trajectory, **copies)
