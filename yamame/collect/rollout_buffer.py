"""`RolloutBuffer`: the rows of vector steps from which trials are cut."""

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Int64, Shaped

from yamame.types import State


class RolloutBuffer:
    """Named columns `[capacity, E, ...]`, written one row per vector step and read per environment.

    Rows are numbered from 0. Only rows of unfinished trials are kept; the capacity doubles when they exceed half of it,
    so that the amortized cost of a row is one copy.
    """

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._first_row = 0
        self._columns: dict[str, np.ndarray] = {}

    @property
    def columns(self) -> Iterable[str]:
        """Names of the columns written so far."""
        return self._columns.keys()

    def write(
        self, row: int, values: Mapping[str, Shaped[np.ndarray, "E ..."]], needed_from_E: Int64[np.ndarray, "E"]
    ) -> None:
        """Copy values to row `row`; a column has the dtype of its first value.

        Rows before the minimum of `needed_from_E` may be dropped.
        """
        if row - self._first_row >= self._capacity:
            self._make_room(row, int(needed_from_E.min()))
        for name, value in values.items():
            if name not in self._columns:
                self._columns[name] = np.zeros((self._capacity, *value.shape), value.dtype)
            self._columns[name][row - self._first_row] = value

    def read(self, name: str, env: int, start: int, end: int) -> Shaped[np.ndarray, "rows ..."]:
        """Return a view of rows `start` to `end` (exclusive) of one environment, valid until the next `write`."""
        return self._columns[name][start - self._first_row : end - self._first_row, env]

    def _make_room(self, row: int, oldest: int) -> None:
        num_kept = row - oldest
        grows = num_kept > self._capacity // 2
        if grows:
            self._capacity *= 2
        for name, column in self._columns.items():
            moved = np.zeros((self._capacity, *column.shape[1:]), column.dtype) if grows else column
            moved[:num_kept] = column[oldest - self._first_row : row - self._first_row]
            self._columns[name] = moved
        self._first_row = oldest

    def state_dict(self, row: int, needed_from_E: Int64[np.ndarray, "E"]) -> State:
        """Return the rows before `row` that are still needed (see `write`)."""
        oldest = int(needed_from_E.min())
        kept = slice(oldest - self._first_row, row - self._first_row)
        return {"first_row": oldest, "columns": {name: column[kept].copy() for name, column in self._columns.items()}}

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        self._first_row = state["first_row"]
        self._columns = {}
        for name, rows in state["columns"].items():
            while self._capacity <= len(rows):
                self._capacity *= 2
            self._columns[name] = np.zeros((self._capacity, *rows.shape[1:]), rows.dtype)
            self._columns[name][: len(rows)] = rows
