"""`Trajectory`: one trial of one environment, as it is stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import zstandard
from jaxtyping import Bool, Float32, Shaped, UInt8

from yamame.data.goals import Goals

Observation = Mapping[str, Shaped[np.ndarray, "..."]]
"""Leaf name -> array. A bare observation is one leaf called `observation`; nested ones are joined by `/`."""


CHUNK_TIMESTEPS = 64
"""Timesteps whose images are compressed together, as a chunk."""
_BYTE = np.dtype(np.uint8)
_MIN_COMPRESSED_BYTES = 1 << 18
"""Decompressing a smaller leaf as a whole takes less than a tenth of a millisecond."""


@dataclass(frozen=True, kw_only=True)
class CompressedFrames:
    """An array in chunks of `CHUNK_TIMESTEPS` rows, decompressed on access. Stored ones are of uint8.

    Raises `ValueError` if `chunks` do not hold an array of `shape`.
    """

    shape: tuple[int, ...]
    """Shape of the whole array; a row is the image of a timestep."""
    chunks: Sequence[bytes]
    """Each one compressed by zstd."""
    dtype: np.dtype = _BYTE

    def __post_init__(self) -> None:
        if len(self.chunks) != -(-self.shape[0] // CHUNK_TIMESTEPS):
            raise ValueError(f"{len(self.chunks)} chunks for {self.shape[0]} rows")
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        for index, chunk in enumerate(self.chunks):
            rows = min(CHUNK_TIMESTEPS, self.shape[0] - index * CHUNK_TIMESTEPS)
            if zstandard.frame_content_size(chunk) != rows * row_bytes:
                raise ValueError(f"chunk {index} does not hold {rows} rows")

    @staticmethod
    def suits(leaf: Shaped[np.ndarray, "rows ..."]) -> bool:
        """Whether a leaf is stored in this way: images over many steps.

        Only uint8: any byte is a valid pixel, so that chunks that are never read need no validation.
        """
        is_image = leaf.dtype == np.uint8 and leaf.ndim >= 3
        return is_image and leaf.nbytes >= _MIN_COMPRESSED_BYTES and len(leaf) > 2 * CHUNK_TIMESTEPS

    @staticmethod
    def compress(leaf: UInt8[np.ndarray, "rows ..."], *, compression_level: int) -> "CompressedFrames":
        """Compress each chunk on its own."""
        parts = (leaf[start : start + CHUNK_TIMESTEPS] for start in range(0, len(leaf), CHUNK_TIMESTEPS))
        chunks = [CompressedFrames.compress_chunk(part, compression_level=compression_level) for part in parts]
        return CompressedFrames(shape=leaf.shape, chunks=chunks)

    @staticmethod
    def compress_chunk(rows: Shaped[np.ndarray, "rows ..."], *, compression_level: int = 1) -> bytes:
        """Return the bytes of a chunk."""
        return zstandard.ZstdCompressor(level=compression_level).compress(rows.tobytes())

    @property
    def nbytes(self) -> int:
        """Compressed size."""
        return sum(map(len, self.chunks))

    def read(self, start: int, end: int) -> Shaped[np.ndarray, "rows ..."]:
        """Return rows `start` to `end` (exclusive), read-only; decompresses only their chunks."""
        first = start // CHUNK_TIMESTEPS
        decompressor = zstandard.ZstdDecompressor()
        parts = [decompressor.decompress(chunk) for chunk in self.chunks[first : -(-end // CHUNK_TIMESTEPS)]]
        raw = parts[0] if len(parts) == 1 else b"".join(parts)
        rows = np.frombuffer(raw, self.dtype).reshape(-1, *self.shape[1:])
        return rows[start - first * CHUNK_TIMESTEPS : end - first * CHUNK_TIMESTEPS]


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """T transitions of one trial and the T + 1 observations around them, time first.

    Transition t takes `observation[t]` and `action[t]` to `reward[t]`, `terminated[t]`, `truncated[t]` and
    `observation[t + 1]`. The previous action and reward, the reset flag and the time that the network sees are derived
    when a batch is packed.

    `terminated` and `truncated` refer to the *trial*. The end of an attempt within it (a soft reset) appears only as
    `episode_start[t + 1]`, and `observation[t + 1]` is then the first of the next attempt. Actions are integers `[T]`
    (one choice) or `[T, C]` (C choices), or float32 `[T, A]` in [-1, 1].
    """

    reward: Float32[np.ndarray, "T"]
    action: Shaped[np.ndarray, "T ..."]
    terminated: Bool[np.ndarray, "T"]
    truncated: Bool[np.ndarray, "T"]
    episode_start: Bool[np.ndarray, "T+1"]
    observation: Mapping[str, Shaped[np.ndarray, "T+1 ..."]]
    success: Bool[np.ndarray, "T"] | None = None
    """`info["success"]` of every transition; None if the task has no success signal."""
    goals: Goals | None = None
    """None if the task has no instructions."""
    task: str = ""
    horizon: int
    """Maximum number of transitions of a trial of this task: the unit of the time input."""
    policy_version: int = 0
    """Number of updates of the weights that chose the first action."""
    noise_scale: float = 0.0
    """Scale of the exploration noise of this trial (the multiplier u of the schedule; 0: none)."""
    extras: Mapping[str, Shaped[np.ndarray, "T ..."]] = field(default_factory=dict)
    """What the policy records of its own actions for learning (log-probability, value, ...), by name."""

    lazy_observation: Mapping[str, CompressedFrames] = field(default_factory=dict)
    """Further leaves of the observation, images that are decompressed when they are read. `observation` lacks them."""

    def __len__(self) -> int:
        return len(self.reward)

    def read_observation(self, name: str, start: int, end: int) -> Shaped[np.ndarray, "rows ..."]:
        """Return observations `start` to `end` (exclusive) of a leaf, lazy or not."""
        leaf = self.lazy_observation.get(name)
        return self.observation[name][start:end] if leaf is None else leaf.read(start, end)

    def decompressed(self) -> "Trajectory":
        """Return the trajectory without lazy leaves."""
        leaves = {name: leaf.read(0, leaf.shape[0]) for name, leaf in self.lazy_observation.items()}
        return replace(self, observation={**self.observation, **leaves}, lazy_observation={})

    def return_per_attempt(self) -> Float32[np.ndarray, "attempts"]:
        """Sum of rewards of each attempt; the last one may be unfinished."""
        starts = np.flatnonzero(self.episode_start[:-1])
        return np.add.reduceat(self.reward, starts).astype(np.float32)

    def success_per_attempt(self) -> Bool[np.ndarray, "attempts"] | None:
        """Whether any step of each attempt signaled success; None if the task has no success signal."""
        if self.success is None:
            return None
        return np.logical_or.reduceat(self.success, np.flatnonzero(self.episode_start[:-1]))
