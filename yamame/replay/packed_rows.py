"""Pictures over time that stay compressed: reading some of them decompresses the chunks that they are in."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import zstandard
from jaxtyping import Shaped, UInt8

CHUNK_FRAMES = 64
SMALLEST_BYTES = 1 << 18
"""Leaves smaller than that are decompressed as a whole: it takes less than a tenth of a millisecond."""


def should_compress(leaf: Shaped[np.ndarray, "slots ..."]) -> bool:
    """Whether a leaf is worth cutting into chunks: a picture or more a step, over many steps.

    Of bytes alone, since any byte is one that a picture may have, so that what nobody reads need not be checked.
    """
    pictures = leaf.dtype == np.uint8 and leaf.ndim >= 3
    return pictures and leaf.nbytes >= SMALLEST_BYTES and len(leaf) > 2 * CHUNK_FRAMES


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
    dtype: np.dtype = np.dtype(np.uint8)  # noqa: RUF009

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
