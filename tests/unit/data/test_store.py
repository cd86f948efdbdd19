import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from replay_examples import assert_same, numbered
from store_examples import corrupt, editing, large, on_disk, opened

from yamame.data.codec import CorruptedRecordError
from yamame.data.store import ReplayStore
from yamame.data.trajectory import Trajectory
from yamame.data.verify import repair_store, verify_store
from yamame.errors import UserError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ReplayStore]:
    with opened(tmp_path / "replay") as store:
        yield store


def reopened(store: ReplayStore, **settings: int) -> ReplayStore:
    store.close()
    return opened(store.directory, **{"capacity": store.capacity_trajectories, **settings})


def test_first_in_first_out(store: ReplayStore) -> None:
    assert [store.append(numbered(3, tag=tag)) for tag in range(8)] == list(range(8))
    assert list(store.ids()) == [3, 4, 5, 6, 7]
    assert len(store) == 5
    assert store.total_appended == 8
    for number in store.ids():
        assert_same(store.get(number), numbered(3, tag=number))


def test_what_was_evicted_is_known_also_after_its_deletion(store: ReplayStore) -> None:
    """Five are active, and five more are deleted only when others are evicted."""
    for count, newest_evicted in ((5, -1), (6, 0), (16, 10)):
        while store.total_appended < count:
            store.append(numbered(3))
        assert [store.has_evicted(first) for first in range(17)] == [first <= newest_evicted for first in range(17)]
    with reopened(store) as again:
        assert again.has_evicted(10) and not again.has_evicted(11)


def test_append_all_is_append_of_each(store: ReplayStore) -> None:
    store.append(numbered(2))
    assert store.extend([numbered(3, tag=tag) for tag in range(1, 8)]) == list(range(1, 8))
    assert store.extend([]) == []
    assert list(store.ids()) == [3, 4, 5, 6, 7]
    assert_same(store.get(7), numbered(3, tag=7))


def test_append_all_is_all_or_nothing(store: ReplayStore) -> None:
    broken = Trajectory(**{**vars(numbered(2)), "observation": {"o": np.array([None, None, None])}})
    with pytest.raises(Exception, match=r"(?i)object|dtype"):
        store.extend([numbered(2), broken])
    assert len(store) == store.total_appended == 0


def test_ids_are_never_given_twice(store: ReplayStore) -> None:
    store.extend([numbered(2)] * 4)
    assert store.rollback(-1) == 4
    assert list(store.ids()) == []
    store = reopened(store)
    assert (len(store), store.total_appended) == (0, 4)
    assert store.append(numbered(2)) == 4
    assert store.rollback(-1) == 1
    store = reopened(store)
    assert store.append(numbered(2)) == 5
    store.close()


def test_reopening_gives_everything_back(store: ReplayStore) -> None:
    store.extend([numbered(3, tag=tag) for tag in range(8)])
    store = reopened(store)
    assert list(store.ids()) == [3, 4, 5, 6, 7]
    for number in store.ids():
        assert_same(store.get(number), numbered(3, tag=number))
    store = reopened(store, capacity=2)
    assert list(store.ids()) == [6, 7]
    store.close()


def test_rollback_goes_back_to_a_checkpoint(store: ReplayStore) -> None:
    store.extend([numbered(3, tag=tag) for tag in range(7)])
    store.mark_checkpoint()
    at_checkpoint, last_id = list(store.ids()), store.total_appended - 1
    for tag in range(7, 10):
        store.append(numbered(3, tag=tag))
    assert list(store.ids()) == [5, 6, 7, 8, 9]
    store = reopened(store)
    assert store.rollback(last_id) == 3
    assert list(store.ids()) == at_checkpoint == [2, 3, 4, 5, 6]
    for number in store.ids():
        assert_same(store.get(number), numbered(3, tag=number))
    with pytest.raises(KeyError):
        store.get(8)
    assert store.rollback(last_id) == 0
    store.close()


def test_a_kill_between_sync_and_checkpoint_file_still_finds_the_older_checkpoint(store: ReplayStore) -> None:
    store.extend([numbered(3)] * 5)
    store.mark_checkpoint()
    store.extend([numbered(3)] * 2)
    store.mark_checkpoint()
    assert store.rollback(4) == 2
    assert list(store.ids()) == [0, 1, 2, 3, 4]


