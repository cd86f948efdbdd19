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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import zstandard
from jaxtyping import Shaped, UInt8
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from yamame.data.goals import Goals
from yamame.data.trajectory import Trajectory

CHUNK_FRAMES = 64
_MIN_CHUNKED_BYTES = 1 << 18
"""Decompressing a smaller leaf as a whole takes less than a tenth of a millisecond."""


def should_compress(leaf: Shaped[np.ndarray, "rows ..."]) -> bool:
    """Whether a leaf is compressed in chunks: images over many steps.

    Only uint8: any byte is a valid pixel, so that chunks that are never read need no validation.
    """
    is_image = leaf.dtype == np.uint8 and leaf.ndim >= 3
    return is_image and leaf.nbytes >= _MIN_CHUNKED_BYTES and len(leaf) > 2 * CHUNK_FRAMES


def compress_chunks(leaf: UInt8[np.ndarray, "rows ..."], *, compression_level: int) -> Iterator[bytes]:
    """Compress chunks of `CHUNK_FRAMES` rows, each on its own."""
    compressor = zstandard.ZstdCompressor(level=compression_level)
    for begin in range(0, len(leaf), CHUNK_FRAMES):
        yield compressor.compress(np.ascontiguousarray(leaf[begin : begin + CHUNK_FRAMES]).tobytes())


