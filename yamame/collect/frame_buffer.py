"""`FrameBuffer`: the images of the active trials, compressed as they come."""

import numpy as np
from jaxtyping import Bool, Shaped

from yamame.data.trajectory import CHUNK_TIMESTEPS, CompressedFrames
from yamame.types import State

_MIN_NUMBERS = 2048
"""Smaller observations take little memory even in long trials."""


class FrameBuffer:
    """Rows of one leaf in each of E active trials; every `CHUNK_TIMESTEPS` rows of a trial become a compressed chunk.

    A row is written before it is known whether it belongs to the trial: `keep` says so, and otherwise the next row
    replaces it.
    """

    def __init__(self) -> None:
        self._rows: Shaped[np.ndarray, "E chunk ..."] | None = None
        """Rows that are not compressed yet; None before the first `write`."""
        self._chunks_E: list[list[bytes]] = []
        self._count_E = np.zeros(0, np.int64)
        """Number of rows of `_rows` that are kept, less than `CHUNK_TIMESTEPS`."""

    @staticmethod
    def suits(leaf: Shaped[np.ndarray, "E ..."]) -> bool:
        """Return whether a leaf is worth compressing: arrays of two or more dimensions with many numbers."""
        return leaf.ndim >= 3 and leaf[0].size >= _MIN_NUMBERS

    def write(self, values: Shaped[np.ndarray, "E ..."]) -> None:
        """Copy the next row of every trial."""
        if self._rows is None:
            self._rows = np.zeros((len(values), CHUNK_TIMESTEPS, *values.shape[1:]), values.dtype)
            self._chunks_E = [[] for _ in values]
            self._count_E = np.zeros(len(values), np.int64)
        self._rows[np.arange(len(values)), self._count_E] = values

    def keep(self, kept_E: Bool[np.ndarray, "E"]) -> None:
        """Append the rows that were written last to their trials, where `kept_E` is True."""
        assert self._rows is not None
        self._count_E += kept_E
        for env in np.flatnonzero(self._count_E == CHUNK_TIMESTEPS).tolist():
            self._chunks_E[env].append(CompressedFrames.compress_chunk(self._rows[env]))
            self._count_E[env] = 0

    def read(
        self, env: int, last: Shaped[np.ndarray, "..."] | None
    ) -> Shaped[np.ndarray, "rows ..."] | CompressedFrames:
        """Return the rows of a trial, which share no memory with this buffer: compressed if there are many.

        Args:
            env: Index of the trial.
            last: A further row at the end; None: the one that was written last, which is not kept.
        """
        assert self._rows is not None
        end = self._count_E[env] + 1
        rows = self._rows[env, :end].copy()
        if last is not None:
            rows[-1] = last
        chunks = self._chunks_E[env]
        if not chunks:
            return rows
        return CompressedFrames(
            shape=(len(chunks) * CHUNK_TIMESTEPS + len(rows), *rows.shape[1:]),
            chunks=[*chunks, CompressedFrames.compress_chunk(rows)],
            dtype=rows.dtype,
        )

    def clear(self, ended_E: Bool[np.ndarray, "E"]) -> None:
        """Start another trial where one ended."""
        self._count_E[ended_E] = 0
        for env in np.flatnonzero(ended_E).tolist():
            self._chunks_E[env] = []

    def state_dict(self) -> State:
        """Return rows and chunks."""
        if self._rows is None:
            return {"rows": None}
        chunks = [chunk for of_env in self._chunks_E for chunk in of_env]
        return {
            "rows": self._rows[:, : self._count_E.max(initial=0)].copy(),
            "count": self._count_E.copy(),
            "sizes": [list(map(len, of_env)) for of_env in self._chunks_E],
            "chunks": np.frombuffer(b"".join(chunks), np.uint8).copy(),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self.__init__()  # type: ignore[misc]
        if state["rows"] is None:
            return
        rows = state["rows"]
        self._rows = np.zeros((len(rows), CHUNK_TIMESTEPS, *rows.shape[2:]), rows.dtype)
        self._rows[:, : rows.shape[1]] = rows
        self._count_E = state["count"].copy()
        data, start = state["chunks"].tobytes(), 0
        for sizes in state["sizes"]:
            self._chunks_E.append([])
            for size in sizes:
                self._chunks_E[-1].append(data[start : start + size])
                start += size
