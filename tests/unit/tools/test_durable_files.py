"""Files that are replaced as a whole."""

from pathlib import Path

import pytest

from yamame.runs.durable_files import replace_atomically


def write(path: Path, text: str) -> None:
    with replace_atomically(path) as partial:
        partial.write_text(text)


def test_what_a_killed_process_left_is_removed_by_the_next_write(tmp_path: Path) -> None:
    left, other = tmp_path / ".partial-a.json", tmp_path / ".partial-b.json"
    for path in (left, other):
        path.write_text("half")
    write(tmp_path / "a.json", "whole")
    assert sorted(tmp_path.iterdir()) == [other, tmp_path / "a.json"]


def test_a_block_that_raises_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path, "old")
    with pytest.raises(ValueError, match="no"), replace_atomically(path) as partial:
        partial.write_text("half")
        raise ValueError("no")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