@dataclass(frozen=True, kw_only=True)
class CompressedFrames:
    """A `LazyArray` of compressed chunks. Raises `ValueError` if `frames` do not hold an array of `shape`."""

    shape: tuple[int, ...]
    frames: Sequence[bytes]

    def __post_init__(self) -> None:
        if len(self.frames) != -(-self.shape[0] // CHUNK_FRAMES):
            raise ValueError(f"{len(self.frames)} frames for {self.shape[0]} rows")
        for index, frame in enumerate(self.frames):
            rows = min(CHUNK_FRAMES, self.shape[0] - index * CHUNK_FRAMES)
            if zstandard.frame_content_size(frame) != rows * self._row_bytes:
                raise ValueError(f"frame {index} does not hold {rows} rows")

    @property
    def dtype(self) -> np.dtype:
        """Data type of the elements: uint8."""
        return np.dtype(np.uint8)

    @property
    def nbytes(self) -> int:
        """Compressed size."""
        return sum(map(len, self.frames))

    def read(self, begin: int, end: int) -> UInt8[np.ndarray, "rows ..."]:
        """Return rows `begin` to `end` (exclusive), read-only; decompresses only their chunks."""
        first = begin // CHUNK_FRAMES
        decompressor = zstandard.ZstdDecompressor()
        chunks = [decompressor.decompress(frame) for frame in self.frames[first : -(-end // CHUNK_FRAMES)]]
        raw = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        rows = np.frombuffer(raw, np.uint8).reshape(-1, *self.shape[1:])
        return rows[begin - first * CHUNK_FRAMES : end - first * CHUNK_FRAMES]

    @property
    def _row_bytes(self) -> int:
        return int(np.prod(self.shape[1:], dtype=np.int64))


MAGIC = b"YMTR"
SCHEMA_VERSION = 2
_MAX_DECOMPRESSED_BYTES = 4 << 30
"""Limit that protects the memory from a few hostile bytes that announce any size."""

_HEADER = struct.Struct("<4sHIQ")
_CHECKED = struct.Struct("<HQ")
_LENGTH = struct.Struct("<Q")
_OBSERVATION, _EXTRAS, _GOALS = "observation/", "extras/", "goals/"
_TRANSITION_FIELDS = ("reward", "action", "terminated", "truncated", "episode_start")
_GOAL_ARRAYS = ("instruction", "achieved_step", "achieved_goal")
_SCALARS = {"task": str, "horizon": int, "policy_version": int, "noise_scale": float}
_GOAL_SCALARS = {"tolerance": float, "hide_future_goals": bool}
_DECODE_ERRORS = (
    *(zstandard.ZstdError, SafetensorError, struct.error),
    *(ValueError, KeyError, TypeError, OverflowError, RecursionError),
)


class CorruptedRecordError(Exception):
    """A stored record cannot be decoded, or is not a valid trajectory."""


def encode(trajectory: Trajectory, *, compression_level: int = 1) -> bytes:
    """Serialize a trajectory. `decode` restores every dtype, shape, None and the order of leaves.

    Version 2 if images are compressed in chunks (see `should_compress`), so that a window is read without
    decompressing the rest; otherwise version 1.
    """
    images = {name: leaf for name, leaf in trajectory.observation.items() if should_compress(leaf)}
    frames = {name: list(compress_chunks(leaf, compression_level=compression_level)) for name, leaf in images.items()}
    arrays = {
        name: np.ascontiguousarray(array)
        for name, array in named_arrays(trajectory).items()
        if not (name.startswith(_OBSERVATION) and name.removeprefix(_OBSERVATION) in images)
    }
    metadata = _metadata(trajectory)
    if images:
        metadata["packed"] = {
            name: {"shape": leaf.shape, "frames": [len(frame) for frame in frames[name]]}
            for name, leaf in images.items()
        }
    raw = save_safetensors(arrays, metadata={"trajectory": json.dumps(metadata)})
    payload = zstandard.ZstdCompressor(level=compression_level).compress(raw)
    if images:
        payload = b"".join([_LENGTH.pack(len(payload)), payload, *itertools.chain(*frames.values())])
    version = 2 if images else 1
    return _HEADER.pack(MAGIC, version, _checksum(version, payload), len(payload)) + payload


def decode(data: bytes, *, lazy: bool = False) -> Trajectory:
    """Deserialize a trajectory with read-only arrays. If `lazy`, chunks of images stay compressed.

    Raises:
        CorruptedRecordError: If `encode` did not write `data`.
    """
    version, payload = _checked_payload(data)
    try:
        head, frames = _split_payload(payload) if version == 2 else (payload, b"")
        raw = _decompress(head)
        arrays = load_safetensors(raw)
        metadata = json.loads(_safetensors_metadata(raw)["trajectory"])
        images = _compressed_frames(metadata.get("packed", {}), frames)
        _check_size(sum(math.prod(leaf.shape) for leaf in images.values()))
        if not lazy:
            arrays |= {_OBSERVATION + name: leaf.read(0, leaf.shape[0]) for name, leaf in images.items()}
            images = {}
        return _make_trajectory(arrays, metadata, images)
    except _DECODE_ERRORS as error:
        raise CorruptedRecordError(f"record has a valid checksum but holds no trajectory: {error}") from error


def frozen_copy(trajectory: Trajectory) -> Trajectory:
    """Return what `decode(encode(trajectory))` would: a read-only copy that shares no memory with the original."""
    arrays = {name: np.array(array, order="C") for name, array in named_arrays(trajectory).items()}
    return _make_trajectory(arrays, _metadata(trajectory))


def named_arrays(trajectory: Trajectory) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Return every array of a trajectory by a unique name, without copies."""
    arrays = {name: getattr(trajectory, name) for name in _TRANSITION_FIELDS}
    arrays |= {_OBSERVATION + name: leaf for name, leaf in trajectory.observation.items()}
    arrays |= {_EXTRAS + name: array for name, array in trajectory.extras.items()}
    if trajectory.success is not None:
        arrays["success"] = trajectory.success
    if trajectory.goals is not None:
        arrays |= {_GOALS + name: getattr(trajectory.goals, name) for name in _GOAL_ARRAYS}
    return arrays


def _metadata(trajectory: Trajectory) -> dict[str, Any]:
    metadata: dict[str, Any] = {name: kind(getattr(trajectory, name)) for name, kind in _SCALARS.items()}
    goals = trajectory.goals
    if goals is not None:
        metadata["goals"] = {name: kind(getattr(goals, name)) for name, kind in _GOAL_SCALARS.items()}
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


def _decompress(frame: bytes) -> bytes:
    _check_size(zstandard.frame_content_size(frame))
    return zstandard.ZstdDecompressor().decompress(frame)


def _check_size(size: int) -> None:
    if not 0 <= size <= _MAX_DECOMPRESSED_BYTES:
        raise ValueError(f"it would take {size} bytes")


def _safetensors_metadata(raw: bytes) -> dict[str, str]:
    (length,) = _LENGTH.unpack_from(raw)
    return json.loads(raw[_LENGTH.size : _LENGTH.size + length])["__metadata__"]


def _split_payload(payload: bytes) -> tuple[bytes, bytes]:
    begin = _LENGTH.size
    end = begin + _LENGTH.unpack_from(payload)[0]
    return payload[begin:end], payload[end:]


def _compressed_frames(described: dict[str, Any], frames: bytes) -> dict[str, CompressedFrames]:
    images, offset = {}, 0
    for name, leaf in described.items():
        bounds = list(itertools.accumulate(leaf["frames"], initial=offset))
        chunks = [frames[begin:end] for begin, end in itertools.pairwise(bounds)]
        images[name], offset = CompressedFrames(shape=tuple(leaf["shape"]), frames=chunks), bounds[-1]
    return images


def _make_trajectory(
    arrays: dict[str, np.ndarray],
    metadata: dict[str, Any],
    images: Mapping[str, CompressedFrames] = MappingProxyType({}),
) -> Trajectory:
    for array in arrays.values():
        array.flags.writeable = False
    goals: dict[str, Any] = {name: arrays[_GOALS + name] for name in _GOAL_ARRAYS if _GOALS + name in arrays}
    transitions: dict[str, Any] = {name: arrays[name] for name in _TRANSITION_FIELDS}
    scalars: dict[str, Any] = {name: kind(metadata[name]) for name, kind in _SCALARS.items()}
    if goals:
        goals |= {name: kind(metadata["goals"][name]) for name, kind in _GOAL_SCALARS.items()}
    return Trajectory(
        **transitions,
        observation={name: arrays[_OBSERVATION + name] for name in metadata["leaves"] if name not in images},
        success=arrays.get("success"),
        goals=Goals(**goals) if goals else None,
        extras={name: arrays[_EXTRAS + name] for name in metadata.get("extras", ())},
        lazy_observation=dict(images),
        **scalars,
    )
