"""Trajectories -> a Minari dataset."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium import spaces

from yamame.environments.adapters.actions import native_action
from yamame.records.action_spaces import MASK_LEAF
from yamame.records.spaces import observation_leaves
from yamame.records.trajectory import Trajectory
from yamame.replay.minari.extras import infos_of
from yamame.replay.minari.native import native_observation
from yamame.replay.minari.package import minari, new_data_directory
from yamame.replay.task import TaskSpaces


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A dataset that was written."""

    name: str
    """What Minari calls it."""
    data: Path
    """Where it lies: `minari.MinariDataset(data)` opens it."""
    episodes: int
    steps: int


def export(trajectories: Iterable[Trajectory], task: TaskSpaces, name_or_directory: str) -> Exported:
    """Write a dataset, whole or not at all, without loss: raw arrays, no JPEG. `UserError` where there is one."""
    package = minari()
    from minari.dataset.minari_storage import MinariStorage

    data, name = new_data_directory(name_or_directory)
    partial = data.with_name(f"{data.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    storage = MinariStorage.new(
        partial, observation_space=task.observation_space, action_space=task.action_space, jpeg_encoding=False
    )
    storage.update_metadata(
        {
            "dataset_id": name,
            "minari_version": package.__version__,
            "algorithm_name": "Yamame",
            "description": "An episode is a trial, all attempts on one task. Infos hold what has no field.",
        }
    )
    storage.update_episodes(_episodes(trajectories, task))
    written = package.MinariDataset(partial)
    shutil.rmtree(data, ignore_errors=True)
    partial.rename(data)
    return Exported(name=name, data=data, episodes=written.total_episodes, steps=written.total_steps)


def _episodes(trajectories: Iterable[Trajectory], task: TaskSpaces) -> Iterator[Any]:
    from minari.data_collector import EpisodeBuffer

    masks_observed = task.mask_key in observation_leaves(task.observation_space)
    for trajectory in trajectories:
        yield EpisodeBuffer(
            observations=native_observation(task.observation_space, trajectory.observation, task.mask_key),
            actions=native_action(task.action_space, trajectory.action),
            rewards=trajectory.reward,
            terminations=trajectory.terminated,
            truncations=trajectory.truncated,
            infos=infos_of(
                trajectory,
                mask_in_infos=MASK_LEAF in trajectory.observation and not masks_observed,
                exact_action=isinstance(task.action_space, spaces.Box),
            ),
        )
