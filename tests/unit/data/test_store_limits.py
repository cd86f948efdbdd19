"""What a store holds: FIFO by bytes, protected trajectories."""

from pathlib import Path

import pytest
from replay_examples import assert_same, numbered
from store_examples import large, on_disk, opened

from yamame.data.codec import encode
from yamame.data.database import RecordTag
from yamame.data.eviction import EvictionPolicy

MEGABYTE = 1 << 20
LARGE_BYTES = len(encode(large(0)))


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


def test_a_checkpoint_is_due_before_the_limit_of_bytes_deletes_what_the_last_one_needs(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=100, capacity_bytes=int(3.5 * LARGE_BYTES)) as store:
        store.extend([large(tag) for tag in range(3)])
        store.mark_checkpoint()
        assert not store.needs_checkpoint
        store.append(large(3))
        assert not store.needs_checkpoint
        store.append(large(4))
        assert store.needs_checkpoint  # half the capacity was evicted
        assert store.rollback(2) == 2
        assert store.ids() == (0, 1, 2)
        store.mark_checkpoint()
        assert not store.needs_checkpoint


def test_disk_holds_at_most_twice_the_bytes_without_any_sync(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=100, cache_bytes=0, capacity_bytes=2 * LARGE_BYTES + 9) as store:
        for tag in range(12):
            store.append(large(tag))
    assert on_disk(tmp_path) == [8, 9, 10, 11]
    assert (tmp_path / "replay.sqlite").stat().st_size < 8 * LARGE_BYTES


def test_protected_trajectories_are_never_evicted(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=2) as store:
        store.append(numbered(3, tag=0))
        records = [encode(numbered(3, tag=tag)) for tag in (1, 2)]
        assert store.extend_records(records, tag=RecordTag.PROTECTED) == [1, 2]
        store.extend([numbered(3, tag=tag) for tag in range(3, 9)])
        assert (store.ids(), len(store)) == ((1, 2, 7, 8), 4)
        store.mark_checkpoint()
        store.mark_checkpoint()
    with opened(tmp_path, capacity=1) as store:
        assert store.ids() == (1, 2, 8)
        assert store.rollback(0) == 2
        assert store.ids() == (1, 2)
        assert_same(store.get(2), numbered(3, tag=2))


def test_imported_trajectories_are_evicted_in_turn_but_no_checkpoint_discards_them(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=4) as store:
        store.extend([numbered(2)] * 2)
        store.append(
            numbered(2),
        )
        last_id = store.total_appended - 1
        store.extend_records([encode(numbered(2))] * 2, tag=RecordTag.IMPORTED)
        store.append(numbered(2))
        assert store.rollback(last_id) == 1
        assert store.ids() == (1, 2, 3, 4)
        store.extend([numbered(2)] * 3)
        assert store.ids() == (4, 6, 7, 8)


@pytest.mark.parametrize(("active", "evicted"), [(0, 0), (3, 0), (5, 0), (5, 3), (5, 5)])
def test_what_fits_into_the_room_deletes_nothing_and_one_more_does(active: int, evicted: int) -> None:
    def filled(**limits: int) -> EvictionPolicy:
        policy = EvictionPolicy(**{"capacity_trajectories": 5, "capacity_bytes": 0, **limits})
        policy.add(dict.fromkeys(range(active + evicted), 10), protected=False)
        assert (len(policy.active), len(policy.evicted), policy.deletable()) == (active, evicted, [])
        return policy

    def keeps_all(policy: EvictionPolicy, count: int) -> bool:
        before = {*policy.active, *policy.evicted}
        policy.add(dict.fromkeys(range(100, 100 + count), 10), protected=False)
        return not before.intersection(policy.deletable()) and len({*policy.active} - before) == count

    room, unlimited = filled().room()
    assert unlimited is None
    assert keeps_all(filled(), room) and not keeps_all(filled(), room + 1)
    by_bytes = {"capacity_trajectories": 1_000, "capacity_bytes": 50}
    count, num_bytes = filled(**by_bytes).room()
    assert count > 100 and num_bytes is not None and keeps_all(filled(**by_bytes), max(0, num_bytes) // 10)


def test_fifo_takes_out_what_is_not_the_oldest() -> None:
    fifo = EvictionPolicy(capacity_trajectories=3, capacity_bytes=0)
    assert fifo.add(dict.fromkeys(range(5), 10), protected=False) == [0, 1]
    fifo.remove([1, 3, 99])
    assert (fifo.ids(), list(fifo.evicted), sum(fifo.active.values())) == ((2, 4), [0], 20)
