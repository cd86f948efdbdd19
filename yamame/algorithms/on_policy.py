"""`NewTrials`: minibatches of the trials of the newest iteration, several times over, for algorithms on policy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Shaped

from yamame.algorithms.base import Replay
from yamame.data.batch import Batch
from yamame.data.codec import CorruptedRecordError
from yamame.data.sampler import StoredWindow
from yamame.data.store import ReplayStore
from yamame.errors import UserError, check_range

Annotations = Mapping[str, Shaped[np.ndarray, "T ..."]]
"""Name -> what an algorithm has computed for every transition of a trial; `Batch.extras` has them."""


@dataclass(frozen=True, kw_only=True)
class PassesConfig:
    """How often, and in which parts, an iteration learns from its trials."""

    epochs: int = 4
    """Passes over the trials of an iteration."""
    minibatch_transitions: int = 256
    """Transitions of a minibatch on average. It consists of whole windows, so that it has more if trials are longer."""

    min_trials: int = 4
    """Trials that an iteration waits for where fewer have ended in it: the advantages of one or two say little."""

    def __post_init__(self) -> None:
        check_range(self, "epochs", "minibatch_transitions", "min_trials", ge=1)


class NewTrials:
    """The trials that were stored since the last iteration of updates, as windows that cover them end to end.

    In every pass each window is in one minibatch. The order depends on the seed, the iteration and the pass alone, and
    not on ids, which a killed run does not use again: the run continues with the next minibatch.

    Args:
        config: Number of passes and size of minibatches.
        context_length: Maximum number of transitions of a window.
        seed: Of the order of the windows.
    """

    def __init__(self, config: PassesConfig, *, context_length: int, seed: int) -> None:
        self.config, self.context_length, self.seed = config, context_length, seed
        self.iterations = 0
        """Iterations whose updates are all made."""
        self.transitions = 0
        """Transitions of their trials."""
        self._first = 0
        """Id from which on trials are new."""
        self._open: list[StoredWindow] = []
        """Windows of the iteration whose updates have begun; empty: none has."""
        self._end = 0
        """Id after the last of its trials."""
        self._updates = 0
        """Updates made of that iteration."""

    @property
    def is_open(self) -> bool:
        """Whether the updates of an iteration have begun and are not all made."""
        return bool(self._open)

    @property
    def windows(self) -> list[StoredWindow]:
        """Windows of the iteration whose updates have begun."""
        return list(self._open)

    def updates_due(self, store: ReplayStore) -> int:
        """Return the number of updates that remain of the present iteration, or that the new trials allow."""
        windows = self._open or self._new_windows(store)
        if not self._open and len({window.trajectory_id for window in windows}) < self.config.min_trials:
            return 0
        return self.config.epochs * self._num_minibatches(windows) - self._updates

    def open(self, store: ReplayStore) -> None:
        """Begin an iteration with the trials that are new now."""
        self._open, self._end, self._updates = self._new_windows(store), store.total_appended, 0

    def batches(self, replay: Replay, count: int, annotations: Mapping[int, Annotations]) -> Iterator[Batch]:
        """Return the next `count` minibatches, with annotations of the trials by their ids."""
        parts = [part for epoch in range(self.config.epochs) for part in self.minibatches(epoch)]
        return replay.sampler.iter_windows(parts[self._updates : self._updates + count], annotations)

    def minibatches(self, epoch: int) -> list[list[StoredWindow]]:
        """Return the windows of each minibatch of a pass: in random order, each to the smallest minibatch so far."""
        parts: list[list[StoredWindow]] = [[] for _ in range(self._num_minibatches(self._open))]
        sizes = [0] * len(parts)
        order = np.random.default_rng([self.seed, self.iterations, epoch]).permutation(len(self._open))
        for index in order.tolist():
            smallest = sizes.index(min(sizes))
            parts[smallest].append(self._open[index])
            sizes[smallest] += self._open[index].length
        return parts

    def count_update(self) -> bool:
        """Count an update; return whether it was the last one of the iteration."""
        self._updates += 1
        if self._updates < self.config.epochs * self._num_minibatches(self._open):
            return False
        self.transitions += sum(window.length for window in self._open)
        self._first, self._open, self._updates = self._end, [], 0
        self.iterations += 1
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the new trials and the progress through them, as JSON values."""
        return {
            "first": self._first,
            "end": self._end,
            "open": [list(window) for window in self._open],
            "updates": self._updates,
            "iterations": self.iterations,
            "transitions": self.transitions,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self._first, self._end = state["first"], state["end"]
        self._open = [StoredWindow(*window) for window in state["open"]]
        self._updates = state["updates"]
        self.iterations, self.transitions = state["iterations"], state["transitions"]

    def _new_windows(self, store: ReplayStore) -> list[StoredWindow]:
        if store.has_evicted(self._first):
            raise UserError(
                "the replay is too small for the trials of an iteration, of which some were evicted before updates: "
                "train a new run with a larger replay.capacity_trajectories or replay.capacity_bytes"
            )
        windows = []
        for trial in (each for each in store.ids() if each >= self._first):
            try:
                length = len(store.get(trial, lazy=True))
            except (CorruptedRecordError, KeyError):
                continue
            starts = range(0, length, self.context_length)
            windows += [StoredWindow(trial, start, min(self.context_length, length - start)) for start in starts]
        return windows

    def _num_minibatches(self, windows: list[StoredWindow]) -> int:
        transitions = sum(window.length for window in windows)
        return min(len(windows), max(1, round(transitions / self.config.minibatch_transitions)))