def test_the_second_sync_frees_what_was_evicted(store: ReplayStore) -> None:
    store.extend([numbered(3)] * 7)
    store.mark_checkpoint()
    store.append(numbered(3))
    store.mark_checkpoint()
    store.close()
    assert on_disk(store.directory) == [2, 3, 4, 5, 6, 7]


def test_any_of_several_checkpoints_can_be_gone_back_to(tmp_path: Path) -> None:
    store = opened(tmp_path, retained_checkpoints=2)
    kept: list[tuple[int, list[int]]] = []
    for _ in range(4):
        store.append(numbered(3))
        store.append(numbered(3))
        store.mark_checkpoint()
        kept.append((store.total_appended - 1, list(store.ids())))
    store = reopened(store)
    for last_id, ids in reversed(kept[-3:]):
        store.rollback(last_id)
        assert list(store.ids()) == ids
    store.close()


def test_a_sync_is_due_before_records_of_a_checkpoint_are_deleted(store: ReplayStore) -> None:
    store.extend([numbered(3)] * 5)
    store.mark_checkpoint()
    at_checkpoint = list(store.ids())
    while not store.needs_checkpoint:
        store.append(numbered(3))
    assert store.total_appended == 8  # half the capacity was evicted
    store = reopened(store)
    store.rollback(4)
    assert list(store.ids()) == at_checkpoint
    store.close()


def test_disk_holds_at_most_twice_the_capacity_without_any_sync(store: ReplayStore) -> None:
    for _ in range(23):
        store.append(numbered(2))
    store.close()
    assert on_disk(store.directory) == list(range(13, 23))


def test_sampling_reads_memory_and_memory_is_bounded(tmp_path: Path) -> None:
    store = opened(tmp_path, capacity=100, cache_bytes=20_000)
    store.extend([numbered(50, tag=tag) for tag in range(100)])
    assert 0 < len(store.cache) < 100
    for number in range(100):
        assert store.get(number).reward[0] == 1000 * number + 1
        assert store.cache.num_bytes <= 20_000
    assert store.get(99) is store.get(99)
    store.rollback(-1)
    assert len(store.cache) == store.cache.num_bytes == 0
    store.close()
    with opened(tmp_path / "none", cache_bytes=0) as store:
        store.append(numbered(2))
        assert store.get(0) is not store.get(0)


def test_the_callers_buffers_may_be_used_again(store: ReplayStore) -> None:
    trajectory = numbered(4, tag=1)
    store.append(trajectory)
    trajectory.reward[:] = -1
    assert_same(store.get(0), numbered(4, tag=1))


def test_ids_are_a_snapshot(store: ReplayStore) -> None:
    store.extend([numbered(2)] * 4)
    assert len(store.ids()) == 4
    store.append(numbered(2))
    before = store.ids()
    assert store.ids() is before
    store.append(numbered(2))
    assert list(before) == [0, 1, 2, 3, 4]
    assert list(store.ids()) == [1, 2, 3, 4, 5]


def test_a_corrupted_record_is_quarantined_and_counted(store: ReplayStore) -> None:
    store.extend([numbered(2)] * 3)
    store.close()
    corrupt(store.directory, 1)
    store = opened(store.directory)
    assert (store.num_corrupted, list(store.ids())) == (0, [0, 1, 2])
    with pytest.raises(CorruptedRecordError, match=r"trajectory 1 .*checksum"):
        store.get(1)
    with pytest.raises(KeyError):
        store.get(1)
    assert (store.num_corrupted, list(store.ids())) == (1, [0, 2])
    store = reopened(store)
    assert (store.num_corrupted, list(store.ids())) == (1, [0, 2])
    assert store.append(numbered(2)) == 3
    store.close()


def test_the_file_starts_small_and_grows_while_others_read(tmp_path: Path) -> None:
    store = opened(tmp_path, capacity=100, cache_bytes=0)
    store.append(large(0))
    assert sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir()) < 2 << 20
    failures: list[BaseException] = []
    finished = threading.Event()

    def read() -> None:
        try:
            while not finished.is_set():
                assert store.get(0).horizon == 101
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for tag in range(1, 60):
        store.append(large(tag))
    finished.set()
    reader.join()
    assert not failures
    store = reopened(store, cache_bytes=0)
    assert len(store) == 60
    for number in store.ids():
        assert_same(store.get(number), large(number))
    store.append(large(60))
    store.close()


