"""`yamame tune`: what it searches, prunes, resumes and reports."""

import json
import pickle
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_runs import SMALL, interrupt_in_iteration, output_json, refused
from documents import blocks
from guide_reader import DOCS
from sweep_runs import FakeTrain

from yamame.algorithms.ppo.config import PPOConfig
from yamame.cli import main
from yamame.recipes import load_recipe, with_algorithm
from yamame.runs.directory import RESULT
from yamame.tools.study.execute import PlannedRun
from yamame.training.callbacks import Callback, RunProgress
from yamame.training.run_files import read_config

pytest.importorskip("optuna")
from yamame.tools.tune import report, study, trial

TINY = ["--env.horizon", "3", "--env-steps", "256", "--eval.interval-env-steps", "64", *SMALL]
SEARCH = ["--search", "learner.learning_rate=log:1e-4..1e-2", "--search", "replay.batch_size=8,16"]

COMMANDS_OF_THE_PAGE = [
    line for block in blocks(DOCS / "tuning.md", "console") for line in block.splitlines() if "--ray" in line
]


class FakeTune(FakeTrain):
    """Evaluates four times; the return is best at a learning rate of 1e-3 with batches of 16."""

    def __init__(self) -> None:
        super().__init__()
        self.evaluations: dict[str, int] = {}

    def __call__(self, run: PlannedRun, quiet: bool, callbacks: Sequence[Callback] = ()) -> Mapping[str, Any]:
        rate, batch = run.config.algorithm.learner.learning_rate, run.config.replay.batch_size  # type: ignore[attr-defined]
        score = -abs(np.log10(rate) + 3) - (batch == 8)
        progress = RunProgress(run.directory, run.config)
        for number in range(1, 5):
            self.evaluations[run.series] = number
            progress.env_steps = number * run.config.eval.interval_env_steps
            progress.evaluation = SimpleNamespace(return_mean=number / 4 * 10 + score)  # type: ignore[assignment]
            for callback in callbacks:
                callback.on_evaluation(progress)
            if progress.stop_reason:
                break
        result = dict(super().__call__(run, quiet))
        if "stopped_by" not in result:
            result |= {"return_mean": score, "end_reason": progress.stop_reason or "all environment steps made"}
            (run.directory / RESULT).write_text(json.dumps(result))
        return result


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTune:
    train = FakeTune()
    monkeypatch.setattr(trial, "train_or_resume", train)
    return train


