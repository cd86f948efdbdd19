"""`Tape`: what the last vector steps saw, until the trials that they belong to are finished."""

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Int64, Shaped

from yamame.types import State


class RolloutBuffer:
    """Named columns `[capacity, E, ...]`, written a whole row a vector step and read back an environment at a time.

    Rows are numbered from 0 for ever. Only those that some trial in flight still needs are kept; the capacity
    doubles when they are more than half of it, so that a row costs a plain copy, however long trials are.
    """

    def __init__(self, capacity: int = 64) -> None:
        self._capacity = capacity
        self._first_row = 0
        self._columns: dict[str, np.ndarray] = {}

    @property
    def columns(self) -> Iterable[str]:
        """The columns written so far."""
        return self._columns.keys()

    def write(self, row: int, values: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> None:
        """Set row `row`, for which `reserve` has made room. Values are copied, in the type that came first."""
        index = row - self._first_row
        for name, value in values.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = np.zeros((self._capacity, *value.shape), value.dtype)
            column[index] = value

    def read(self, name: str, env: int, begin: int, end: int) -> Shaped[np.ndarray, "rows ..."]:
        """A view of rows `begin` to `end` (exclusive) of one environment; the next `reserve` may spoil it."""
        return self._columns[name][begin - self._first_row : end - self._first_row, env]

    def reserve(self, row: int, needed_from_E: Int64[np.ndarray, "E"]) -> None:
        """Make room for row `row`; rows before the smallest of `needed_from_E` may be forgotten."""
        if row - self._first_row < self._capacity:
            return
        oldest = int(needed_from_E.min())
        source = slice(oldest - self._first_row, row - self._first_row)
        kept = row - oldest
        grows = kept > self._capacity // 2
        if grows:
            self._capacity *= 2
        for name, column in self._columns.items():
            moved = np.zeros((self._capacity, *column.shape[1:]), column.dtype) if grows else column
            moved[:kept] = column[source]
            self._columns[name] = moved
        self._first_row = oldest

    def state_dict(self, row: int, needed_from_E: Int64[np.ndarray, "E"]) -> State:
        """What was written before row `row` and is still needed (see `reserve`)."""
        oldest = int(needed_from_E.min())
        kept = slice(oldest - self._first_row, row - self._first_row)
        return {"first_row": oldest, "columns": {name: column[kept].copy() for name, column in self._columns.items()}}

    def load_state_dict(self, state: State) -> None:
        """Go on where `state_dict` was taken."""
        self._first_row = state["first_row"]
        self._columns = {}
        for name, rows in state["columns"].items():
            while self._capacity <= len(rows):
                self._capacity *= 2
            self._columns[name] = np.zeros((self._capacity, *rows.shape[1:]), rows.dtype)
            self._columns[name][: len(rows)] = rows
