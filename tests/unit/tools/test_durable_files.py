"""Files that are replaced as a whole, by several processes too."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from yamame.runs.durable_files import replace_atomically


def write(path: Path, text: str) -> None:
    """Write a file in another process."""
    with replace_atomically(path) as partial:
        partial.write_text(text)


def test_processes_that_write_one_file_do_not_collide(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    with replace_atomically(path) as partial:
        partial.write_text("ours")
        other = multiprocessing.get_context("spawn").Process(target=write, args=(path, "theirs"))
        other.start()
        other.join()
        assert other.exitcode == 0 and path.read_text() == "theirs" and partial.read_text() == "ours"
    assert path.read_text() == "ours" and list(tmp_path.iterdir()) == [path]


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    hour_ago = time.time() - 4000
    old, new, other, foreign = (
        tmp_path / name
        for name in (".partial-1-a.json", ".partial-2-a.json", ".partial-3-b-a.json", ".partial-x-a.json")
    )
    for path in (old, new, other, foreign):
        path.write_text("half")
    for path in (old, other, foreign):
        os.utime(path, (hour_ago, hour_ago))
    write(tmp_path / "a.json", "whole")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "a.json", new, other, foreign])


def test_a_block_that_raises_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path, "old")
    with pytest.raises(ValueError, match="no"), replace_atomically(path) as partial:
        partial.write_text("half")
        raise ValueError("no")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