@pytest.fixture
def tune(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    def run(*flags: str, code: int = 0) -> dict[str, Any]:
        directory = str(tmp_path / "search")
        return output_json(capsys, "tune", "passive-tmaze", *SEARCH, "--output-dir", directory, *flags, code=code)[0]

    return run


@pytest.mark.slow
def test_it_finds_good_settings_and_prunes_bad_ones(
    fake: FakeTune, tune: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    found = tune("--trials", "25", "--env.horizon", "20")
    states = [trial["state"] for trial in found["trials"]]
    assert len(states) == 25 and set(states) == {"complete", "pruned"}
    pruned = [trial for trial in found["trials"] if trial["state"] == "pruned"]
    assert all(fake.evaluations[f"trial-{trial['trial']:04}"] < 4 for trial in pruned)
    assert all(fake.evaluations[f"trial-{trial['trial']:04}"] == 4 for trial in found["trials"] if trial not in pruned)
    best = found["trials"][found["best"]["trial"]]
    assert best["return_mean"] == found["best"]["return_mean"] > -0.3
    assert best["settings"]["--replay.batch-size"] == "16"
    command = shlex.split(found["best"]["command"])
    assert command[:5] == ["yamame", "train", "passive-tmaze", "--env.horizon", "20"]
    assert command[5:] == [word for setting in best["settings"].items() for word in setting]
    directory = tmp_path / "search"
    assert found["best"]["command"] in (directory / "results.md").read_text()
    assert json.loads((directory / "results.json").read_text())["trials"] == found["trials"]
    assert (directory / "search.png").stat().st_size > 10_000


@pytest.mark.slow
def test_settings_of_another_algorithm_are_searched(
    fake: FakeTune, tune: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    found = tune("--trials", "2", "--algorithm", "ppo", "--search", "learner.entropy_coef=log:1e-3..1e-1")
    command = shlex.split(found["best"]["command"])
    assert command[:5] == ["yamame", "train", "passive-tmaze", "--algorithm", "ppo"]
    assert "--learner.entropy-coef" in command
    runs = [read_config(tmp_path / "search" / f"trial-000{number}") for number in range(2)]
    assert all(isinstance(config.algorithm, PPOConfig) for config in runs)
    recipe = with_algorithm(load_recipe("passive-tmaze"), "ppo")
    assert pickle.loads(pickle.dumps(recipe)).make_config(recipe.env) == recipe.make_config(recipe.env), "for --workers"


def test_without_pruning_every_trial_ends(fake: FakeTune, tune: Callable[..., dict[str, Any]]) -> None:
    assert {trial["state"] for trial in tune("--trials", "12", "--no-pruning")["trials"]} == {"complete"}
    assert set(fake.evaluations.values()) == {4}


def test_progress_counts_the_trials_of_the_search(
    fake: FakeTune, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", "passive-tmaze", *SEARCH, "--output-dir", str(tmp_path / "search")]
    for trials, expected in (("2", ["[1/2]", "[2/2]"]), ("3", ["[3/3]"]), ("3", [])):
        _, err = output_json(capsys, *command, "--trials", trials)
        assert re.findall(r"\[\d+/\d+\]", err) == expected


def test_a_count_of_trials_has_no_halves(tmp_path: Path, fake: FakeTune, capsys: pytest.CaptureFixture[str]) -> None:
    drawn: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "save", lambda figure, path: drawn.append(figure))
        search = ["--search", "replay.batch_size=8..9", "--trials", "2"]
        output_json(capsys, "tune", "passive-tmaze", "--output-dir", str(tmp_path / "search"), *search)
    trials, sizes, *_ = drawn[-1].axes
    for axes in (trials, sizes):
        assert all(tick == round(tick) for tick in axes.get_xticks()), axes.get_xlabel()


def test_a_stopped_search_goes_on_where_it_was(fake: FakeTune, tune: Callable[..., dict[str, Any]]) -> None:
    fake.stop_at = "trial-0002 seed 0"
    stopped = tune("--trials", "4")
    assert stopped["stopped_by"] == "SIGINT"
    assert [trial["state"] for trial in stopped["trials"]] == ["complete", "complete", "running"]
    fake.stop_at, before = "", stopped["trials"]
    finished = tune("--trials", "4")
    assert fake.titles == [f"trial-000{number} seed 0" for number in (0, 1, 2, 2, 3)]
    assert [trial["state"] for trial in finished["trials"]] == ["complete"] * 4
    assert finished["trials"][:2] == before[:2] and finished["trials"][2]["settings"] == before[2]["settings"]
    assert len({json.dumps(trial["settings"]) for trial in finished["trials"]}) == 4
    assert tune("--trials", "4")["trials"] == finished["trials"] and len(fake.titles) == 5


@pytest.mark.slow
def test_a_search_that_was_killed_while_it_proposed_proposes_the_same(
    fake: FakeTune, tune: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    expected = tune("--trials", "14")["trials"]
    journal = tmp_path / "search/study.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    proposed = [n for n, line in enumerate(lines) if b'"param_name"' in line and b'"trial_id":13' in line]
    assert len(proposed) == 2
    for cut in (proposed[0], proposed[1], proposed[1] + 1):  # no setting, one of two, both; the next line is torn
        journal.write_bytes(b"".join(lines[:cut]) + lines[cut][: len(lines[cut]) // 2])
        shutil.rmtree(tmp_path / "search/trial-0013")
        assert tune("--trials", "14")["trials"] == expected
    assert "trial-0013 seed 0" in fake.titles[-1]


def test_failed_trials_are_named_and_the_others_made(fake: FakeTune, tune: Callable[..., dict[str, Any]]) -> None:
    fake.errors["trial-0001 seed 0"] = RuntimeError("no such thing")
    found = tune("--trials", "3", code=1)
    assert [trial["state"] for trial in found["trials"]] == ["complete", "fail", "complete"]
    assert found["trials"][1]["error"] == "RuntimeError: no such thing" == found["failed"]["trial-0001 seed 0"]


def test_mistakes_are_one_line(
    fake: FakeTune, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = ["--output-dir", str(tmp_path / "search")]
    assert main(["tune", "passive-tmaze", *SEARCH, *directory, "--trials", "1", "--quiet"]) == 0
    for flags, expected in (
        ([], "--search is missing"),
        (["--search", "learner.lerning_rate=1..2"], "did you mean learner.learning-rate?"),
        ([*SEARCH, "--trials", "0"], "--trials is 0"),
        ([*SEARCH, "--workers", "0"], "--workers is 0"),
        ([*SEARCH, "--run-dir", "x"], "use --output-dir"),
        ([*SEARCH, "--eval.interval-env-steps", "0"], "pass --no-pruning"),
        ([*SEARCH, "--horizon", "3"], "unknown flag --horizon"),
        ([*SEARCH, "--env.horizon", "3"], "holds a search with other flags or another space"),
        ([*SEARCH[:2]], "holds a search with other flags or another space"),
    ):
        assert expected in refused(capsys, "tune", "passive-tmaze", *flags, *directory)
    monkeypatch.setattr("yamame.tools.tune.study.FileLock", _Locked)
    assert "another process searches" in refused(capsys, "tune", "passive-tmaze", *SEARCH, *directory)


def test_mistakes_of_the_cluster_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "search"

    def line(*flags: str) -> str:
        return refused(capsys, "tune", "passive-tmaze", *SEARCH, "--output-dir", str(directory), *flags)

    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        assert line("--ray", "local") == "yamame: --ray local needs Ray: pip install 'yamame[ray]'\n"
    pytest.importorskip("ray")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        assert f"--ray {address} does not answer" in line("--ray", address)
        for command in COMMANDS_OF_THE_PAGE:
            words = [address if word in ("auto", "HOST:6379") else word for word in shlex.split(command)[2:]]
            assert f"--ray {address} does not answer" in refused(capsys, *words)
    for flags, expected in (
        (["--ray", ":x"], "--ray :x is no address"),
        (["--ray", "local", "--ray.address", "auto", "--ray.num-collectors", "2"], "leave out --ray.address"),
        (["--ray", "local", "--num-learners", "2"], "leave out --num-learners"),
        (["--ray", "local", "--search", "num_learners=1,2"], "leave out --num-learners"),
        (["--cpus-per-trial", "2"], "--cpus-per-trial needs --ray ADDRESS"),
        (["--ray", "local", "--gpus-per-trial", "1.5"], "a whole number, or a fraction below 1"),
        (["--ray", "local", "--cpus-per-trial", "0"], "--cpus-per-trial is 0"),
    ):
        assert expected in line(*flags)
    assert not directory.exists()


class _Locked:
    def __init__(self, path: Path, timeout: float) -> None:
        self._path = path

    def __enter__(self) -> None:
        raise study.Timeout(str(self._path))

    def __exit__(self, *error: object) -> None: ...


@pytest.mark.slow
def test_real_trials_are_runs_that_continue_after_a_signal(
    tune: Callable[..., dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with monkeypatch.context() as patch:
        interrupt_in_iteration(patch, 2)
        assert tune("--trials", "1", *TINY)["stopped_by"] == "SIGINT"
    found = tune("--trials", "1", *TINY)
    assert found["trials"][0]["state"] == "complete" and "stopped_by" not in found
    command = shlex.split(found["best"]["command"])[1:]
    alone, _ = output_json(capsys, *command, "--run-dir", str(tmp_path / "alone"))
    result = json.loads((tmp_path / "search" / "trial-0000" / RESULT).read_text())
    assert alone["return_mean"] == result["return_mean"] == found["best"]["return_mean"]


@pytest.mark.slow
@pytest.mark.thorough
def test_workers_are_processes(tune: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    found = tune("--trials", "2", "--workers", "2", *TINY)
    assert [trial["state"] for trial in found["trials"]] == ["complete"] * 2
    for number in range(2):
        assert (tmp_path / "search" / f"trial-000{number}" / RESULT).exists()
