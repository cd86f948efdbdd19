"""`RolloutBuffer`: the last vector steps, until the trials that they belong to are finished."""

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

    def write(self, row: int, values: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> None:
        """Copy values to row `row`, which must be reserved; a column has the dtype of its first value."""
        index = row - self._first_row
        for name, value in values.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = np.zeros((self._capacity, *value.shape), value.dtype)
            column[index] = value

    def read(self, name: str, env: int, begin: int, end: int) -> Shaped[np.ndarray, "rows ..."]:
        """Return a view of rows `begin` to `end` (exclusive) of one environment, valid until the next `reserve`."""
        return self._columns[name][begin - self._first_row : end - self._first_row, env]

    def reserve(self, row: int, needed_from_E: Int64[np.ndarray, "E"]) -> None:
        """Make room for row `row`; rows before the minimum of `needed_from_E` may be dropped."""
        if row - self._first_row < self._capacity:
            return
        oldest = int(needed_from_E.min())
        source = slice(oldest - self._first_row, row - self._first_row)
        num_kept = row - oldest
        grows = num_kept > self._capacity // 2
        if grows:
            self._capacity *= 2
        for name, column in self._columns.items():
            moved = np.zeros((self._capacity, *column.shape[1:]), column.dtype) if grows else column
            moved[:num_kept] = column[source]
            self._columns[name] = moved
        self._first_row = oldest

    def state_dict(self, row: int, needed_from_E: Int64[np.ndarray, "E"]) -> State:
        """Return the rows before `row` that are still needed (see `reserve`)."""
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
