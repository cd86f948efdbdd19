"""The optional package, and where its datasets lie. Creating datasets through its own collector would need JAX."""

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Shaped

from yamame.data.actions import ACTION_MASK_KEY, NativeActionSpace, to_env_action
from yamame.data.goals import Goals
from yamame.data.schema import TaskSpec
from yamame.data.spaces import DEFAULT_KEY, flatten_observation, flatten_space
from yamame.data.trajectory import Observation, Trajectory
from yamame.errors import UserError

_METADATA = "metadata.json"
_NAME = re.compile(r"(?:[-\w]+/)*[-\w]+-v\d+")


def minari() -> Any:
    """The package; `UserError` where it is not installed."""
    try:
        import h5py  # noqa: F401
        import minari
    except ImportError as error:
        raise UserError("Minari datasets need the packages minari and h5py: pip install 'yamame[minari]'") from error
    return minari


def is_dataset(name_or_directory: str) -> bool:
    """Whether a Minari dataset of this name, or in this directory, is on this machine."""
    return _data_of(name_or_directory) is not None


def open_dataset(name_or_directory: str) -> Any:
    """The dataset; `UserError` where there is none, or none that this version of Minari can read."""
    package, data = minari(), _data_of(name_or_directory)
    if data is None:
        raise UserError(f"{name_or_directory} is no Minari dataset: give the name of a local one, or its directory")
    try:
        return package.MinariDataset(data)
    except Exception as error:  # whatever Minari and HDF5 say of a damaged one
        raise UserError(f"the Minari dataset {name_or_directory} cannot be opened ({error})") from error


def create_dataset_dir(name_or_directory: str) -> tuple[Path, str]:
    """Where the data of a new dataset goes, and its Minari name; `UserError` where there is something already.

    A name such as `maze/expert-v0` goes among Minari's own datasets; what begins with `.`, `/` or `~`, or has no
    version at its end, is a directory.
    """
    if _is_name(name_or_directory):
        data, name = _in_minari(name_or_directory), name_or_directory
    else:
        data = Path(name_or_directory).expanduser().resolve()  # Minari takes a relative path twice
        name = re.sub(r"[^-\w]", "-", data.name)
        name = name if _NAME.fullmatch(name) else f"{name}-v0"
    if data.is_file() or (data.is_dir() and any(data.iterdir())):
        raise UserError(f"{data} is there already: choose another name or directory")
    return data, name


def _data_of(name_or_directory: str) -> Path | None:
    directory = Path(name_or_directory).expanduser().resolve()
    places = [directory, directory / "data"]
    places += [_in_minari(name_or_directory)] if _is_name(name_or_directory) else []
    return next((place for place in places if (place / _METADATA).is_file()), None)


def _in_minari(name: str) -> Path:
    minari()
    from minari.storage import get_dataset_path

    return Path(get_dataset_path(name)) / "data"


def _is_name(name_or_directory: str) -> bool:
    return _NAME.fullmatch(name_or_directory) is not None


_FACTS = ("task", "horizon", "policy_version", "noise_scale")
_OF_GOALS = ("instruction", "achieved_step", "achieved_goal")
_RULES = ("tolerance", "hide_future_goals")


def to_infos(
    trajectory: Trajectory, *, mask_in_infos: bool, exact_action: bool
) -> dict[str, Shaped[np.ndarray, "..."]]:
    """As Minari has infos: what belongs to a transition stands one place later, behind a first one of nothing."""
    infos: dict[str, np.ndarray] = {"episode_start": trajectory.episode_start, "yamame": _packed(_facts(trajectory))}
    if trajectory.success is not None:
        infos["success"] = np.concatenate([[False], trajectory.success])
    if mask_in_infos:
        infos["action_mask"] = trajectory.observation[ACTION_MASK_KEY]
    if exact_action:
        infos["policy_action"] = np.concatenate([np.zeros_like(trajectory.action[:1]), trajectory.action])
    return infos


