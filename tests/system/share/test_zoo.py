"""The zoo of the package: each policy is what its command trains, does what its manifest says, and is only read."""

import json
import shlex
import tomllib
from pathlib import Path

import pytest
from command_runs import snapshot
from documents import ROOT

from yamame import cli
from yamame.config.serialization import to_json
from yamame.recipes import config_from_flags, load_recipe
from yamame.runs.locate import ZOO_FOLDER, zoo_names
from yamame.runs.shared_policy import check_policy_folder
from yamame.tools.share.pack import folder_bytes
from yamame.training.run_files import read_config, read_metadata, read_result
from yamame.training.trained_run import load_trained_run

NAMES = zoo_names()


def test_the_zoo_is_in_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "zoo/**/*" in project["tool"]["setuptools"]["package-data"]["yamame"]
    assert {"passive-tmaze", "dark-key-to-door", "popgym-repeat-previous-easy"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_its_command_gives_its_config(name: str) -> None:
    folder = ZOO_FOLDER / name
    check_policy_folder(folder)
    assert folder_bytes(folder) < 1_000_000
    program, verb, recipe, *flags = shlex.split(read_metadata(folder).command)
    assert (program, verb) == ("yamame", "train")
    assert to_json(config_from_flags(load_recipe(recipe), [], flags)) == to_json(read_config(folder))
    result = read_result(folder)
    assert result is not None and result["trials"] == 256


def test_the_list_has_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["zoo", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in listed] == NAMES
    assert cli.main(["zoo"]) == 0
    text = capsys.readouterr().out
    assert all(f"zoo:{each['name']} " in text and each["command"] in text for each in listed)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["passive-tmaze", "dark-key-to-door"])
def test_it_does_what_it_says_and_is_only_read(name: str, tmp_path: Path) -> None:
    folder = ZOO_FOLDER / name
    before, said = snapshot(folder), read_result(folder)
    assert said is not None
    found = load_trained_run(folder).evaluate(trials=64, seed=None)
    low, high = found["return_ci95"]
    margin = high - low + 1e-6
    assert low - margin <= said["return_mean"] <= high + margin
    assert cli.main(["play", f"zoo:{name}", "--output", str(tmp_path / "film.gif")]) == 0
    assert snapshot(folder) == before
