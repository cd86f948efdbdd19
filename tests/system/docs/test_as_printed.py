"""Blocks titled a minute of training run as printed, and agents reach the returns of the pages."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import all_blocks
from guide_reader import DOCS, PAGES, follow_block

from yamame.training.run_files import read_result

A_MINUTE = "a minute of training"
PROMISING = [page for page in PAGES if any(block.title == A_MINUTE for block in all_blocks(DOCS / page))]
pytestmark = pytest.mark.learning


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("convolution", None)


@pytest.mark.parametrize("page", PROMISING)
def test_a_minute_of_training(page: str) -> None:
    names: dict[str, Any] = {"__name__": page}
    for block in all_blocks(DOCS / page):
        if block.title == A_MINUTE or block.title.endswith(".py"):
            follow_block(block, page, names)
    runs = [path.parent for path in Path("runs").glob("*/result.json")]
    assert runs
    for run in runs:
        result = read_result(run)
        assert result is not None and result["success_rate"] == 1.0
