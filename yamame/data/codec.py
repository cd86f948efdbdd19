"""A trajectory as bytes and back: zstd-compressed safetensors behind a header with magic, schema version and checksum.

    magic 4 | schema version 2 | crc32 4 | payload length 8 | payload

The checksum covers everything behind the magic but itself. Numbers are little-endian. Nothing is ever unpickled.

    version 1    payload = all arrays
    version 2    payload = length of what comes next 8 | all other arrays | frames of pictures (see `packed_rows`)
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
MIN_BYTES = 1 << 18
"""Leaves smaller than that are decompressed as a whole: it takes less than a tenth of a millisecond."""


def should_compress(leaf: Shaped[np.ndarray, "slots ..."]) -> bool:
    """Whether a leaf is worth cutting into chunks: a picture or more a step, over many steps.

    Of bytes alone, since any byte is one that a picture may have, so that what nobody reads need not be checked.
    """
    pictures = leaf.dtype == np.uint8 and leaf.ndim >= 3
    return pictures and leaf.nbytes >= MIN_BYTES and len(leaf) > 2 * CHUNK_FRAMES


def compress_chunks(leaf: UInt8[np.ndarray, "slots ..."], *, compression_level: int) -> Iterator[bytes]:
    """The chunks of a leaf, each compressed by itself."""
    compressor = zstandard.ZstdCompressor(level=compression_level)
    for begin in range(0, len(leaf), CHUNK_FRAMES):
        yield compressor.compress(np.ascontiguousarray(leaf[begin : begin + CHUNK_FRAMES]).tobytes())


@dataclass(frozen=True, kw_only=True)
class CompressedFrames:
    """A leaf as its frames; implements `LazyArray`."""

    shape: tuple[int, ...]
    frames: Sequence[bytes]
    dtype: np.dtype = np.dtype(np.uint8)

    def __post_init__(self) -> None:
        if len(self.frames) != -(-self.shape[0] // CHUNK_FRAMES):
            raise ValueError(f"{len(self.frames)} frames for {self.shape[0]} rows")
        for index, frame in enumerate(self.frames):
            rows = min(CHUNK_FRAMES, self.shape[0] - index * CHUNK_FRAMES)
            if zstandard.frame_content_size(frame) != rows * self._row_bytes:
                raise ValueError(f"frame {index} does not hold {rows} rows")

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(map(len, self.frames))

    def read(self, begin: int, end: int) -> UInt8[np.ndarray, "rows ..."]:
        """Rows `begin` to `end` (exclusive); read-only."""
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
MAX_BYTES = 4 << 30
"""A record of more, decompressed, is none of ours: a few hostile bytes can announce any number."""

_HEADER = struct.Struct("<4sHIQ")
_CHECKED = struct.Struct("<HQ")
_LENGTH = struct.Struct("<Q")
_LEAF = "observation/"
_TRANSITIONS = ("reward", "action", "terminated", "truncated", "episode_start")
_OF_GOALS = ("instruction", "achieved_step", "achieved_goal")
_SCALARS = {"task": str, "horizon": int, "policy_version": int, "noise_scale": float}
_RULES = {"tolerance": float, "hide_future_goals": bool}
_NO_TRAJECTORY = (
    *(zstandard.ZstdError, SafetensorError, struct.error),
    *(ValueError, KeyError, TypeError, OverflowError, RecursionError),
)


class CorruptedRecordError(Exception):
    """Bytes that should be a stored trajectory are not one, or not one of a version that we can read."""


def encode(trajectory: Trajectory, *, compression_level: int = 1) -> bytes:
    """The record of a trajectory, from which `decode` makes an equal one: every dtype, shape, None and leaf order.

    Long ones of pictures become version 2, of which windows are read without decompressing the rest; others version 1.
    """
    pictures = {name: leaf for name, leaf in trajectory.observation.items() if should_compress(leaf)}
    frames = {name: list(compress_chunks(leaf, compression_level=compression_level)) for name, leaf in pictures.items()}
    arrays = {
        name: np.ascontiguousarray(array)
        for name, array in named_arrays(trajectory).items()
        if name.removeprefix(_LEAF) not in pictures
    }
    facts = _facts_of(trajectory)
    if pictures:
        facts["packed"] = {
            name: {"shape": leaf.shape, "frames": [len(frame) for frame in frames[name]]}
            for name, leaf in pictures.items()
        }
    raw = save_safetensors(arrays, metadata={"trajectory": json.dumps(facts)})
    payload = zstandard.ZstdCompressor(level=compression_level).compress(raw)
    if pictures:
        payload = b"".join([_LENGTH.pack(len(payload)), payload, *itertools.chain(*frames.values())])
    version = 2 if pictures else 1
    return _HEADER.pack(MAGIC, version, _checksum(version, payload), len(payload)) + payload


def decode(data: bytes, *, on_demand: bool = False) -> Trajectory:
    """The trajectory of a record; its arrays are read-only. With `on_demand`, what is packed stays so.

    Raises `CorruptedRecordError` for anything that `encode` (of this schema version or an older one) did not write.
    """
    version, payload = _checked_payload(data)
    try:
        head, frames = _divided(payload) if version == 2 else (payload, b"")
        raw = _decompressed(head)
        arrays = load_safetensors(raw)
        facts = json.loads(_safetensors_metadata(raw)["trajectory"])
        packed = _packed(facts.get("packed", {}), frames)
        _check_size(sum(math.prod(leaf.shape) for leaf in packed.values()))
        if not on_demand:
            arrays |= {_LEAF + name: leaf.read(0, leaf.shape[0]) for name, leaf in packed.items()}
            packed = {}
        return _trajectory_from(arrays, facts, packed)
    except _NO_TRAJECTORY as error:
        raise CorruptedRecordError(f"record has a good checksum but no trajectory inside: {error}") from error


def frozen_copy(trajectory: Trajectory) -> Trajectory:
    """What `decode(encode(trajectory))` gives, without the detour: read-only, sharing no memory with the original."""
    arrays = {name: np.array(array, order="C") for name, array in named_arrays(trajectory).items()}
    return _trajectory_from(arrays, _facts_of(trajectory))


def named_arrays(trajectory: Trajectory) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Every array of a trajectory by a unique name, none of them copied."""
    arrays = {name: getattr(trajectory, name) for name in _TRANSITIONS}
    arrays |= {_LEAF + name: leaf for name, leaf in trajectory.observation.items()}
    if trajectory.success is not None:
        arrays["success"] = trajectory.success
    if trajectory.goals is not None:
        arrays |= {f"goals/{name}": getattr(trajectory.goals, name) for name in _OF_GOALS}
    return arrays


