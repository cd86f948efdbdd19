"""`yamame suite popgym`: makes what is missing, loses nothing, and tells what failed."""

import csv
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import many_runs
import pytest
from many_runs import SMALL, interrupt_in_round, refused, snapshot

from yamame.cli import main
from yamame.metrics import read_metrics
from yamame.run_dir import lock_run_dir
from yamame.tools.suite.results import collect_results

pytestmark = pytest.mark.slow

SUITE = ["suite", "popgym", "--envs", "MineSweeperEasy,HigherLowerEasy", "--env-steps", "256", *SMALL]
SUITE += ["--env.num-workers", "0", "--eval.interval-env-steps", "100", "--context-length", "8"]
RESULTS = {"results.csv", "results.md", "results.png"}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("yamame.train_run.write_report", lambda *_, **__: None)


def made(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The JSON object and what stderr said."""
    return many_runs.told(capsys, *SUITE, *args, code=code)


def test_makes_what_is_missing_and_leaves_what_is_finished(capsys: pytest.CaptureFixture[str]) -> None:
    told, err = made(capsys, "--seeds", "0")
    assert "[1/2] MineSweeperEasy seed 0" in err and "[2/2] HigherLowerEasy seed 0" in err
    suite = Path("suites/popgym")
    assert {path.name for path in suite.iterdir()} == {
        *("MineSweeperEasy-seed-0", "HigherLowerEasy-seed-0"),
        *RESULTS,
    }
    before = {run: snapshot(suite / run) for run in ("MineSweeperEasy-seed-0", "HigherLowerEasy-seed-0")}
    assert [row["environment"] for row in told["environments"]] == ["HigherLowerEasy", "MineSweeperEasy"]
    assert told["raw"]["mean_ci95"] is None and told["failed"] == {}

    told, err = made(capsys, "--seeds", "0,1")
    assert "[3/4]" in err and "[4/4]" in err and "seed 0" not in err
    assert all(snapshot(suite / run) == times for run, times in before.items())
    assert [row["seeds"] for row in told["environments"]] == [[0, 1], [0, 1]]
    low, high = told["raw"]["mean_ci95"]
    assert low <= told["raw"]["mean"] <= high
    again, err = made(capsys, "--seeds", "0,1")
    assert again == told and err == ""

    for row in told["environments"]:
        for seed, mmer in zip(row["seeds"], row["mmer"], strict=True):
            run = suite / f"{row['environment']}-seed-{seed}"
            returns = [line["eval/return_mean"] for line in read_metrics(run) if "eval/return_mean" in line]
            final = json.loads((run / "result.json").read_text())["return_mean"]
            assert returns and mmer == max([*returns, final])
    higher_lower, mine_sweeper = told["environments"]
    assert higher_lower["mmer_mean"] == pytest.approx(sum(higher_lower["mmer"]) / 2)
    bounds = -0.0093, 0.529  # random actions and the best baseline, as shipped
    expected = (higher_lower["mmer_mean"] - bounds[0]) / (bounds[1] - bounds[0])
    assert higher_lower["standardized"] == pytest.approx(expected) and not higher_lower["standardized_is_exact"]
    assert mine_sweeper["standardized"] is None and told["standardized"]["environments"] == 1

    capsys.readouterr()
    assert main(["suite", "popgym", "--report-only"]) == 0
    text = capsys.readouterr().out
    assert f"| {'HigherLowerEasy':15} | " in text and f"~{expected:.3f}" in text and "0.6293" in text
    assert text.strip() in (suite / "results.md").read_text()
    with (suite / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["mmer_mean"]) for row in rows] == [row["mmer_mean"] for row in told["environments"]]
    assert main(["suite", "popgym", "--report-only", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == told


def test_a_longer_suite_goes_on_and_other_settings_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    one = ["--envs", "MineSweeperEasy"]
    told, _ = made(capsys, *one)
    assert told["environments"][0]["env_steps"] == 256
    before = snapshot(Path("suites"))
    for flags, said in (
        (["--learner.learning-rate", "0.5"], "learner.learning_rate"),
        (["--env-steps", "64"], "env_st"),
    ):
        error = refused(capsys, *SUITE, *one, *flags)
        assert "other settings" in error and said in error and "--output-dir" in error
    assert snapshot(Path("suites")) == before
    told, err = made(capsys, *one, "--env-steps", "320")
    assert told["environments"][0]["env_steps"] == 320 and "[1/1]" in err


def test_a_failing_environment_does_not_stop_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from popgym import envs

    with monkeypatch.context() as patch:
        patch.setattr(envs.MineSweeperEasy, "step", lambda *_: 1 / 0)
        told, err = made(capsys, code=1)
    assert list(told["failed"]) == ["MineSweeperEasy seed 0"] and "ZeroDivisionError" in err
    assert "ZeroDivisionError" in told["failed"]["MineSweeperEasy seed 0"]
    assert [row["environment"] for row in told["environments"]] == ["HigherLowerEasy"]
    told, err = made(capsys)
    assert told["failed"] == {} and len(told["environments"]) == 2 and "HigherLowerEasy" not in err


def test_what_another_process_makes_is_left_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    run = Path("suites/popgym/MineSweeperEasy-seed-0")
    run.mkdir(parents=True)
    with lock_run_dir(run):
        told, _ = made(capsys)
    assert told["in_progress"] == ["MineSweeperEasy seed 0"] and told["failed"] == {}
    assert [row["environment"] for row in told["environments"]] == ["HigherLowerEasy"]


def test_what_was_killed_before_it_was_a_run_begins_anew_and_nothing_else_is_removed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    torn, foreign = (Path(f"suites/popgym/{name}-seed-0") for name in ("MineSweeperEasy", "HigherLowerEasy"))
    (torn / "replay").mkdir(parents=True)
    (torn / "lock").touch()
    (torn / "spaces.partial").write_text("{")
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("precious")
    told, _ = made(capsys, code=1)
    assert [row["environment"] for row in told["environments"]] == ["MineSweeperEasy"]
    assert "something else" in told["failed"]["HigherLowerEasy seed 0"]
    assert (foreign / "thesis.tex").read_text() == "precious"


def test_a_signal_ends_the_suite_and_the_same_command_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        interrupt_in_round(patch, 3)
        told, err = made(capsys, "--env-steps", "1000000")
    assert told["stopped_by"] == "SIGINT" and told["num_unfinished"] == 1 and told["environments"] == []
    assert "HigherLower" not in err
    run = Path("suites/popgym/MineSweeperEasy-seed-0")
    reached = read_metrics(run)[-1]["env_steps"]
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"env_steps": reached}))  # an end that is near
    told, _ = made(capsys, "--env-steps", str(reached + 64))
    assert told["num_unfinished"] == 0 and len(told["environments"]) == 2
    assert read_metrics(run)[-1]["env_steps"] == reached + 64


def test_after_kill_9_the_same_command_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    command = [*SUITE, "--env-steps", "1600", "--checkpoint.interval-seconds", "0", "--quiet"]
    program = str(Path(sys.executable).with_name("yamame"))
    run = Path("suites/popgym/HigherLowerEasy-seed-0")
    with subprocess.Popen(
        [program, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        deadline = time.monotonic() + 120
        while len(read_metrics(run)) < 4:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    first = Path("suites/popgym/MineSweeperEasy-seed-0")
    finished, torn = snapshot(first), read_metrics(run)
    assert (first / "result.json").exists() and not (run / "result.json").exists()
    assert collect_results(Path("suites/popgym")).unfinished == 1
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert snapshot(first) == finished and "MineSweeperEasy" not in err
    assert [row["env_steps"] for row in told["environments"]] == [1600, 1600]
    assert read_metrics(run)[: len(torn) - 2] == torn[:-2]  # it went on, it did not begin anew
    steps = [line["env_steps"] for line in read_metrics(run)]
    assert steps == sorted(set(steps)) and steps[-1] == 1600


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("", "arguments are required: SUITE"),
        ("atari --all", "unknown suite 'atari'"),
        ("popgym", "choose the environments by one of"),
        ("popgym --all --difficulty easy", "choose the environments by one of"),
        ("popgym --envs AutoencoderEasy", "did you mean 'AutoencodeEasy'?"),
        ("popgym --envs ,", "--envs is empty"),
        ("popgym --difficulty hardest", "choose among easy, medium, hard"),
        ("popgym --all --seeds 1,x", "'1,x' is not a list of numbers"),
        ("popgym --difficulty easy --learner.learning-rat 1", "did you mean --learner.learning-rate?"),
        ("popgym --difficulty easy --seed 3", "use --seeds"),
        ("popgym --difficulty easy --env.name X", "use --envs"),
        ("popgym --difficulty easy --variant no-memry", "choose among"),
        ("popgym --report-only", "does not exist"),
        ("popgym --report-only --env-steps 3", "of no use with --report-only"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(args: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "suite", *args.split())
    assert list(Path().iterdir()) == []


def test_an_empty_folder_has_an_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    assert main(["suite", "popgym", "--report-only", "--output-dir", "mine"]) == 0
    assert "nothing to count yet" in capsys.readouterr().out
    assert {path.name for path in Path("mine").iterdir()} == RESULTS
