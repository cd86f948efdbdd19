"""Trajectories -> a Minari dataset."""

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium import spaces

from yamame.environments.adapters.actions import to_env_action
from yamame.records.action_spaces import ACTION_MASK_KEY
from yamame.records.spaces import flatten_space
from yamame.records.trajectory import Trajectory
from yamame.replay.minari.extras import to_infos
from yamame.replay.minari.native import to_env_observation
from yamame.replay.minari.package import minari, create_dataset_dir
from yamame.replay.task import TaskSpec


@dataclass(frozen=True, kw_only=True)
class ExportResult:
    """A dataset that was written."""

    name: str
    """What Minari calls it."""
    data: Path
    """Where it lies: `minari.MinariDataset(data)` opens it."""
    episodes: int
    steps: int


def export_trajectories(trajectories: Iterable[Trajectory], task: TaskSpec, name_or_directory: str) -> ExportResult:
    """Write a dataset, whole or not at all, without loss: raw arrays, no JPEG. `UserError` where there is one."""
    package = minari()
    from minari.dataset.minari_storage import MinariStorage

    data, name = create_dataset_dir(name_or_directory)
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
    return ExportResult(name=name, data=data, episodes=written.total_episodes, steps=written.total_steps)


def _episodes(trajectories: Iterable[Trajectory], task: TaskSpec) -> Iterator[Any]:
    from minari.data_collector import EpisodeBuffer

    masks_observed = task.action_mask_key in flatten_space(task.observation_space)
    for trajectory in trajectories:
        yield EpisodeBuffer(
            observations=to_env_observation(task.observation_space, trajectory.observation, task.action_mask_key),
            actions=to_env_action(task.action_space, trajectory.action),
            rewards=trajectory.reward,
            terminations=trajectory.terminated,
            truncations=trajectory.truncated,
            infos=to_infos(
                trajectory,
                mask_in_infos=ACTION_MASK_KEY in trajectory.observation and not masks_observed,
                exact_action=isinstance(task.action_space, spaces.Box),
            ),
        )
