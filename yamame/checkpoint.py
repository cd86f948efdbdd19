"""Checkpoints that survive a kill at any moment and a damaged disk: safetensors, JSON and a manifest of checksums.

    checkpoints/
      update-000000100/    tensors.safetensors  state.json  manifest.json
      update-000000200/    a folder of this name is complete: it was written aside, flushed to disk, then renamed

Nothing here is ever unpickled.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from yamame.errors import UserError, wrap_os_errors

SCHEMA_VERSION = 1
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"

_COMPLETE = re.compile(r"update-(\d{9,})(\.replaced)?")
_UNFINISHED = ".saving-"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What `save_checkpoint` was given, back from disk."""

    tensors: Mapping[str, Tensor]
    """On the CPU; nothing else refers to their memory."""
    state: dict[str, Any]
    step: int
    path: Path
    skipped_corrupted: tuple[str, ...]
    """Newer checkpoints that were passed over because they are damaged, each with the reason; newest first."""


def save_checkpoint(
    directory: Path, *, step: int, tensors: Mapping[str, Tensor], state: dict[str, Any], keep: int = 2
) -> Path:
    """Write `directory/update-<step>` so that it is there whole or not at all; the path of the new checkpoint.

    `state` is plain JSON: string keys only (ValueError otherwise); a tuple in it comes back as a list. Afterwards the
    newest `keep` checkpoints up to this one stay. Later ones are removed too: `load_latest_checkpoint` takes the newest whole
    one, so whoever saves an earlier step has been told that the later ones are damaged. `UserError` where the disk does
    not take it; what was there before is then as it was.
    """
    if keep < 1 or step < 0:
        raise ValueError(f"keep must be at least 1 and step at least 0, not {keep} and {step}")
    contents = {TENSORS: safetensors.torch.save(_detached(tensors)), STATE: _json_bytes(state)}
    checksums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    contents[MANIFEST] = _json_bytes({"schema": SCHEMA_VERSION, "step": step, "sha256": checksums})

    aside, final = directory / f"{_UNFINISHED}{step:09d}", directory / f"update-{step:09d}"
    with wrap_os_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        _discard_unfinished(directory)
        try:
            aside.mkdir()
            for name, content in contents.items():
                _write_durably(aside / name, content)
            _flush_folder(aside)
            _put_in_place(aside, final)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
    _remove_old(directory, step, keep)
    return final


def copy_checkpoint(path: Path, directory: Path, *, keep: int = 0) -> Path:
    """The checkpoint in `path` in another directory as well, whole or not at all; 0 of `keep` keeps all that is there.

    Files are linked where the file system can, so that a copy takes no space.
    """
    with wrap_os_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        _discard_unfinished(directory)
        aside, final = directory / f"{_UNFINISHED}{path.name}", directory / path.name
        shutil.copytree(path, aside, copy_function=_link_or_copy)
        _flush_folder(aside)
        _put_in_place(aside, final)
        _remove_old(directory, _order(final)[0], keep)
    return final


def load_latest_checkpoint(directory: Path) -> Checkpoint:
    """The newest checkpoint whose every byte matches its manifest.

    Damaged newer ones are named in `skipped_corrupted`. Raises `UserError` where none is whole.
    """
    damaged: list[str] = []
    for path in list_checkpoints(directory):
        try:
            return _read_whole(path, tuple(damaged))
        except (OSError, ValueError) as problem:
            damaged.append(f"{path.name} ({problem})")
    if damaged:
        raise UserError(f"no checkpoint in {directory} is whole ({'; '.join(damaged)}): start a new run")
    raise UserError(f"no checkpoint in {directory}: the run stopped before its first one; start a new run")


def load_checkpoint_at(path: Path) -> Checkpoint:
    """The checkpoint in a folder of its own; `UserError` where it is not whole."""
    try:
        return _read_whole(path, ())
    except (OSError, ValueError) as problem:
        raise UserError(f"{path} is no whole checkpoint ({problem})") from problem


def list_checkpoints(directory: Path) -> list[Path]:
    """The checkpoints in a directory, whole or damaged; none where there is no directory."""
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if _COMPLETE.fullmatch(path.name)]
    return sorted(found, key=_order, reverse=True)


