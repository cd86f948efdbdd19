"""The networks and the loss of the guide train and can be loaded; its sequence models keep their contract."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from documents import ROOT, all_blocks
from guide_reader import DOCS, follow, small_runs

from yamame import cli
from yamame.training.trained_run import load_trained_run

PAGE = "custom_networks.md"
sys.path.append(str(ROOT / "tests" / "contract"))
contracts = importlib.import_module("test_trajectory_encoders")
PROMISES = [name for name in vars(contracts) if name.startswith("test_") and "folder" not in name]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for block in all_blocks(DOCS / PAGE):
        sys.modules.pop(block.title.removesuffix(".py"), None)


@pytest.fixture(params=[("convolution", "ConvolutionConfig", {"kernel_size": 4}), ("lstm", "LSTMConfig", {})])
def config(request: pytest.FixtureRequest) -> Any:
    """The config of each file on the page."""
    name, config_class, fields = request.param
    file = next(block for block in all_blocks(DOCS / PAGE) if block.title == f"{name}.py")
    Path(file.title).write_text(file.content, encoding="utf-8")
    return getattr(importlib.import_module(name), config_class)(d_model=16, **fields)


@pytest.mark.slow
def test_everything_trains_and_is_read_with_its_module_named(capsys: pytest.CaptureFixture[str]) -> None:
    with small_runs():
        names = follow(PAGE)
    runs = {name: names[name] for name in ("run", "gap", "plain", "coded", "imitated")}
    assert all(run.result["updates"] > 0 for run in runs.values())
    agents = {name: load_trained_run(run.directory, config=run.config).model for name, run in runs.items()}
    assert type(agents["run"].trajectory_encoder).__name__ == "Convolution"
    assert [type(each).__name__ for each in agents["gap"].timestep_encoder.leaf_encoders] == ["ScanEncoder"]
    assert agents["gap"].timestep_encoder.encoded == ("scan",) and agents["plain"].timestep_encoder.encoded == ()
    assert type(agents["coded"].value_code).__name__ == "TwoHot"
    metrics = runs["imitated"].metrics()
    assert metrics["loss/self_imitation"][-1] > 0.0 and 0.0 < metrics["mine/rewarded"][-1] < 1.0
    names["policy"].act(names["Gap"]().reset()[0])
    for name, module in (("run", "convolution"), ("gap", "scan"), ("coded", "two_hot"), ("imitated", "self_imitation")):
        command = ["eval", str(runs[name].directory), "--trials", "2", "--import", "gap"]
        capsys.readouterr()
        assert cli.main(command) == 2
        assert f"add --import {module}" in capsys.readouterr().err
        assert cli.main([*command, "--import", module]) == 0
        runs[name].load()


@pytest.mark.parametrize("promise", PROMISES)
def test_it_keeps_the_contract(promise: str, config: Any) -> None:
    check = getattr(contracts, promise)
    marks = {mark.args[0]: mark.args[1] for mark in getattr(check, "pytestmark", []) if mark.args[0] != "config"}
    for lengths in marks.get("lengths", [None]):
        check(config, lengths) if lengths else check(config)


def test_the_contract_is_found() -> None:
    assert len(PROMISES) >= 9