def test_space_of_evicted_trajectories_is_used_again(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=3, cache_bytes=0) as store:
        for tag in range(40):
            store.append(large(tag))
            store.mark_checkpoint()
    assert (tmp_path / "replay.sqlite").stat().st_size < 12 << 20


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    script = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "helpers")!r})
from pathlib import Path
from store_examples import large, opened
from yamame.errors import UserError
resource.setrlimit(resource.RLIMIT_FSIZE, (3 << 20, 3 << 20))
store = opened(Path({str(tmp_path)!r}), capacity=100, cache_bytes=0)
try:
    for tag in range(10):
        store.append(large(tag))
except UserError as error:
    assert "free disk space" in str(error), error
    assert 1 <= len(store) < 5 and all(store.get(number).horizon for number in store.ids())
    print("refused")
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout == "refused\n"


def test_a_store_that_is_open_twice_in_a_process(store: ReplayStore) -> None:
    with opened(store.directory) as other:
        store.append(numbered(2))
        assert (other.ids(), other.append(numbered(2, tag=1)), store.ids()) == ((0,), 1, (0, 1))
    assert_same(store.get(1), numbered(2, tag=1))


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write to .*file"):
        opened(tmp_path / "file")
    (tmp_path / "replay").mkdir()
    (tmp_path / "replay" / "replay.sqlite").write_bytes(b"nothing like a database" * 1000)
    with pytest.raises(UserError, match=r"corrupted .*not a database.*yamame data repair"):
        opened(tmp_path / "replay")


def test_a_store_of_an_earlier_version_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(bytes(8192))
    attempts = (
        opened,
        lambda directory: verify_store(directory, None),
        lambda directory: repair_store(directory, None),
    )
    for attempt in attempts:
        with pytest.raises(UserError, match=r"LMDB .*before 28 November 2026.*start a new run") as caught:
            attempt(tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER later AFTER INSERT ON records BEGIN DELETE FROM records; END",
        "CREATE VIEW more AS SELECT * FROM records",
        "ALTER TABLE records ADD COLUMN more",
        "DROP TABLE counters",
    ],
)
def test_a_file_whose_tables_are_not_those_of_a_store_is_refused(tmp_path: Path, statement: str) -> None:
    opened(tmp_path).close()
    with editing(tmp_path) as connection:
        connection.execute(statement)
    with pytest.raises(UserError, match=r"its tables are not those of a replay store"):
        opened(tmp_path)
    (problem,) = verify_store(tmp_path, None).corrupted
    assert "its tables are not" in problem.reason


def test_a_rollback_journal_is_never_read(tmp_path: Path) -> None:
    """SQLite would delete the file that such a journal names."""
    opened(tmp_path).close()
    (tmp_path / "replay.sqlite-journal").write_bytes(b"journal")
    with pytest.raises(UserError, match="rollback journal"):
        opened(tmp_path)
    assert (tmp_path / "replay.sqlite-journal").read_bytes() == b"journal"


WRITER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "helpers")!r})
from pathlib import Path
from replay_examples import numbered
from yamame.data.store import ReplayStore
store = ReplayStore(Path(sys.argv[1]), capacity_trajectories=100_000, cache_bytes=0)
while True:
    tag = store.total_appended
    print(store.append(numbered(1 + tag % 60, tag=tag)), flush=True)
"""


def test_a_killed_writer_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    for seed in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            for _ in range(random.Random(seed).randint(50, 250)):
                acknowledged.append(int(writer.stdout.readline()))
            writer.kill()
            acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
        with opened(tmp_path, capacity=100_000, cache_bytes=0) as store:
            assert store.total_appended - len(acknowledged) in (0, 1)
            acknowledged = list(range(store.total_appended))
            assert list(store.ids()) == acknowledged
            for number in acknowledged:
                assert_same(store.get(number), numbered(1 + number % 60, tag=number))
            assert store.num_corrupted == 0


def test_ids_that_were_deleted_in_turn_are_gone_and_others_missing(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=3) as store:
        for tag in range(12):
            store.append(numbered(2, tag=tag))
        assert store.missing(range(12)) == ([], [0, 1, 2, 3, 4, 5])
        store.rollback(9)
        store.mark_checkpoint()
        store.mark_checkpoint()  # deletes older ids than before: the mark must not move back
        assert store.missing([0, 5]) == ([], [0, 5])
        assert store.missing([50]) == ([50], [])