def flatten_tensors(nested: Any) -> tuple[dict[str, Tensor], Any]:
    """Tensors of any nest by name, and the nest itself as plain JSON with the names in their places.

    A nest is made of dicts (keys: str or int), lists, tuples, tensors, numpy arrays, numbers, strings, booleans and
    None; `unflatten_tensors` gives it back exactly. Raises TypeError for anything else.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _skeleton(nested, "", tensors)


def unflatten_tensors(tensors: Mapping[str, Tensor], skeleton: Any) -> Any:
    """The nest that `flatten_tensors` took apart (a dict of any kind comes back as a plain dict)."""
    if isinstance(skeleton, list):
        return [unflatten_tensors(tensors, part) for part in skeleton]
    if not isinstance(skeleton, dict):
        return skeleton
    ((kind, content),) = skeleton.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "array":
            return tensors[content].numpy()
        case "dict":
            return {key: unflatten_tensors(tensors, part) for key, part in content}
        case "tuple":
            return tuple(unflatten_tensors(tensors, part) for part in content)
        case "float":
            return float(content)
    raise ValueError(f"unknown kind {kind!r} in a checkpoint's skeleton")


def _skeleton(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    def children(items: list[tuple[Any, Any]]) -> list[Any]:
        return [_skeleton(part, f"{path}/{key}" if path else str(key), tensors) for key, part in items]

    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return float(value) if np.isfinite(value) else {"float": repr(float(value))}
        case Tensor():
            return {"tensor": _add(tensors, path, value)}
        case np.ndarray():
            return {"array": _add(tensors, path, torch.from_numpy(value.copy()))}
        case list():
            return children(list(enumerate(value)))
        case tuple():
            return {"tuple": children(list(enumerate(value)))}
        case Mapping():
            if not all(isinstance(key, str | int) and not isinstance(key, bool) for key in value):
                raise TypeError(f"keys at {path or 'the top'} must be str or int")
            return {"dict": [list(pair) for pair in zip(value, children(list(value.items())), strict=True)]}
    raise TypeError(f"{type(value).__name__} at {path or 'the top'} cannot be stored in a checkpoint")


def _add(tensors: dict[str, Tensor], path: str, value: Tensor) -> str:
    name = path or "tensor"
    while name in tensors:  # the keys 1 and "1", or one with a slash in it
        name += "'"
    tensors[name] = value
    return name


def _detached(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU: safetensors refuses tensors that share memory or have gaps."""
    return {
        name: tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }


def _json_bytes(value: dict[str, Any]) -> bytes:
    _require_string_keys(value)
    return json.dumps(value, indent=1).encode()


def _require_string_keys(value: Any) -> None:
    if isinstance(value, dict):
        odd = [key for key in value if not isinstance(key, str)]
        if odd:
            raise ValueError(f"JSON would turn the key {odd[0]!r} into a string: use flatten_tensors")
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            _require_string_keys(part)


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _flush_folder(path: Path) -> None:
    if os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _put_in_place(aside: Path, final: Path) -> None:
    """Rename, in two moves where a checkpoint of the same step exists: at every moment one of the two is readable."""
    if final.exists():
        replaced = final.with_name(final.name + ".replaced")
        shutil.rmtree(replaced, ignore_errors=True)
        final.rename(replaced)
    aside.rename(final)
    _flush_folder(final.parent)


def _discard_unfinished(directory: Path) -> None:
    for leftover in directory.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover)


def _remove_old(directory: Path, step: int, keep: int) -> None:
    paths = list_checkpoints(directory)
    kept = [path for path in paths if _order(path)[0] <= step and not path.name.endswith(".replaced")]
    kept = kept[:keep] if keep else kept
    for path in paths:
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def _order(path: Path) -> tuple[int, bool]:
    match = _COMPLETE.fullmatch(path.name)
    assert match
    return int(match[1]), match[2] is None


def _read_whole(path: Path, damaged: tuple[str, ...]) -> Checkpoint:
    if not _COMPLETE.fullmatch(path.name):
        raise ValueError("its name is not of the form update-000000000")
    manifest = _parse(MANIFEST, (path / MANIFEST).read_bytes(), json.loads)
    step = _order(path)[0]
    if not isinstance(manifest, dict) or manifest.get("step") != step or manifest.get("schema") != SCHEMA_VERSION:
        raise ValueError(f"{MANIFEST} does not fit")
    contents = {}
    for name in (TENSORS, STATE):
        contents[name] = (path / name).read_bytes()
        if hashlib.sha256(contents[name]).hexdigest() != manifest.get("sha256", {}).get(name):
            raise ValueError(f"{name} does not match its checksum")
    tensors = _parse(TENSORS, contents[TENSORS], safetensors.torch.load)
    state = _parse(STATE, contents[STATE], json.loads)
    if not isinstance(state, dict):
        raise ValueError(f"{STATE} holds no JSON object")
    return Checkpoint(tensors=tensors, state=state, step=step, path=path, skipped_corrupted=damaged)


def _parse(name: str, content: bytes, parser: Callable[[bytes], Any]) -> Any:
    try:
        return parser(content)
    except Exception as problem:
        raise ValueError(f"{name} cannot be read: {problem}") from problem
