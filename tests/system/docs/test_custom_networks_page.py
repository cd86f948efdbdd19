"""The sequence models of the guide train, keep the contract of all trajectory encoders, and can be loaded."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, all_blocks
from guide_reader import DOCS, follow, small_runs

from yamame import cli

PAGE = "custom_networks.md"
sys.path.append(str(ROOT / "tests" / "contract"))
contracts = importlib.import_module("test_trajectory_encoders")
PROMISES = [name for name in vars(contracts) if name.startswith("test_") and "folder" not in name]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("convolution", "lstm"):
        sys.modules.pop(name, None)


@pytest.fixture(params=[("convolution", "ConvolutionConfig", {"kernel_size": 4}), ("lstm", "LSTMConfig", {})])
def config(request: pytest.FixtureRequest) -> Any:
    """The config of each file on the page."""
    name, config_class, fields = request.param
    file = next(block for block in all_blocks(DOCS / PAGE) if block.title == f"{name}.py")
    Path(file.title).write_text(file.content, encoding="utf-8")
    return getattr(importlib.import_module(name), config_class)(d_model=16, **fields)


def test_it_trains_and_is_evaluated_with_its_module_named() -> None:
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
def test_it_keeps_the_contract(promise: str, config: Any) -> None:
    check = getattr(contracts, promise)
    marks = {mark.args[0]: mark.args[1] for mark in getattr(check, "pytestmark", []) if mark.args[0] != "config"}
    for lengths in marks.get("lengths", [None]):
        check(config, lengths) if lengths else check(config)


def test_the_contract_is_found() -> None:
    assert len(PROMISES) >= 9
