"""A flipped bit in the files of a store is found, or changes no record; nothing aborts the process."""

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from replay_examples import numbered
from store_examples import opened

from yamame.data.codec import CorruptedRecordError, encode
from yamame.data.database import RecordTag
from yamame.data.verify import verify_store
from yamame.errors import UserError

PAGE = 8192
FILES = ("replay.sqlite", "replay.sqlite-wal")


def write(directory: Path, copy: Path) -> dict[int, bytes]:
    """Write small and large records, deleting old ones, and copy the files as a killed process leaves them."""
    rng = random.Random(0)
    with opened(directory, capacity=40, cache_bytes=0) as store:
        store.extend_records([encode(numbered(5))] * 3, tag=RecordTag.PROTECTED)
        for number in range(1, 15):
            store.extend([numbered(rng.choice([5, 40, 300, 2_000]), tag=number) for _ in range(10)])
            if number % 4 == 0:
                store.mark_checkpoint()
        copy.mkdir()
        for name in FILES:
            shutil.copy(directory / name, copy)
        return {number: encode(store.get(number)) for number in store.ids()}


def is_found(directory: Path, expected: dict[int, bytes]) -> bool:
    """Whether `verify` or the opening of the store finds a fault."""
    report = verify_store(directory, None, needed_ids=expected)
    try:
        with opened(directory, capacity=40, cache_bytes=0) as store:
            return bool(report.corrupted or report.missing or store.missing(expected)[0])
    except UserError:
        return True


def read_and_write(directory: Path, expected: dict[int, bytes]) -> int:
    """Read all records, then write until pages were reused; return how many could not be read."""
    failed = 0
    try:
        with opened(directory, capacity=40, cache_bytes=0) as store:
            for number in expected:
                try:
                    assert encode(store.get(number)) == expected[number]
                except (CorruptedRecordError, KeyError):
                    failed += 1
            for _ in range(3):
                store.extend([numbered(300)] * 40)
                store.mark_checkpoint()
    except UserError as error:
        assert "\n" not in str(error)
        return len(expected)
    return failed


@pytest.mark.parametrize("flips", [20, pytest.param(2_300, marks=[pytest.mark.slow, pytest.mark.thorough])])
@pytest.mark.timeout(1800)
def test_a_flipped_bit_is_found_or_harmless(flips: int, tmp_path: Path) -> None:
    expected = write(tmp_path / "store", tmp_path / "killed")
    assert not is_found(tmp_path / "killed", expected) and not is_found(tmp_path / "store", expected)
    rng = random.Random(1)
    outcomes: Counter[str] = Counter()
    write(tmp_path / "other", tmp_path / "intact")
    for _ in range(flips):
        directory = Path(shutil.copytree(tmp_path / "intact", tmp_path / "flipped"))
        file = directory / FILES[rng.random() < 0.2]
        content = bytearray(file.read_bytes())
        page = rng.randrange(-(-len(content) // PAGE)) if rng.random() < 0.95 else 0
        within = rng.randrange(200) if rng.random() < 0.5 else rng.randrange(PAGE)
        at = min(page * PAGE + within, len(content) - 1)
        content[at] ^= 1 << rng.randrange(8)
        file.write_bytes(content)
        found = is_found(directory, expected)
        failed = read_and_write(directory, expected)
        assert found or not failed, (file.name, at)
        outcomes["found" if found else "harmless"] += 1
        shutil.rmtree(directory)
    print(dict(outcomes))
    assert min(outcomes.values()) > flips // 10


@pytest.mark.parametrize("pages", [1, 2, 5, 20])
def test_a_truncated_file_is_refused(tmp_path: Path, pages: int) -> None:
    write(tmp_path / "store", tmp_path / "killed")
    with (tmp_path / "store" / "replay.sqlite").open("rb+") as file:
        file.truncate(pages * PAGE)
    with pytest.raises(UserError, match=r"is corrupted .*yamame data repair"):
        opened(tmp_path / "store")
    assert verify_store(tmp_path / "store", None).corrupted
