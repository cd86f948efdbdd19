"""What a store holds: FIFO by bytes, the limit of its file, protected trajectories."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from replay_examples import assert_same, numbered
from store_examples import large, on_disk, opened

from yamame.data.codec import encode
from yamame.data.database import RecordTag
from yamame.data.eviction import EvictionPolicy
from yamame.data.store import LMDBReplayStore
from yamame.data.trajectory import Trajectory
from yamame.errors import UserError

MEGABYTE = 1 << 20
LARGE_BYTES = len(encode(large(0)))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LMDBReplayStore]:
    with opened(tmp_path, capacity=1000, cache_bytes=0, max_bytes=5 * MEGABYTE) as store:
        yield store


def file_bytes(store: LMDBReplayStore) -> int:
    return (store.directory / "data.mdb").stat().st_size


def any_size(tag: int) -> Trajectory:
    width = int(np.random.default_rng(tag).choice([1, 60, 700, 4000]))
    noise = np.random.default_rng(tag).integers(0, 256, (101, width), dtype=np.uint8)
    return Trajectory(**{**vars(numbered(100, tag=tag)), "observation": {"noise": noise}})


def test_first_in_first_out_by_bytes(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=100, capacity_bytes=int(3.5 * LARGE_BYTES)) as store:
        for tag in range(6):
            store.append(large(tag))
        assert store.ids() == (3, 4, 5)
        store.extend([numbered(2)] * 3)
        assert store.ids() == (3, 4, 5, 6, 7, 8)
        store.append(large(9))
        assert store.ids() == (4, 5, 6, 7, 8, 9)
        store.mark_checkpoint()
        store.extend([large(10), large(11)])
        assert store.rollback(9) == 2
        assert store.ids() == (4, 5, 6, 7, 8, 9)
    with opened(tmp_path, capacity=100, capacity_bytes=1) as store:
        assert store.ids() == (9,)


def test_disk_holds_at_most_twice_the_bytes_without_any_sync(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=100, cache_bytes=0, capacity_bytes=2 * LARGE_BYTES + 9) as store:
        for tag in range(12):
            store.append(large(tag))
    assert on_disk(tmp_path) == [8, 9, 10, 11]
    assert (tmp_path / "data.mdb").stat().st_size < 8 * LARGE_BYTES


def test_the_limit_of_the_file_is_kept_by_deleting_the_oldest(small: LMDBReplayStore) -> None:
    for tag in range(60):
        assert small.append(any_size(tag)) == tag
        assert file_bytes(small) <= 5 * MEGABYTE
    ids = small.ids()
    assert ids[-1] == 59 and list(ids) == list(range(ids[0], 60))
    assert sum(len(encode(any_size(number))) for number in ids) > 3 * MEGABYTE
    for number in ids:
        assert_same(small.get(number), any_size(number))


def test_more_at_once_than_the_file_can_hold_leaves_the_newest(small: LMDBReplayStore) -> None:
    assert small.extend([large(tag) for tag in range(12)]) == list(range(12))
    assert small.ids()[-1] == 11 and len(small) >= 3
    assert file_bytes(small) <= 5 * MEGABYTE


def test_what_cannot_fit_at_all_is_refused_and_costs_nothing(small: LMDBReplayStore) -> None:
    small.append(large(0))
    noise = np.random.default_rng(0).integers(0, 256, (101, 60_000), dtype=np.uint8)
    with pytest.raises(UserError, match=r"limit of 5242880 bytes.* 6\d{6} bytes does not fit.*raise --replay"):
        small.append(Trajectory(**{**vars(numbered(100)), "observation": {"noise": noise}}))
    assert small.ids() == (0,)


def test_protected_trajectories_are_never_evicted(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=2) as store:
        store.append(numbered(3, tag=0))
        assert store.extend([numbered(3, tag=1), numbered(3, tag=2)], tag=RecordTag.PROTECTED) == [1, 2]
        store.extend([numbered(3, tag=tag) for tag in range(3, 9)])
        assert (store.ids(), len(store)) == ((1, 2, 7, 8), 4)
        store.mark_checkpoint()
        store.mark_checkpoint()
    with opened(tmp_path, capacity=1) as store:
        assert store.ids() == (1, 2, 8)
        assert store.rollback(0) == 2
        assert store.ids() == (1, 2)
        assert_same(store.get(2), numbered(3, tag=2))


def test_protected_trajectories_survive_a_full_file_and_are_named_when_they_fill_it(small: LMDBReplayStore) -> None:
    small.extend([large(0), large(1), large(2)], tag=RecordTag.PROTECTED)
    for tag in range(3, 9):
        small.append(large(tag))
    assert small.ids()[:3] == (0, 1, 2)
    with pytest.raises(UserError, match="beside the protected ones"):
        small.extend([large(tag) for tag in range(20, 24)], tag=RecordTag.PROTECTED)
    assert len(small) >= 4 and file_bytes(small) <= 5 * MEGABYTE


def test_imported_trajectories_are_evicted_in_turn_but_no_checkpoint_discards_them(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=4) as store:
        store.extend([numbered(2)] * 2)
        store.append(
            numbered(2),
        )
        last_id = store.total_appended - 1
        store.extend([numbered(2)] * 2, tag=RecordTag.IMPORTED)
        store.append(numbered(2))
        assert store.rollback(last_id) == 1
        assert store.ids() == (1, 2, 3, 4)
        store.extend([numbered(2)] * 3)
        assert store.ids() == (4, 6, 7, 8)


def test_fifo_takes_out_what_is_not_the_oldest() -> None:
    fifo = EvictionPolicy(capacity_trajectories=3, capacity_bytes=0)
    assert fifo.add(dict.fromkeys(range(5), 10), protected=False) == [0, 1]
    fifo.remove([1, 3, 99])
    assert (fifo.ids(), list(fifo.evicted), sum(fifo.active.values())) == ((2, 4), [0], 20)
    assert fifo.oldest(25) == [0, 2, 4] and fifo.oldest(0) == []
