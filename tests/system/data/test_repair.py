"""A corrupted database file is refused, and repair keeps its readable records."""

import random
from pathlib import Path

import pytest
from replay_examples import assert_same, numbered
from store_examples import corrupt, large, opened

from yamame.data.codec import encode
from yamame.data.database import RecordTag
from yamame.data.trajectory import Trajectory
from yamame.data.verify import finish_interrupted_repair, repair_store, verify_store
from yamame.errors import UserError


def example(tag: int) -> Trajectory:
    return large(tag) if tag % 10 == 0 else numbered(1 + 7 * (tag % 13), tag=tag)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with opened(tmp_path / "replay", capacity=180, cache_bytes=0) as store:
        for start in range(0, 200, 20):
            store.extend([example(tag) for tag in range(start, start + 20)])
        store.extend_records([encode(example(200)), encode(example(201))], tag=RecordTag.PROTECTED)
        store.mark_checkpoint()
        store.mark_checkpoint()  # deletes the first 20, which were evicted
    return tmp_path / "replay"


def assert_repaired(directory: Path, *, at_least: int) -> None:
    """A store in which all that is left is as it was, and to which more can be appended."""
    result = repair_store(directory, None)
    assert result.num_recovered >= at_least
    assert result.backup_path == directory.with_name("replay.backup-1") and result.backup_path.is_dir()
    assert not directory.with_name("replay.repaired").exists()
    after = verify_store(directory, None)
    assert (after.num_valid, after.corrupted, after.quarantined) == (result.num_recovered, [], [])
    with opened(directory, capacity=500) as store:
        assert len(store) == result.num_recovered
        for number in store.ids():
            assert_same(store.get(number), example(number))
        assert store.append(example(202)) > max(store.ids()[:-1], default=-1)


def test_bad_records_are_left_out_and_everything_else_is_kept(directory: Path) -> None:
    for number in (30, 55):
        corrupt(directory, number)
    result = repair_store(directory, None)
    assert (result.num_recovered, [bad.record_id for bad in result.lost]) == (180, ["30", "55"])
    with opened(directory, capacity=500) as store:
        assert list(store.ids()) == [number for number in range(20, 202) if number not in (30, 55)]
        assert (store.total_appended, store.num_corrupted) == (202, 0)
    with opened(directory, capacity=1) as store:
        assert store.ids() == (199, 200, 201)  # the last two are protected
    assert repair_store(directory, None).backup_path.name == "replay.backup-2"


def test_a_repair_that_was_killed_is_completed(directory: Path) -> None:
    repair_store(directory, None)
    directory.rename(directory.with_name("replay.repaired"))  # as if it had not come to the last step
    finish_interrupted_repair(directory)
    with opened(directory, capacity=500) as store:
        assert len(store) == 182
    directory.with_name("replay.repaired").mkdir()  # as if the old one had not been taken away
    finish_interrupted_repair(directory)
    assert sorted(path.name for path in directory.parent.iterdir()) == ["replay", "replay.backup-1"]


@pytest.mark.parametrize("fraction", [0.95, 0.6, 0.2])
def test_a_file_that_was_cut_off(directory: Path, fraction: float) -> None:
    data = directory / "replay.sqlite"
    with data.open("rb+") as file:
        file.truncate(int(data.stat().st_size * fraction))
    with pytest.raises(UserError, match=r"corrupted .*yamame data repair"):
        opened(directory)
    assert_repaired(directory, at_least=0)


@pytest.mark.parametrize("seed", range(6))
def test_a_file_with_flipped_bytes_all_over(directory: Path, seed: int) -> None:
    data, rng = directory / "replay.sqlite", random.Random(seed)
    content = bytearray(data.read_bytes())
    for _ in range(40):
        content[rng.randrange(3 * 4096, len(content))] ^= 1 << rng.randrange(8)
    data.write_bytes(content)
    assert_repaired(directory, at_least=100)


@pytest.mark.parametrize("seed", range(4))
def test_a_file_with_pages_of_rubbish(directory: Path, seed: int) -> None:
    data, rng = directory / "replay.sqlite", random.Random(seed)
    content = bytearray(data.read_bytes())
    for _ in range(5):
        page = rng.randrange(3, len(content) // 4096) * 4096
        content[page : page + 4096] = rng.randbytes(4096)
    data.write_bytes(content)
    assert_repaired(directory, at_least=0)


def test_a_file_that_was_never_a_database(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no replay store"):
        repair_store(tmp_path / "replay", None)
    (tmp_path / "replay").mkdir()
    (tmp_path / "replay" / "replay.sqlite").write_bytes(b"nothing like a database" * 1000)
    result = repair_store(tmp_path / "replay", None)
    assert (result.num_recovered, len(result.lost)) == (0, 1)
    opened(tmp_path / "replay").close()
