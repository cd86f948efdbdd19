"""Serialization of trajectories: zstd-compressed safetensors behind a header with magic, version and checksum.

    magic 4 | version 2 | crc32 4 | payload length 8 | payload

The checksum covers everything after the magic except itself. Numbers are little-endian. Nothing is ever unpickled.

    version 1    payload = all arrays
    version 2    payload = length of the next part 8 | other arrays | frames of images, compressed in chunks
"""

import itertools
import json
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import zstandard
from jaxtyping import Shaped
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from yamame.data.goals import Goals
from yamame.data.trajectory import CompressedFrames, Trajectory

MAGIC = b"YMTR"
SCHEMA_VERSION = 2
MAX_DECODED_BYTES = 4 << 30
"""Limit that protects the memory from a few hostile bytes that announce any size."""

_HEADER = struct.Struct("<4sHIQ")
_CHECKED = struct.Struct("<HQ")
_LENGTH = struct.Struct("<Q")
_OBSERVATION, _EXTRAS, _GOALS = "observation/", "extras/", "goals/"
_TRANSITION_FIELDS = ("reward", "action", "terminated", "truncated", "episode_start")
SCALARS = {"task": str, "horizon": int, "policy_version": int, "noise_scale": float}
"""Fields of a `Trajectory` that are no arrays -> their types."""
GOAL_ARRAYS = ("instruction", "achieved_step", "achieved_goal")
"""Fields of `Goals` that are arrays."""
GOAL_SCALARS = {"tolerance": float, "hide_future_goals": bool}
"""Other fields of `Goals` -> their types."""
_DECODE_ERRORS = (
    *(zstandard.ZstdError, SafetensorError, struct.error),
    *(ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError),
)


class CorruptedRecordError(Exception):
    """A stored record cannot be decoded, or is not a valid trajectory."""


def encode(trajectory: Trajectory, *, compression_level: int = 1) -> bytes:
    """Serialize a trajectory. `decode` restores every dtype, shape, None and the order of leaves, lazy ones last.

    Version 2 if images are compressed in chunks (see `CompressedFrames.suits`), so that a window is read without
    decompressing the rest; otherwise version 1.
    """
    ready = {name: leaf for name, leaf in trajectory.lazy_observation.items() if leaf.dtype == np.uint8}
    others = {name: leaf for name, leaf in trajectory.lazy_observation.items() if name not in ready}
    trajectory = replace(trajectory, lazy_observation=others).decompressed()
    images = ready | {
        name: CompressedFrames.compress(leaf, compression_level=compression_level)
        for name, leaf in trajectory.observation.items()
        if CompressedFrames.suits(leaf)
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in named_arrays(trajectory).items()}
    metadata = _metadata(trajectory)
    metadata["leaves"] += list(ready)
    for name, image in images.items():
        arrays.pop(_OBSERVATION + name, None)
        metadata.setdefault("packed", {})[name] = {"shape": image.shape, "frames": list(map(len, image.chunks))}
    raw = save_safetensors(arrays, metadata={"trajectory": json.dumps(metadata)})
    payload = zstandard.ZstdCompressor(level=compression_level).compress(raw)
    if images:
        chunks = itertools.chain.from_iterable(image.chunks for image in images.values())
        payload = b"".join([_LENGTH.pack(len(payload)), payload, *chunks])
    version = 2 if images else 1
    return _HEADER.pack(MAGIC, version, _checksum(version, payload), len(payload)) + payload


def decode(data: bytes, *, lazy: bool = False, max_bytes: int = MAX_DECODED_BYTES) -> Trajectory:
    """Deserialize a trajectory with read-only arrays. If `lazy`, chunks of images stay compressed.

    Raises:
        CorruptedRecordError: If `encode` did not write `data`, or it announces more than `max_bytes`.
    """
    version, payload = _checked_payload(data)
    try:
        chunks = b""
        if version == 2:
            head_end = _LENGTH.size + _LENGTH.unpack_from(payload)[0]
            payload, chunks = payload[_LENGTH.size : head_end], payload[head_end:]
        _check_size(zstandard.frame_content_size(payload), max_bytes)
        raw = zstandard.ZstdDecompressor().decompress(payload)
        arrays = load_safetensors(raw)
        header_bytes = _LENGTH.unpack_from(raw)[0]
        header = json.loads(raw[_LENGTH.size : _LENGTH.size + header_bytes])
        metadata = json.loads(header["__metadata__"]["trajectory"])
        images = _compressed_frames(metadata.get("packed", {}), chunks)
        _check_size(sum(math.prod(leaf.shape) for leaf in images.values()), max_bytes)
        if not lazy:
            arrays |= {_OBSERVATION + name: leaf.read(0, leaf.shape[0]) for name, leaf in images.items()}
            images = {}
        return _make_trajectory(arrays, metadata, images)
    except _DECODE_ERRORS as error:
        raise CorruptedRecordError(f"record has a valid checksum but holds no trajectory: {error}") from error


