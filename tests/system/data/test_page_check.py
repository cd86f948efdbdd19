"""The check of pages finds every flipped bit that LMDB cannot stand, and nothing in intact files."""

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import lmdb
import pytest
from replay_examples import numbered
from store_examples import opened

from yamame.data.codec import CorruptedRecordError, encode
from yamame.data.database import CorruptedDatabaseError
from yamame.data.page_check import CorruptedPageError, check_pages, check_pages_in_subprocess

PAGE = 4096
INTACT, RECORD_LOST, DIFFERS = 0, 3, 4
"""What a child finds in a store: all records, one that has a wrong checksum, or others than were written."""


def write(directory: Path, *, rounds: int = 40) -> dict[int, bytes]:
    """Write small and large records, deleting old ones; return those that are left."""
    rng = random.Random(0)
    with opened(directory, capacity=100, cache_bytes=0) as store:
        for number in range(rounds):
            store.extend([numbered(rng.choice([5, 40, 300, 900]), tag=number) for _ in range(10)])
            if number % 5 == 0:
                store.mark_checkpoint()
            if number % 7 == 0:
                check_pages_in_subprocess(directory)
        return {number: encode(store.get(number)) for number in store.ids()}


def read_and_write(directory: Path, expected: dict[int, bytes]) -> int:
    """Read all records in a child, then write until all pages were reused."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(2)
    code = DIFFERS
    try:
        with opened(directory, capacity=100, cache_bytes=0) as store:
            found: dict[int, bytes | None] = dict.fromkeys(store.ids())
            for number in found:
                try:
                    found[number] = encode(store.get(number))
                except CorruptedRecordError:
                    del expected[number]
            code = RECORD_LOST if None in found.values() else INTACT
            if {number: record for number, record in found.items() if record} != expected:
                code = DIFFERS
            for _ in range(4):
                store.extend([numbered(900)] * 150)
                store.mark_checkpoint()
    finally:
        os._exit(code)


def test_intact_stores_pass(tmp_path: Path) -> None:
    for rounds in (0, 1, 7, 60):
        write(tmp_path / str(rounds), rounds=rounds)
        check_pages(tmp_path / str(rounds))
        assert check_pages_in_subprocess(tmp_path / str(rounds)) == ""


@pytest.mark.slow
@pytest.mark.thorough
def test_a_flipped_bit_is_found_or_harmless(tmp_path: Path) -> None:
    expected = write(tmp_path / "store")
    content = (tmp_path / "store" / "data.mdb").read_bytes()
    rng = random.Random(1)
    outcomes: Counter[str] = Counter()
    for _ in range(200):
        page = rng.randrange(len(content) // PAGE)
        at = page * PAGE + (rng.randrange(48) if rng.random() < 0.7 else rng.randrange(PAGE))
        flipped = bytearray(content)
        flipped[at] ^= 1 << rng.randrange(8)
        directory = tmp_path / "flipped"
        directory.mkdir()
        (directory / "data.mdb").write_bytes(flipped)
        try:
            check_pages(directory)
            found = "passed"
        except (CorruptedPageError, lmdb.Error):
            found = "found"
        if found == "passed":
            assert read_and_write(directory, dict(expected)) in (INTACT, RECORD_LOST), (page, at % PAGE)
        outcomes[found] += 1
        shutil.rmtree(directory)
    assert outcomes["found"] > 20 and outcomes["passed"] > 20


@pytest.mark.parametrize("pages", [1, 2, 5, 40])
def test_a_truncated_file_is_refused(tmp_path: Path, pages: int) -> None:
    write(tmp_path)
    with (tmp_path / "data.mdb").open("rb+") as file:
        file.truncate(pages * PAGE)
    with pytest.raises(CorruptedDatabaseError, match="yamame data repair"):
        opened(tmp_path)
    assert check_pages_in_subprocess(tmp_path)
