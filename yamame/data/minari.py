"""Export of trajectories to Minari datasets, and import. Uses no Minari collector, which would need JAX."""

import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Int64, Shaped

from yamame.data.actions import (
    ACTION_MASK_KEY,
    NativeAction,
    NativeActionSpace,
    declared_positions,
    has_allowed_action,
    is_allowed,
    num_choices,
    policy_action_space,
    to_env_action,
)
from yamame.data.minari_infos import from_infos, to_infos
from yamame.data.observations import OutOfSpaceError, flatten_observation
from yamame.data.schema import TaskSpec
from yamame.data.spaces import DEFAULT_KEY, flatten_space, ordered_parts, stored_dtype, walk_space
from yamame.data.trajectory import Observation, Trajectory
from yamame.errors import UserError, wrap_os_errors

_METADATA = "metadata.json"
_MAX_EXPANSION, _MAX_FILL_BYTES = 2_000, 64 << 20
"""Limits of compression in an HDF5 file: gzip reaches a factor of about 1,030."""
_NAME = re.compile(r"(?:[-\w]+/)*[-\w]+-v\d+")


def minari() -> Any:
    """Import the optional package; `UserError` if it is not installed."""
    try:
        import h5py  # noqa: F401
        import minari
    except ImportError as error:
        raise UserError("Minari datasets need the packages minari and h5py: pip install 'yamame[minari]'") from error
    return minari


def is_dataset(name_or_directory: str) -> bool:
    """Whether there is a local Minari dataset of this name or in this directory."""
    return _data_of(name_or_directory) is not None


def open_dataset(name_or_directory: str) -> Any:
    """Open a local dataset; `UserError` if there is none, or none that this version of Minari can read."""
    package, data = minari(), _data_of(name_or_directory)
    if data is None:
        raise UserError(f"{name_or_directory} is no Minari dataset: give the name of a local one, or its directory")
    try:
        for file in data.glob("*.hdf5"):
            _require_own_data(file)
        return package.MinariDataset(data)
    except UserError:
        raise
    except Exception as error:  # whatever Minari and HDF5 raise
        raise UserError(f"the Minari dataset {name_or_directory} is corrupted ({error})") from error


def _require_own_data(path: Path) -> None:
    """Raise `UserError` if an HDF5 file reads other files, or announces far more data than it has."""
    import h5py

    def check(group: Any) -> None:
        for name in group:
            link = group.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                raise UserError(f"{path}: {group.name}/{name} is a link: only datasets without links can be read")
            item = group[name]
            if isinstance(item, h5py.Group):
                check(item)
            elif isinstance(item, h5py.Dataset):
                if item.external or item.is_virtual:
                    raise UserError(f"{path}: {item.name} is stored in other files: only a dataset of its own is read")
                if item.nbytes > _MAX_EXPANSION * item.id.get_storage_size() + _MAX_FILL_BYTES:
                    raise UserError(f"{path}: {item.name} announces {item.nbytes} bytes, far more than it has")

    with h5py.File(path, "r") as file:
        check(file)


def create_dataset_dir(name_or_directory: str) -> tuple[Path, str]:
    """Return the data directory of a new dataset and its Minari name; `UserError` if the directory is not empty.

    A name such as `maze/expert-v0` refers to Minari's own datasets; anything that starts with `.`, `/` or `~`, or has
    no version at its end, is a directory.
    """
    if _NAME.fullmatch(name_or_directory):
        data, name = _in_minari(name_or_directory), name_or_directory
    else:
        data = Path(name_or_directory).expanduser().resolve()  # Minari takes a relative path twice
        name = re.sub(r"[^-\w]", "-", data.name)
        name = name if _NAME.fullmatch(name) else f"{name}-v0"
    if data.is_file() or (data.is_dir() and any(data.iterdir())):
        raise UserError(f"{data} already exists: choose another name or directory")
    return data, name


def _data_of(name_or_directory: str) -> Path | None:
    directory = Path(name_or_directory).expanduser().resolve()
    candidates = [directory, directory / "data"]
    if _NAME.fullmatch(name_or_directory):
        candidates.append(_in_minari(name_or_directory))
    return next((path for path in candidates if (path / _METADATA).is_file()), None)