def frozen_copy(trajectory: Trajectory) -> Trajectory:
    """Return what `decode(encode(trajectory))` would: a read-only copy that shares no memory with the original."""
    arrays = {name: np.array(array, order="C") for name, array in named_arrays(trajectory).items()}
    return _make_trajectory(arrays, _metadata(trajectory), trajectory.lazy_observation)


def named_arrays(trajectory: Trajectory) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Return every array of a trajectory by a unique name, without copies."""
    arrays = {name: getattr(trajectory, name) for name in _TRANSITION_FIELDS}
    arrays |= {_OBSERVATION + name: leaf for name, leaf in trajectory.observation.items()}
    arrays |= {_EXTRAS + name: array for name, array in trajectory.extras.items()}
    if trajectory.success is not None:
        arrays["success"] = trajectory.success
    if trajectory.goals is not None:
        arrays |= {_GOALS + name: getattr(trajectory.goals, name) for name in GOAL_ARRAYS}
    return arrays


def _metadata(trajectory: Trajectory) -> dict[str, Any]:
    metadata: dict[str, Any] = {name: kind(getattr(trajectory, name)) for name, kind in SCALARS.items()}
    goals = trajectory.goals
    if goals is not None:
        metadata["goals"] = {name: kind(getattr(goals, name)) for name, kind in GOAL_SCALARS.items()}
    metadata["leaves"] = list(trajectory.observation)
    if trajectory.extras:
        metadata["extras"] = list(trajectory.extras)
    return metadata


def _checked_payload(data: bytes) -> tuple[int, bytes]:
    if data[: len(MAGIC)] != MAGIC:
        raise CorruptedRecordError("record is no trajectory record (wrong magic)")
    if len(data) < _HEADER.size:
        raise CorruptedRecordError(f"record is truncated: {len(data)} bytes, the header alone has {_HEADER.size}")
    _, version, checksum, length = _HEADER.unpack_from(data)
    if version > SCHEMA_VERSION:
        raise CorruptedRecordError(f"record has version {version}, expected at most {SCHEMA_VERSION}: update Yamame")
    payload = data[_HEADER.size :]
    if len(payload) != length:
        raise CorruptedRecordError(f"record is truncated or overlong: {len(payload)} bytes of payload, not {length}")
    if _checksum(version, payload) != checksum:
        raise CorruptedRecordError("record does not match its checksum")
    return version, payload


def _checksum(version: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(_CHECKED.pack(version, len(payload))))


def _check_size(size: int, max_bytes: int) -> None:
    if not 0 <= size <= max_bytes:
        raise ValueError(f"it would take {size} bytes, expected at most {max_bytes}")


def _compressed_frames(described: dict[str, Any], data: bytes) -> dict[str, CompressedFrames]:
    images, offset = {}, 0
    for name, leaf in described.items():
        bounds = list(itertools.accumulate(leaf["frames"], initial=offset))
        chunks = [data[start:end] for start, end in itertools.pairwise(bounds)]
        images[name], offset = CompressedFrames(shape=tuple(leaf["shape"]), chunks=chunks), bounds[-1]
    return images


def _make_trajectory(
    arrays: dict[str, np.ndarray], metadata: dict[str, Any], images: Mapping[str, CompressedFrames]
) -> Trajectory:
    for array in arrays.values():
        array.flags.writeable = False
    goals: dict[str, Any] = {name: arrays[_GOALS + name] for name in GOAL_ARRAYS if _GOALS + name in arrays}
    transitions: dict[str, Any] = {name: arrays[name] for name in _TRANSITION_FIELDS}
    scalars: dict[str, Any] = {name: kind(metadata[name]) for name, kind in SCALARS.items()}
    if goals:
        goals |= {name: kind(metadata["goals"][name]) for name, kind in GOAL_SCALARS.items()}
    return Trajectory(
        **transitions,
        observation={name: arrays[_OBSERVATION + name] for name in metadata["leaves"] if name not in images},
        success=arrays.get("success"),
        goals=Goals(**goals) if goals else None,
        extras={name: arrays[_EXTRAS + name] for name in metadata.get("extras", ())},
        lazy_observation=images,
        **scalars,
    )