def _facts_of(trajectory: Trajectory) -> dict[str, Any]:
    facts: dict[str, Any] = {name: kind(getattr(trajectory, name)) for name, kind in _SCALARS.items()}
    goals = trajectory.goals
    rules = {} if goals is None else {"goals": {name: kind(getattr(goals, name)) for name, kind in _RULES.items()}}
    return {**facts, **rules, "leaves": list(trajectory.observation)}


def _checked_payload(data: bytes) -> tuple[int, bytes]:
    if data[: len(MAGIC)] != MAGIC:
        raise CorruptedRecordError("record does not begin like a trajectory record (wrong magic)")
    if len(data) < _HEADER.size:
        raise CorruptedRecordError(f"record is truncated: {len(data)} bytes, the header alone has {_HEADER.size}")
    _, version, checksum, length = _HEADER.unpack_from(data)
    if version > SCHEMA_VERSION:
        raise CorruptedRecordError(
            f"record has schema version {version}, this Yamame reads up to {SCHEMA_VERSION}: update it"
        )
    payload = data[_HEADER.size :]
    if len(payload) != length:
        raise CorruptedRecordError(
            f"record is truncated or overlong: {len(payload)} bytes of payload, {length} announced"
        )
    if _checksum(version, payload) != checksum:
        raise CorruptedRecordError("record does not match its checksum")
    return version, payload


def _checksum(version: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(_CHECKED.pack(version, len(payload))))


def _decompressed(frame: bytes) -> bytes:
    _check_size(zstandard.frame_content_size(frame))
    return zstandard.ZstdDecompressor().decompress(frame)


def _check_size(size: int) -> None:
    if not 0 <= size <= MAX_BYTES:
        raise ValueError(f"it would take {size} bytes")


def _safetensors_metadata(raw: bytes) -> dict[str, str]:
    (length,) = _LENGTH.unpack_from(raw)
    return json.loads(raw[_LENGTH.size : _LENGTH.size + length])["__metadata__"]


def _divided(payload: bytes) -> tuple[bytes, bytes]:
    begin = _LENGTH.size
    end = begin + _LENGTH.unpack_from(payload)[0]
    return payload[begin:end], payload[end:]


def _packed(described: dict[str, Any], frames: bytes) -> dict[str, CompressedFrames]:
    packed, at = {}, 0
    for name, leaf in described.items():
        bounds = list(itertools.accumulate(leaf["frames"], initial=at))
        cut = [frames[begin:end] for begin, end in itertools.pairwise(bounds)]
        packed[name], at = CompressedFrames(shape=tuple(leaf["shape"]), frames=cut), bounds[-1]
    return packed


def _trajectory_from(
    arrays: dict[str, np.ndarray], facts: dict[str, Any], packed: Mapping[str, CompressedFrames] = MappingProxyType({})
) -> Trajectory:
    for array in arrays.values():
        array.flags.writeable = False
    goals: dict[str, Any] = {name: arrays[f"goals/{name}"] for name in _OF_GOALS if f"goals/{name}" in arrays}
    transitions: dict[str, Any] = {name: arrays[name] for name in _TRANSITIONS}
    scalars: dict[str, Any] = {name: kind(facts[name]) for name, kind in _SCALARS.items()}
    if goals:
        goals |= {name: kind(facts["goals"][name]) for name, kind in _RULES.items()}
    return Trajectory(
        **transitions,
        observation={name: arrays[_LEAF + name] for name in facts["leaves"] if name not in packed},
        success=arrays.get("success"),
        goals=Goals(**goals) if goals else None,
        lazy_observation=dict(packed),
        **scalars,
    )
