"""The sequence model of the guide learns, keeps to what all of them keep to, and is found again."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, all_blocks
from guide_reader import DOCS, follow, small_runs

from yamame import cli

PAGE = "custom_sequence_model.md"
sys.path.append(str(ROOT / "tests" / "contracts"))
contracts = importlib.import_module("test_trajectory_encoders")
PROMISES = [name for name in vars(contracts) if name.startswith("test_") and "folder" not in name]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("convolution", None)


@pytest.fixture
def config() -> Any:
    """That of the page's file."""
    file = next(block for block in all_blocks(DOCS / PAGE) if block.title == "convolution.py")
    Path(file.title).write_text(file.content, encoding="utf-8")
    return importlib.import_module("convolution").ConvolutionConfig(width=16, taps=4)


def test_it_trains_and_can_be_gone_on_with() -> None:
    with small_runs():
        run = follow(PAGE)["run"]
    assert (
        run.result["updates"] > 0
        and type(run.config.algorithm.agent.trajectory_encoder).__name__ == "ConvolutionConfig"
    )
    assert cli.main(["eval", str(run.directory), "--trials", "8"]) == 2
    assert cli.main(["eval", str(run.directory), "--trials", "8", "--import", "convolution"]) == 0
    run.load()


@pytest.mark.parametrize("promise", PROMISES)
def test_it_keeps_to_the_contract(promise: str, config: Any) -> None:
    check = getattr(contracts, promise)
    marks = {mark.args[0]: mark.args[1] for mark in getattr(check, "pytestmark", []) if mark.args[0] != "config"}
    for lengths in marks.get("lengths", [None]):
        check(config, lengths) if lengths else check(config)


def test_nothing_of_the_contract_is_left_out() -> None:
    assert len(PROMISES) >= 9
