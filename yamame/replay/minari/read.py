"""A Minari dataset -> trajectories of a task."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from yamame.records.action_spaces import ACTION_MASK_KEY
from yamame.records.errors import UserError
from yamame.records.spaces import flatten_observation, flatten_space
from yamame.records.trajectory import Trajectory
from yamame.replay.minari.extras import from_infos
from yamame.replay.minari.native import from_env_action
from yamame.replay.minari.package import open_dataset
from yamame.replay.task import TaskSpec


def read_trajectories(name_or_directory: str, task: TaskSpec) -> Iterator[Trajectory]:
    """Its episodes, each a trial. What Yamame exported comes back to the bit; from others success, if infos have it.

    Actions count in the units of the task's own action space. An episode that ends without a flag is truncated.
    `UserError` where the spaces, or what an episode holds, are not the task's.
    """
    dataset = open_dataset(name_or_directory)
    _check_spaces(name_or_directory, dataset, task)
    form = task.schema
    try:
        for episode in dataset.iterate_episodes():
            trajectory = _trajectory(episode, dataset, task)
            misfit = form.validation_error(trajectory)
            if misfit or len(trajectory) > task.horizon:
                problem = misfit or f"it has {len(trajectory)} steps, trials of this task at most {task.horizon}"
                raise UserError(f"episode {episode.id} of {name_or_directory} does not fit: {problem}")
            yield trajectory
    except (OSError, KeyError, ValueError, TypeError) as error:  # what HDF5, JSON and NumPy make of damage
        raise UserError(f"the Minari dataset {name_or_directory} is damaged ({error})") from error


def _check_spaces(name: str, dataset: Any, task: TaskSpec) -> None:
    found, wanted = flatten_space(dataset.observation_space), flatten_space(task.observation_space)
    if found.keys() != wanted.keys():
        raise UserError(f"{name} observes {', '.join(found)}, the task {', '.join(wanted)}: they are not the same task")
    for leaf, space in wanted.items():
        if not _alike(found[leaf], space):
            raise UserError(f"observation {leaf!r} is {found[leaf]} in {name} and {space} in the task")
    if not _alike(dataset.action_space, task.action_space):
        raise UserError(f"actions are {dataset.action_space} in {name} and {task.action_space} in the task")


def _alike(found: spaces.Space[Any], wanted: spaces.Space[Any]) -> bool:
    """Whether values mean the same; bounds of Boxes may differ."""
    if isinstance(found, spaces.Box) and isinstance(wanted, spaces.Box):
        return found.shape == wanted.shape
    return found == wanted


def _trajectory(episode: Any, dataset: Any, task: TaskSpec) -> Trajectory:
    infos = episode.infos or {}
    facts = from_infos(infos)
    length = len(episode.rewards)
    observation = flatten_observation(dataset.observation_space, episode.observations)
    mask = observation.pop(task.action_mask_key, None) if task.action_mask_key else None
    mask = infos.get("action_mask") if mask is None else mask
    if mask is not None:
        observation[ACTION_MASK_KEY] = np.asarray(mask).reshape(length + 1, -1) != 0
    success = np.asarray(infos["success"], np.bool_)[-length:] if "success" in infos else None
    terminated, truncated = (np.asarray(flags, np.bool_) for flags in (episode.terminations, episode.truncations))
    if facts is None:
        facts = {"task": dataset.spec.dataset_id, "horizon": task.horizon}
        start = np.arange(length + 1) == 0
        truncated = truncated | ((np.arange(length) == length - 1) & ~terminated)
        action = from_env_action(task.action_space, np.asarray(episode.actions))
    else:
        observation = {name: observation[name] for name in facts.pop("leaves")}
        start = np.asarray(infos["episode_start"], np.bool_)
        exact = infos.get("policy_action")
        action = from_env_action(task.action_space, np.asarray(episode.actions)) if exact is None else exact[1:]
    return Trajectory(
        reward=np.asarray(episode.rewards, np.float32),
        action=action,
        terminated=terminated,
        truncated=truncated,
        episode_start=start,
        observation=observation,
        success=success,
        **facts,
    )
