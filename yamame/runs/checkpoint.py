"""Atomic checkpoints: safetensors, JSON and a manifest of SHA-256 checksums.

    checkpoints/
      update-000000100/    tensors.safetensors  state.json  manifest.json
      update-000000200/    always complete: written to a temporary folder, flushed to disk, then renamed

Loading never unpickles.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from yamame.errors import UserError, wrap_os_errors
from yamame.runs.durable_files import sync_folder, write_synced

SCHEMA_VERSION = 1
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
WEIGHTS, ACTING = "weights", "acting"
"""Key of the state, and its value in checkpoints that have the acting weights only."""

_COMPLETE = re.compile(r"update-(\d{9,})(\.replaced)?")
_TEMPORARY_PREFIX = ".saving-"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint loaded from disk."""

    tensors: Mapping[str, Tensor]
    """On the CPU, with memory of their own."""
    state: dict[str, Any]
    step: int
    path: Path
    skipped_corrupted: tuple[str, ...]
    """Newer checkpoints that are corrupted, each with the reason, newest first."""

    @property
    def has_acting_weights_only(self) -> bool:
        """Whether of the model it has the entries of `AlgorithmConfig.acting_state` only."""
        return self.state.get(WEIGHTS) == ACTING


def save_checkpoint(
    directory: Path,
    *,
    step: int,
    tensors: Mapping[str, Tensor],
    state: dict[str, Any],
    keep: int = 2,
    previous_step: int | None = None,
) -> Path:
    """Write `directory/update-<step>` atomically and delete old checkpoints.

    Args:
        directory: Directory of all checkpoints.
        step: Number of updates. Checkpoints of later steps are deleted: `load_latest_checkpoint` returned this or an
            earlier one, so they are corrupted.
        tensors: Tensors by name, on any device.
        state: JSON with string keys. Tuples are loaded as lists.
        keep: Number of latest checkpoints that are kept, this one included.
        previous_step: Step of the checkpoint that was last saved or loaded; None: there is none. Those between the two
            are corrupted, too, and deleted.

    Returns:
        The folder of the new checkpoint.

    Raises:
        UserError: If it cannot be written. Earlier checkpoints are unchanged then.
        ValueError: If a key of `state` is not a string.
    """
    tensor_bytes = safetensors.torch.save(
        {
            name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, tensor in tensors.items()
        }
    )  # copies, since safetensors rejects tensors that share memory or are not contiguous
    contents = {TENSORS: tensor_bytes, STATE: _json_bytes(state)}
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    contents[MANIFEST] = _json_bytes({"schema": SCHEMA_VERSION, "step": step, "sha256": checksums})

    final = directory / f"update-{step:09d}"
    with _created_atomically(final) as temporary:
        for name, content in contents.items():
            write_synced(temporary / name, content)
    _delete_old(directory, step, keep, previous_step)
    return final


def copy_checkpoint(path: Path, directory: Path, *, keep: int = 0) -> Path:
    """Copy a checkpoint to another directory atomically, with hard links if the file system supports them.

    Args:
        path: Folder of the checkpoint.
        directory: Directory of the copy.
        keep: Number of latest checkpoints kept in `directory`; 0: all.

    Returns:
        The folder of the copy.
    """
    final = directory / path.name
    with _created_atomically(final) as temporary:
        shutil.copytree(path, temporary, copy_function=_link_or_copy, dirs_exist_ok=True)
    _delete_old(directory, _sort_key(final)[0], keep)
    return final


def load_latest_checkpoint(directory: Path) -> Checkpoint:
    """Load the latest intact checkpoint: the one whose files match their checksums.

    Raises:
        UserError: If there is no checkpoint or all are corrupted.
    """
    corrupted: list[str] = []
    for path in list_checkpoints(directory):
        try:
            return _load(path, tuple(corrupted))
        except (OSError, ValueError) as problem:
            corrupted.append(f"{path.name} ({problem})")
    if corrupted:
        raise UserError(f"all checkpoints in {directory} are corrupted ({'; '.join(corrupted)}): start a new run")
    raise UserError(f"no checkpoint in {directory}: the run stopped before its first one; start a new run")


def load_checkpoint_at(path: Path) -> Checkpoint:
    """Load the checkpoint in a folder. Raises `UserError` if there is none or it is corrupted."""
    try:
        return _load(path, ())
    except (OSError, ValueError) as problem:
        raise UserError(f"{path} is not an intact checkpoint ({problem}): pass another one") from problem


def list_checkpoints(directory: Path) -> list[Path]:
    """Return the folders of all checkpoints, intact or corrupted, latest first; empty if there is no directory."""
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if _COMPLETE.fullmatch(path.name)]
    return sorted(found, key=_sort_key, reverse=True)


