"""`Sampler`: uniform random windows of stored trajectories as batches, prepared while the learner works."""

import copy
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import numpy as np

from yamame.algorithms.amago.goal_statistics import GoalStatistics
from yamame.algorithms.amago.relabeling import RelabelConfig
from yamame.data.batch import Batch
from yamame.data.codec import CorruptedRecordError
from yamame.data.packing import Window, pack
from yamame.data.trajectory import Trajectory
from yamame.envs.base import ReplayStore
from yamame.errors import UserError, check_range

_Item = TypeVar("_Item")


def prefetch(source: Iterator[_Item], *, depth: int) -> Generator[_Item, None, None]:
    """The items of `source` in order, up to `depth` of them ready before they are asked for.

    The thread begins with the first item asked for. What `source` raises is raised here, after the items before it.
    Closing the generator, or dropping it, stops the thread before it makes another item and waits for that.
    """
    ready: SimpleQueue[_Made[_Item] | _End] = SimpleQueue()
    free_places = threading.Semaphore(depth)
    stopping = threading.Event()

    def produce() -> None:
        try:
            while free_places.acquire() and not stopping.is_set():
                ready.put(_Made(next(source)))
        except StopIteration:
            ready.put(_End(None))
        except BaseException as error:
            ready.put(_End(error))

    thread = threading.Thread(target=produce, name="prefetch", daemon=True)
    thread.start()
    try:
        while isinstance(made := ready.get(), _Made):
            free_places.release()
            yield made.item
        if made.error is not None:
            raise made.error
    finally:
        stopping.set()
        free_places.release()
        thread.join()


@dataclass(frozen=True)
class _Made(Generic[_Item]):
    item: _Item


@dataclass(frozen=True)
class _End:
    error: BaseException | None


RelabelFn = Callable[[Trajectory, GoalStatistics, np.random.Generator], tuple[Trajectory, GoalStatistics]]
"""Another account of a trajectory (goals, rewards, possibly shorter), made anew every time it is sampled; and the
statistics after it."""
BatchTransform = Callable[[Batch], Batch]
"""What is done to a finished batch in the thread that made it: pinning its memory, say."""

_MAX_REDRAWS = 1000


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """What is kept, and how batches are drawn from it."""

    capacity_trajectories: int = 20_000
    """Trajectories kept for training; the oldest beyond that are dropped."""
    capacity_bytes: int = 0
    """Bytes of trajectories, as they are stored, that are kept; the oldest beyond that are dropped. 0: no limit."""
    batch_size: int = 24
    """Windows in a batch."""
    unrewarded_keep_prob: float = 1.0
    """Chance that a drawn window without any reward is kept; below 1 another one is drawn instead, so that rewards
    which are rare in what was collected are less rare in what is learned from. Differs from the paper: it keeps all."""
    relabel: RelabelConfig = field(default_factory=RelabelConfig)
    """What becomes of trajectories that did not do what they were asked; others stay as they are."""
    cache_bytes: int = 1 << 30
    """Memory for decoded trajectories; those beyond are read from disk when sampled."""
    max_disk_bytes: int = 1 << 40
    """Largest size of the database file; at it the oldest are deleted, though fewer are kept than the capacity."""
    compression_level: int = 1
    """zstd level of stored trajectories (1 is the fastest that is worth it)."""
    pad_tokens_to_multiple_of: int = 64
    """The tokens of a batch are filled up to a multiple of this, so that sizes repeat."""
    pad_seqlen_to_multiple_of: int = 1
    """The longest window of a batch counts as a multiple of this, so that sizes repeat."""
    prefetch_batches: int = 4
    """Batches made ahead by a background thread; 0 makes each when it is asked for, without a thread."""

    def __post_init__(self) -> None:
        check_range(
            self, "capacity_trajectories", "batch_size", "pad_tokens_to_multiple_of", "pad_seqlen_to_multiple_of", ge=1
        )
        check_range(self, "unrewarded_keep_prob", gt=0, le=1)
        check_range(self, "capacity_bytes", "cache_bytes", "prefetch_batches", ge=0)
        check_range(self, "max_disk_bytes", ge=1 << 20)
        check_range(self, "compression_level", ge=1, le=22)


@dataclass(frozen=True)
class _Share:
    """Windows of each batch that come from one store, and what it held when the batches were asked for."""

    store: ReplayStore
    ids: Sequence[int]
    windows: int


