"""Files of a run that are JSON and say something else than a run writes: one line that names the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_runs import refused
from results import evaluation_of, result_of
from solved_tmaze import solved_tmaze

from yamame.errors import UserError
from yamame.training.run_files import read_config, read_metadata, read_result, read_task_spec, read_tracking

READERS = {
    "config.json": read_config,
    "metadata.json": read_metadata,
    "result.json": read_result,
    "spaces.json": read_task_spec,
    "tracking.json": read_tracking,
}


def read(run: Path, name: str, content: Any) -> Any:
    (run / name).write_text(json.dumps(content))
    return READERS[name](run)


def pairs(key: str, *values: Any) -> list[tuple[str, Any]]:
    return [(key, value) for value in values]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("content", [None, [], {}, 3, "x"])
def test_other_values_in_the_place_of_an_object(name: str, content: Any, tmp_path: Path) -> None:
    run = solved_tmaze(tmp_path)
    with pytest.raises(UserError) as error:
        read(run, name, content)
    assert str(run / name) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("config.json", "env_steps", "many"),
        ("config.json", "eval", []),
        ("config.json", "context_length", -1),
        ("config.json", "extra", 1),
        ("metadata.json", "recipe", None),
        ("metadata.json", "overrides", {"seed": [0]}),
        ("spaces.json", "horizon", "long"),
        ("spaces.json", "action_space", None),
    ],
)
def test_wrong_types_name_the_file_and_the_field(name: str, key: str, value: Any, tmp_path: Path) -> None:
    run = solved_tmaze(tmp_path)
    with pytest.raises(UserError) as error:
        read(run, name, json.loads((run / name).read_text()) | {key: value})
    assert str(run / name) in str(error.value)
    assert key in str(error.value) or key == "action_space"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *pairs("return_mean", "x", None, [1.0], True),
        *pairs("return_ci95", None, [1.0], [1.0, "x"], {"low": 0}),
        *pairs("return_per_attempt", None, 1.0, [None]),
        *pairs("success_rate", "0.5", []),
        *pairs("trials", None, 2.5, "8"),
        *pairs("env_steps", "many", None, -(2**64)),
        *pairs("wall_seconds", "long", None),
        ("end_reason", 3),
        ("deterministic_actions", "no"),
        *pairs("random_baseline", 5, [], {}, evaluation_of([1.0], return_mean="x")),
        ("train_tasks", {"return_mean": 1.0}),
    ],
)
def test_results_with_other_values(key: str, value: Any, tmp_path: Path) -> None:
    run = solved_tmaze(tmp_path)
    with pytest.raises(UserError, match=key) as error:
        read(run, "result.json", result_of([1.0]) | {key: value})
    assert str(run / "result.json") in str(error.value)


@pytest.mark.parametrize("key", sorted(result_of([1.0]).keys() - {"train_tasks"}))
def test_results_without_a_key(key: str, tmp_path: Path) -> None:
    result = result_of([1.0])
    del result[key]
    with pytest.raises(UserError, match=rf"result\.json cannot be read \(it has no {key}\)"):
        read(solved_tmaze(tmp_path), "result.json", result)


@pytest.mark.parametrize(
    "command",
    [
        ["figure", "learning-curves", "run", "--output", "curve.png"],
        ["figure", "ablation-bars", "run", "--output", "bars.png"],
        ["push", "run", "--output", "policy", "--trials", "2"],
    ],
)
def test_commands_refuse_them_in_one_line(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    solved_tmaze(tmp_path).rename("run")
    for content in ({}, result_of([1.0], return_mean="x"), result_of([1.0], return_ci95=None, success_rate=[1])):
        Path("run/result.json").write_text(json.dumps(content))
        assert "run/result.json" in refused(capsys, *command)


def test_a_bar_of_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = solved_tmaze(tmp_path)
    (run / "result.json").write_text(json.dumps(result_of([1.0], end_reason="solved")))
    bars = ["figure", "ablation-bars", str(run), "--output", str(tmp_path / "bars.png"), "--metrics", "end_reason"]
    assert "no end_reason in the results of the runs: choose one of return_mean" in refused(capsys, *bars)


def test_what_a_run_writes_is_read_as_it_is(tmp_path: Path) -> None:
    result = result_of([1.0, 2.0], success_rate=0.5, end_reason=None, wall_seconds=2, unknown={"a": [1]})
    whole = result | {"random_baseline": evaluation_of([0.5]), "train_tasks": evaluation_of([0.25])}
    run = solved_tmaze(tmp_path)
    for each in (result, whole, result | {"random_baseline": None}):
        assert read(run, "result.json", each) == each