def _in_minari(name: str) -> Path:
    minari()
    from minari.storage import get_dataset_path

    return Path(get_dataset_path(name)) / "data"


def to_env_observation(space: spaces.Space[Any], leaves: Observation, path: tuple[str, ...] = ()) -> Any:
    """Invert `flatten_observation`: nest the leaves as `space` does; time stays first."""
    if isinstance(space, spaces.Dict):
        return {str(name): to_env_observation(part, leaves, (*path, str(name))) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(to_env_observation(part, leaves, (*path, str(index))) for index, part in enumerate(space.spaces))
    return _to_env_leaf(space, leaves["/".join(path) or DEFAULT_KEY])


def from_env_action(space: NativeActionSpace, actions: NativeAction) -> Shaped[np.ndarray, "T ..."]:
    """Invert `to_env_action`; for a Box up to rounding and clipped to its bounds."""
    leaves = [_from_env_leaf(leaf, np.asarray(reduce(getitem, keys, actions))) for keys, leaf in walk_space(space)]
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return leaves[0]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def _from_env_leaf(space: Any, action: Shaped[np.ndarray, "T ..."]) -> Shaped[np.ndarray, "T ..."]:
    if isinstance(space, spaces.Discrete):
        return action.astype(np.int64) - int(space.start)
    if isinstance(space, spaces.Box):
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        width = np.where(high > low, high - low, 1.0)
        scaled = (action.reshape(len(action), *space.shape).astype(np.float64) - low) / width * 2.0 - 1.0
        return np.clip(scaled, -1.0, 1.0).astype(np.float32).reshape(len(action), -1)
    start = space.start if isinstance(space, spaces.MultiDiscrete) else 0
    return (action.astype(np.int64) - start).reshape(len(action), -1)


def _to_env_leaf(leaf: spaces.Space[Any], stored: Shaped[np.ndarray, "rows ..."]) -> Any:
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
    """A written dataset."""

    name: str
    """Minari name."""
    data: Path
    """Directory that `minari.MinariDataset(data)` opens."""
    episodes: int
    steps: int


def export_trajectories(trajectories: Iterable[Trajectory], task: TaskSpec, name_or_directory: str) -> ExportResult:
    """Write a lossless dataset (raw arrays, no JPEG) atomically.

    Raises:
        UserError: If it already exists or cannot be written, or a key of a Dict space is no name in an HDF5 file.
    """
    package = minari()
    from minari.dataset.minari_storage import MinariStorage

    _check_keys(task.observation_space, are_actions=False)
    _check_keys(task.action_space, are_actions=True)
    data, name = create_dataset_dir(name_or_directory)
    partial = data.with_name(f"{data.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"cannot create {data} ({error.strerror}): choose another --output") from error
    try:
        with wrap_os_errors(data):
            storage = MinariStorage.new(
                partial, observation_space=task.observation_space, action_space=task.action_space, jpeg_encoding=False
            )
            storage.update_metadata(
                {
                    "dataset_id": name,
                    "minari_version": package.__version__,
                    "algorithm_name": "Yamame",
                    "description": "An episode is a trial: all attempts on one task. Infos hold what Minari lacks.",
                }
            )
            storage.update_episodes(_episodes(trajectories, task))
            written = package.MinariDataset(partial)
            shutil.rmtree(data, ignore_errors=True)
            partial.rename(data)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return ExportResult(name=name, data=data, episodes=written.total_episodes, steps=written.total_steps)


def _check_keys(space: spaces.Space[Any], *, are_actions: bool) -> None:
    """Raise `UserError` for a key of a Dict that Minari cannot store, or that HDF5 takes for a path."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return
    for key, part in ordered_parts(space):
        is_named = isinstance(space, spaces.Dict) and (are_actions or isinstance(key, str))
        if is_named and (not isinstance(key, str) or "/" in key or key in ("", ".")):
            kind = "actions" if are_actions else "observations"
            raise UserError(f"a Minari dataset cannot hold {kind} with the key {key!r}: rename it in the environment")
        _check_keys(part, are_actions=are_actions)


def _episodes(trajectories: Iterable[Trajectory], task: TaskSpec) -> Iterator[Any]:
    from minari.data_collector import EpisodeBuffer

    masks_observed = task.action_mask_key in flatten_space(task.observation_space)
    for trajectory in trajectories:
        leaves = dict(trajectory.observation)
        if ACTION_MASK_KEY in leaves:
            in_walk_order, positions = leaves.pop(ACTION_MASK_KEY), declared_positions(task.action_space)
            leaves[task.action_mask_key] = in_walk_order[:, np.argsort(positions)]
        yield EpisodeBuffer(
            observations=to_env_observation(task.observation_space, leaves),
            actions=to_env_action(task.action_space, trajectory.action),
            rewards=trajectory.reward,
            terminations=trajectory.terminated,
            truncations=trajectory.truncated,
            infos=to_infos(
                trajectory,
                mask_in_infos=ACTION_MASK_KEY in trajectory.observation and not masks_observed,
                exact_action=isinstance(policy_action_space(task.action_space), spaces.Box),
            ),
        )


def read_trajectories(name_or_directory: str, task: TaskSpec) -> Iterator[Trajectory]:
    """Yield the episodes of a dataset, each as a trial.

    Datasets exported by Yamame come back to the bit; of others, infos contribute `success`. Actions are in units of the
    task's action space. Values are bootstrapped from the last observation of an episode that
    ends without a flag.

    Raises:
        UserError: If the spaces or the contents of an episode do not match the task.
    """
    dataset, schema = open_dataset(name_or_directory), task.schema
    _check_spaces(name_or_directory, dataset, task)
    try:
        for episode in dataset.iterate_episodes():
            try:
                trajectory = _trajectory(episode, dataset, task)
            except OutOfSpaceError as error:
                raise UserError(f"episode {episode.id} of {name_or_directory}, step {error.row}: {error}") from error
            problem = schema.validation_error(trajectory)
            if not problem and len(trajectory) > task.horizon:
                problem = f"it has {len(trajectory)} steps, trials of this task at most {task.horizon}"
            if problem:
                raise UserError(f"episode {episode.id} of {name_or_directory} does not match the task: {problem}")
            yield trajectory
    except UserError:
        raise
    except Exception as error:  # whatever HDF5, JSON and NumPy raise for a corrupted file
        raise UserError(f"the Minari dataset {name_or_directory} is corrupted ({error})") from error


def _check_spaces(name: str, dataset: Any, task: TaskSpec) -> None:
    found, expected = flatten_space(dataset.observation_space), flatten_space(task.observation_space)
    if found.keys() != expected.keys():
        raise UserError(f"{name} observes {', '.join(found)}, the task {', '.join(expected)}: expected the same task")
    for leaf, space in expected.items():
        if not _is_compatible(found[leaf], space):
            raise UserError(f"observation {leaf!r} is {found[leaf]} in {name} and {space} in the task")
    if not _is_compatible(dataset.action_space, task.action_space):
        raise UserError(f"actions are {dataset.action_space} in {name} and {task.action_space} in the task")


def _is_compatible(found: spaces.Space[Any], expected: spaces.Space[Any]) -> bool:
    """Whether spaces are equal except for the bounds of Boxes and the integer type of Discretes."""
    match found, expected:
        case spaces.Box(), spaces.Box():
            return found.shape == expected.shape
        case spaces.Discrete(), spaces.Discrete():
            return (found.n, found.start) == (expected.n, expected.start)
        case (spaces.Dict(), spaces.Dict()) | (spaces.Tuple(), spaces.Tuple()):
            parts, others = ordered_parts(found), ordered_parts(expected)
            return [key for key, _ in parts] == [key for key, _ in others] and all(
                _is_compatible(part, other) for (_, part), (_, other) in zip(parts, others, strict=True)
            )
    return found == expected


def _trajectory(episode: Any, dataset: Any, task: TaskSpec) -> Trajectory:
    infos = episode.infos or {}
    metadata = from_infos(infos)
    length = len(episode.rewards)
    leaves = flatten_space(task.observation_space)
    observation = {  # floats of another size than the task's
        name: leaf.astype(stored_dtype(leaves[name]), copy=False) if name in leaves and leaf.dtype.kind == "f" else leaf
        for name, leaf in flatten_observation(dataset.observation_space, episode.observations).items()
    }
    key, positions = task.action_mask_key, declared_positions(task.action_space)
    mask = observation.pop(key, None) if key else None
    if mask is None:
        mask = infos.get(key if metadata is None else ACTION_MASK_KEY)
        positions = positions if metadata is None else np.arange(len(positions))
    if mask is not None:
        observation[ACTION_MASK_KEY] = _masks(mask, positions, length, episode)
    success = np.asarray(infos["success"], np.bool_)[-length:] if "success" in infos else None
    terminated, truncated = (np.asarray(flags, np.bool_) for flags in (episode.terminations, episode.truncations))
    if metadata is None:
        metadata = {"task": dataset.spec.dataset_id, "horizon": task.horizon}
        start = np.arange(length + 1) == 0
        _check_bounds(dataset.action_space, task.action_space, episode)
        action = from_env_action(task.action_space, episode.actions)
        if mask is not None:
            _check_masks(observation[ACTION_MASK_KEY], action.reshape(length, -1), task, episode)
    else:
        observation = {name: observation[name] for name in metadata.pop("leaves")}
        start = np.asarray(infos["episode_start"], np.bool_)
        exact = infos.get("policy_action")
        action = from_env_action(task.action_space, episode.actions) if exact is None else exact[1:]
    return Trajectory(
        reward=np.asarray(episode.rewards, np.float32),
        action=action,
        terminated=terminated,
        truncated=truncated,
        episode_start=start,
        observation=observation,
        success=success,
        **metadata,
    )


def _check_bounds(found: spaces.Space[Any], expected: spaces.Space[Any], episode: Any) -> None:
    """Raise `UserError` for an action of a Box with other bounds that is beyond those of the task, by over 0.1 %.

    Where the bounds are equal, such actions are clipped, as the environment does.
    """
    for (keys, of_dataset), (_, of_task) in zip(walk_space(found), walk_space(expected), strict=True):
        if not (isinstance(of_task, spaces.Box) and isinstance(of_dataset, spaces.Box)):
            continue
        low, high = of_task.low.astype(np.float64), of_task.high.astype(np.float64)
        if np.allclose(of_dataset.low, low) and np.allclose(of_dataset.high, high):
            continue
        action = np.asarray(reduce(getitem, keys, episode.actions)).reshape(-1, *of_task.shape)
        excess = np.maximum(low - action, action - high) - (high - low) * 1e-3
        if (excess > 0).any():
            value = action.flat[int(excess.argmax())]
            raise UserError(
                f"episode {episode.id} has an action of {value:.6g}, beyond the bounds of the task, {of_task}; the "
                f"dataset's are {of_dataset}: give it the units of the task"
            )


_MEND_MASKS = "correct the dataset, or set env.action_mask_key to '' to ignore masks"


def _masks(mask: Any, positions: Int64[np.ndarray, "A"], length: int, episode: Any) -> Bool[np.ndarray, "tokens A"]:
    mask = np.asarray(mask).reshape(length + 1, -1) != 0
    if mask.shape[1] != len(positions):
        found, expected = mask.shape[1], len(positions)
        raise UserError(f"episode {episode.id} has masks of {found} entries for {expected} choices: {_MEND_MASKS}")
    return mask[:, positions]


def _check_masks(
    mask: Bool[np.ndarray, "tokens A"], action_TC: Int64[np.ndarray, "T C"], task: TaskSpec, episode: Any
) -> None:
    """Raise `UserError` if a mask forbids the action taken; after the last one, allow all if none is allowed."""
    sizes = num_choices(task.action_space)
    mask[-1] |= not has_allowed_action(mask[-1:], sizes)[0]
    for step in np.flatnonzero(~is_allowed(action_TC, sizes, mask[:-1]))[:1]:
        raise UserError(f"episode {episode.id} forbids by its mask the action of step {step}: {_MEND_MASKS}")