class Sampler:
    """Batches of `config.batch_size` windows; implements `BatchSource`.

    A window: a stored trajectory, uniformly and with replacement; relabeled, if there is a `relabel`; then
    L = min(context_length, T) of its T transitions from a start that is uniform over 0 .. T - L (unless
    `config.unrewarded_keep_prob` prefers those with rewards). The first `offline_windows` of each batch come from `offline`,
    the others from `store`. Differs from the authors' code, whose first version never
    starts at T - L and so under-samples the end of every long trial.

    All chance comes from `rng` (whose state JSON can hold, as PCG64's), in one order that no thread's timing changes:
    the batches of `batches(n)` are those of n calls of `sample()`. After each batch handed over, `state_dict()` is as
    if only it and those before had ever been drawn, whether the rest is taken or abandoned. One consumer at a time.
    """

    def __init__(
        self,
        store: ReplayStore,
        *,
        config: ReplayConfig,
        context_length: int,
        rng: np.random.Generator,
        relabel: RelabelFn | None = None,
        prepare: BatchTransform | None = None,
        offline: ReplayStore | None = None,
        offline_windows: int = 0,
    ) -> None:
        self.store = store
        self.config = config
        self.context_length = context_length
        self.relabel = relabel
        self.prepare = prepare
        self.wait_seconds = 0.0
        """Time that consumers of `batches` have waited for a batch, in total."""
        self.goal_statistics = GoalStatistics()
        """What relabeling knows, as of the last batch handed over."""
        self._rng = rng
        self._stores = [(offline, offline_windows)] if offline is not None and offline_windows else []
        self._stores += [(store, config.batch_size - offline_windows)] if offline_windows < config.batch_size else []

    @property
    def is_ready(self) -> bool:
        """Whether every store that windows come from has any."""
        return all(len(store.ids()) for store, _ in self._stores)

    def sample(self) -> Batch:
        """One batch, made now; `UserError` if nothing readable is stored."""
        batch, self.goal_statistics = self._sample_one(self._shares(), self.goal_statistics, self._rng)
        return batch

    def iter_batches(self, count: int) -> Iterator[Batch]:
        """`count` batches drawn from what is stored at this call, whatever is appended or evicted meanwhile.

        `UserError` if nothing readable is stored. Errors of the background thread are raised here.
        """
        return self._batches(self._shares(), count)

    def state_dict(self) -> dict[str, Any]:
        """The state of the random stream and of what relabeling knows, as JSON can hold it."""
        return {"rng": copy.deepcopy(self._rng.bit_generator.state), "goals": self.goal_statistics.to_json()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken; of goals nothing is known where it is from before there were any."""
        self._rng.bit_generator.state = state["rng"]
        self.goal_statistics = GoalStatistics.from_json(state["goals"]) if "goals" in state else GoalStatistics()

    def _shares(self) -> list[_Share]:
        return [_Share(store, store.ids(), windows) for store, windows in self._stores]

    def _batches(self, shares: Sequence[_Share], count: int) -> Generator[Batch, None, None]:
        source = self._sample_many(shares, count, self.goal_statistics, copy.deepcopy(self._rng))
        threaded = self.config.prefetch_batches and count > 1  # a thread for a single batch would only take longer
        ahead = prefetch(source, depth=self.config.prefetch_batches) if threaded else source
        with closing(ahead):
            for _ in range(count):
                begun = time.perf_counter()
                batch, self.goal_statistics, rng_state = next(ahead)
                self.wait_seconds += time.perf_counter() - begun
                self._rng.bit_generator.state = rng_state
                yield batch

    def _sample_many(
        self, shares: Sequence[_Share], count: int, statistics: GoalStatistics, rng: np.random.Generator
    ) -> Generator[tuple[Batch, GoalStatistics, Mapping[str, Any]], None, None]:
        for _ in range(count):
            batch, statistics = self._sample_one(shares, statistics, rng)
            yield batch, statistics, rng.bit_generator.state

    def _sample_one(
        self, shares: Sequence[_Share], statistics: GoalStatistics, rng: np.random.Generator
    ) -> tuple[Batch, GoalStatistics]:
        windows: list[Window] = []
        for share in shares:
            for _ in range(share.windows):
                window, statistics = self._sample_window(share, statistics, rng)
                windows.append(window)
        batch = pack(
            windows,
            pad_tokens_to_multiple_of=self.config.pad_tokens_to_multiple_of,
            pad_seqlen_to_multiple_of=self.config.pad_seqlen_to_multiple_of,
        )
        return self.prepare(batch) if self.prepare else batch, statistics

    def _sample_window(
        self, share: _Share, statistics: GoalStatistics, rng: np.random.Generator
    ) -> tuple[Window, GoalStatistics]:
        keep = self.config.unrewarded_keep_prob
        window, statistics = self._sample_any_window(share, statistics, rng)
        while keep < 1.0 and not window.has_reward and rng.random() >= keep:
            window, statistics = self._sample_any_window(share, statistics, rng)
        return window, statistics

    def _sample_any_window(
        self, share: _Share, statistics: GoalStatistics, rng: np.random.Generator
    ) -> tuple[Window, GoalStatistics]:
        trajectory = self._sample_trajectory(share, rng)
        if self.relabel is not None:
            trajectory, statistics = self.relabel(trajectory, statistics, rng)
        length = min(self.context_length, len(trajectory))
        start = _below(len(trajectory) - length + 1, rng)
        return Window(trajectory=trajectory, start=start, length=length), statistics

    def _sample_trajectory(self, share: _Share, rng: np.random.Generator) -> Trajectory:
        if not share.ids:
            raise UserError("the replay store is empty: collect before training")
        for _ in range(_MAX_REDRAWS):
            try:
                return share.store.get(share.ids[_below(len(share.ids), rng)], lazy=True)
            except (CorruptedRecordError, KeyError):
                continue
        raise UserError(f"the replay store gave no readable trajectory in {_MAX_REDRAWS} draws: is its disk failing?")


def _below(limit: int, rng: np.random.Generator) -> int:
    """Uniform over 0 .. limit - 1; a single number comes thrice as fast this way as from `rng.integers`."""
    return int(rng.random() * limit)