def from_infos(infos: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The fields of a trajectory, but its arrays, and the order of its `leaves`; None where another program wrote."""
    if not infos or "yamame" not in infos:
        return None
    facts = json.loads(np.asarray(infos["yamame"], np.uint8).tobytes())
    goals = facts.pop("goals")
    if goals is not None:
        arrays: dict[str, Any] = {name: _array(goals[name]) for name in _OF_GOALS}
        goals = Goals(**arrays, **{name: goals[name] for name in _RULES})
    return {**facts, "goals": goals}


def _array(described: Mapping[str, Any]) -> Shaped[np.ndarray, "..."]:
    return np.array(described["values"], described["dtype"]).reshape(described["shape"])


def _facts(trajectory: Trajectory) -> dict[str, Any]:
    return {
        **{name: getattr(trajectory, name) for name in _FACTS},
        "goals": None if trajectory.goals is None else _goals_to_json(trajectory.goals),
        "leaves": list(trajectory.observation),
    }


def _goals_to_json(goals: Goals) -> dict[str, Any]:
    arrays = {name: getattr(goals, name) for name in _OF_GOALS}
    described = {
        name: {"values": array.tolist(), "dtype": array.dtype.name, "shape": array.shape}
        for name, array in arrays.items()
    }
    return {**described, **{name: getattr(goals, name) for name in _RULES}}


def _packed(facts: dict[str, Any]) -> Shaped[np.ndarray, "bytes"]:
    return np.frombuffer(json.dumps(facts).encode(), np.uint8)


def to_env_observation(
    space: spaces.Space[Any], leaves: Observation, action_mask_key: str, path: tuple[str, ...] = ()
) -> Any:
    """What `flatten_observation` made the leaves of, in the nesting of `space`; time stays first."""
    if isinstance(space, spaces.Dict):
        return {
            str(name): to_env_observation(part, leaves, action_mask_key, (*path, str(name)))
            for name, part in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        return tuple(
            to_env_observation(part, leaves, action_mask_key, (*path, str(index)))
            for index, part in enumerate(space.spaces)
        )
    name = "/".join(path) or DEFAULT_KEY
    if name == action_mask_key and name not in leaves:
        name = ACTION_MASK_KEY
    return _native_leaf(space, leaves[name])


def from_env_action(space: NativeActionSpace, action: Shaped[np.ndarray, "T ..."]) -> Shaped[np.ndarray, "T ..."]:
    """The inverse of `to_env_action`; of a Box, up to rounding, and clipped to its bounds."""
    if isinstance(space, spaces.Discrete):
        return action.astype(np.int64) - int(space.start)
    if isinstance(space, spaces.Box):
        return _scaled(space, action.reshape(len(action), *space.shape))
    start = space.start if isinstance(space, spaces.MultiDiscrete) else 0
    return (action.astype(np.int64) - start).reshape(len(action), -1)


def _scaled(space: spaces.Box, action: Shaped[np.ndarray, "T ..."]) -> Float32[np.ndarray, "T A"]:
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    width = np.where(high > low, high - low, 1.0)
    scaled = (action.astype(np.float64) - low) / width * 2.0 - 1.0
    return np.clip(scaled, -1.0, 1.0).astype(np.float32).reshape(len(action), -1)


def _native_leaf(leaf: spaces.Space[Any], stored: Shaped[np.ndarray, "slots ..."]) -> Any:
    match leaf:
        case spaces.Text():
            return [_text(leaf, row) for row in stored]
        case spaces.Discrete():
            return stored + int(leaf.start)
        case spaces.MultiDiscrete():
            return (stored + leaf.start).astype(leaf.dtype)
    return stored.reshape(len(stored), *(leaf.shape or ())).astype(leaf.dtype)


def _text(leaf: spaces.Text, tokens: Shaped[np.ndarray, "L"]) -> str:
    characters = sorted(leaf.characters)
    return "".join(characters[token - 1] for token in tokens if token)


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