def flatten_tensors(nested: Any) -> tuple[dict[str, Tensor], Any]:
    """Split a nested structure into its tensors by name, and JSON that refers to them by name.

    The structure may consist of dicts (keys: str or int), lists, tuples, tensors, NumPy arrays, numbers, strings,
    booleans and None. `unflatten_tensors` is the exact inverse.

    Raises:
        TypeError: If the structure has any other value.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _skeleton(nested, "", tensors)


def unflatten_tensors(tensors: Mapping[str, Tensor], skeleton: Any) -> Any:
    """Return the structure that `flatten_tensors` split. Mappings of any class become dicts."""
    match skeleton:
        case list():
            return [unflatten_tensors(tensors, part) for part in skeleton]
        case {"tensor": name}:
            return tensors[name]
        case {"array": name}:
            return tensors[name].numpy()
        case {"dict": items}:
            return {key: unflatten_tensors(tensors, part) for key, part in items}
        case {"tuple": parts}:
            return tuple(unflatten_tensors(tensors, part) for part in parts)
        case {"float": number}:
            return float(number)
        case dict():
            raise ValueError(f"unknown kind {', '.join(skeleton)!r} in the JSON of a checkpoint")
    return skeleton


def _skeleton(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    def children(items: list[tuple[Any, Any]]) -> list[Any]:
        return [_skeleton(part, f"{path}/{key}" if path else str(key), tensors) for key, part in items]

    def store(tensor: Tensor) -> str:
        name = path or "tensor"
        while name in tensors:  # the keys 1 and "1", or one with a slash in it
            name += "'"
        tensors[name] = tensor
        return name

    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return float(value) if np.isfinite(value) else {"float": repr(float(value))}
        case Tensor():
            return {"tensor": store(value)}
        case np.ndarray():
            return {"array": store(torch.from_numpy(value.copy()))}
        case list():
            return children(list(enumerate(value)))
        case tuple():
            return {"tuple": children(list(enumerate(value)))}
        case Mapping():
            if not all(isinstance(key, str | int) and not isinstance(key, bool) for key in value):
                raise TypeError(f"keys at {path or 'the top'} must be str or int")
            return {"dict": [list(pair) for pair in zip(value, children(list(value.items())), strict=True)]}
    raise TypeError(f"{type(value).__name__} at {path or 'the top'} cannot be stored in a checkpoint")


def _json_bytes(value: dict[str, Any]) -> bytes:
    _require_string_keys(value)
    return json.dumps(value, indent=1).encode()


def _require_string_keys(value: Any) -> None:
    if isinstance(value, dict):
        invalid = [key for key in value if not isinstance(key, str)]
        if invalid:
            raise ValueError(f"JSON would turn the key {invalid[0]!r} into a string: use flatten_tensors")
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            _require_string_keys(part)


@contextmanager
def _created_atomically(final: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `final`, or deleted if the body raises."""
    directory, temporary = final.parent, final.with_name(f"{_TEMPORARY_PREFIX}{final.name}")
    with wrap_os_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for leftover in directory.glob(f"{_TEMPORARY_PREFIX}*"):
            shutil.rmtree(leftover)
        try:
            temporary.mkdir()
            yield temporary
            sync_folder(temporary)
            _rename(temporary, final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _rename(temporary: Path, final: Path) -> None:
    """Rename a folder; rename an existing checkpoint of this step first, so that one of the two is always readable."""
    if final.exists():
        replaced = final.with_name(final.name + ".replaced")
        shutil.rmtree(replaced, ignore_errors=True)
        final.rename(replaced)
    temporary.rename(final)
    sync_folder(final.parent)


def _delete_old(directory: Path, step: int, keep: int, previous_step: int | None = None) -> None:
    paths = list_checkpoints(directory)
    previous_step = step if previous_step is None else previous_step
    intact = [path for path in paths if _sort_key(path)[0] <= previous_step or _sort_key(path)[0] == step]
    kept = [path for path in intact if not path.name.endswith(".replaced")]
    kept = kept[:keep] if keep else kept
    for path in paths:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _sort_key(path: Path) -> tuple[int, bool]:
    match = _COMPLETE.fullmatch(path.name)
    assert match
    return int(match[1]), match[2] is None


def _load(path: Path, skipped_corrupted: tuple[str, ...]) -> Checkpoint:
    if not _COMPLETE.fullmatch(path.name):
        raise ValueError("its name is not of the form update-000000000")
    manifest = _parse(MANIFEST, (path / MANIFEST).read_bytes(), json.loads)
    step = _sort_key(path)[0]
    if not isinstance(manifest, dict) or manifest.get("step") != step or manifest.get("schema") != SCHEMA_VERSION:
        raise ValueError(f"{MANIFEST} does not match")
    contents = {}
    for name in (TENSORS, STATE):
        contents[name] = (path / name).read_bytes()
        if hashlib.sha256(contents[name]).hexdigest() != manifest.get("sha256", {}).get(name):
            raise ValueError(f"{name} does not match its checksum")
    tensors = _parse(TENSORS, contents[TENSORS], safetensors.torch.load)
    state = _parse(STATE, contents[STATE], json.loads)
    if not isinstance(state, dict):
        raise ValueError(f"{STATE} is not a JSON object")
    return Checkpoint(tensors=tensors, state=state, step=step, path=path, skipped_corrupted=skipped_corrupted)


def _parse(name: str, content: bytes, parser: Callable[[bytes], Any]) -> Any:
    try:
        return parser(content)
    except Exception as problem:
        raise ValueError(f"{name} cannot be read: {problem}") from problem
