"""The trackers of a run: what they get, and that none can stop it. A tracker is one new file."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_config

from yamame.errors import UserError
from yamame.metrics import trackers
from yamame.metrics.logger import MetricLogger
from yamame.metrics.trackers.base import check_trackers, tracker_names
from yamame.training import tracking
from yamame.training.run_files import read_tracking

FILE = """
import {name}

from yamame.metrics.trackers.base import Tracker


class NotebookTracker(Tracker):
    def __init__(self, *, name, run_id, config):
        self.page = {name}.pages.setdefault(run_id, [])
        self.page.append(("start", name, config["env_steps"]))
        {name}.during("start")

    def log(self, env_steps, values):
        {name}.during("log")
        self.page.append((env_steps, dict(values)))

    def finish(self, ending, env_steps, result):
        {name}.during("finish")
        self.page.append((ending, env_steps, dict(result)))
"""
PACKAGE = "pages = {}\ndef during(method): pass\n"
RESULT: dict[str, Any] = {
    "return_mean": 2.0,
    "return_ci95": [1.0, 3.0],
    "return_per_attempt": [1.5, 2.5],
    "success_rate": None,
    "run_dir": "runs/mine",
}


@pytest.fixture(autouse=True)
def _trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two trackers, `notebook` and `diary`, and their packages."""
    files, packages = tmp_path / "trackers", tmp_path / "packages"
    files.mkdir()
    packages.mkdir()
    for name in ("notebook", "diary"):
        (files / f"{name}.py").write_text(FILE.format(name=name))
        (packages / f"{name}.py").write_text(PACKAGE)
    monkeypatch.setattr(trackers, "__path__", [*trackers.__path__, str(files)])
    monkeypatch.syspath_prepend(packages)
    yield
    for thread in threading.enumerate():
        if thread.name.startswith("tracker "):  # what it imports and prints is of this test
            thread.join(timeout=10)
    for name in ("notebook", "diary"):
        sys.modules.pop(name, None)
        sys.modules.pop(f"yamame.metrics.trackers.{name}", None)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = tmp_path / "mine"
    directory.mkdir()
    return directory


def package(name: str) -> Any:
    return __import__(name)


def write(logger: MetricLogger, *numbers: int) -> None:
    for number in numbers:
        values = {"loss/td": number / 4, "critic/q_normalized": float("nan")}
        logger.write(env_steps=100 * number, updates=number, wall_seconds=float(number), values=values)


def tracked(run: Path, *numbers: int, names: tuple[str, ...] = ("notebook",), cut: int | None = None) -> None:
    """A process of a run, which writes some lines; if it is resumed, after cutting its metrics to `cut` bytes."""
    with MetricLogger(run) as logger:
        if cut is not None:
            logger.truncate(cut)
        process = tracking.Tracking(run)
        process.start(tiny_config(), names, logger)
        write(logger, *numbers)
    process.finish("finished", RESULT)


def line(number: int) -> tuple[int, dict[str, float]]:
    return 100 * number, {"updates": number, "wall_seconds": float(number), "loss/td": number / 4}


END = {
    "result/return_mean": 2.0,
    "result/return_ci95_low": 1.0,
    "result/return_ci95_high": 3.0,
    "result/return_mean_attempt_1": 1.5,
    "result/return_mean_attempt_2": 2.5,
}


def test_a_tracker_gets_config_metrics_and_result(run: Path) -> None:
    tracked(run, 1, 2)
    record = read_tracking(run)
    assert record is not None and record.trackers == ("notebook",)
    expected = [("start", "mine", 400), line(1), line(2), ("finished", 200, END)]
    assert package("notebook").pages == {record.run_id: expected}


def test_trackers_get_no_bytes_of_file_names_that_are_no_text(tmp_path: Path) -> None:
    run = tmp_path / "run\udcff"
    with MetricLogger(tmp_path) as logger:
        process = tracking.Tracking(run)
        run.mkdir()
        process.start(tiny_config(init_from="a\udcff"), ("notebook",), logger)
        arguments = process._threads[0]._arguments
    process.finish("finished")
    assert arguments["name"] == r"run\udcff" and arguments["config"]["init_from"] == r"a\udcff"
    assert arguments["config"]["algorithm"] and arguments["config"]["num_envs"] == 8


def test_a_run_without_trackers_has_no_file_of_them(run: Path) -> None:
    tracked(run, 1, names=())
    assert read_tracking(run) is None and not (run / "tracking.json").exists()


def test_a_resumed_run_continues_without_repeating(run: Path) -> None:
    with MetricLogger(run) as logger:
        kept = logger.num_bytes
    tracked(run, 1, 2, 3)
    tracked(run, 1, 2, names=(), cut=kept)  # killed again before it had caught up
    tracked(run, 1, 2, 3, 4, names=(), cut=kept)
    (page,) = package("notebook").pages.values()
    assert [entry for entry in page if isinstance(entry[0], int)] == [line(1), line(2), line(3), line(4)]
    assert [entry[0] for entry in page if isinstance(entry[0], str)] == ["start", "finished"] * 3


def test_a_tracker_that_a_resumed_run_gets_has_its_earlier_metrics(run: Path) -> None:
    tracked(run, 1, 2)
    tracked(run, 3, names=("diary",))
    tracked(run, 4, names=())
    ((run_id, first),) = package("notebook").pages.items()
    assert [entry[0] for entry in first] == [
        *("start", 100, 200, "finished"),
        *("start", 300, "finished"),
        *("start", 400, "finished"),
    ]
    second = package("diary").pages[run_id]
    assert [entry[0] for entry in second] == ["start", 100, 200, 300, "finished", "start", 400, "finished"]


@pytest.mark.parametrize("where", ["start", "log", "finish"])
def test_a_failing_tracker_is_reported_once_and_dropped(
    where: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(method: str) -> None:
        if method == where:
            raise ConnectionError("no\nnetwork")

    monkeypatch.setattr(package("notebook"), "during", fail)
    tracked(run, 1, 2, 3, names=("notebook", "diary"))
    assert capsys.readouterr().err == "tracking with notebook failed: ConnectionError: no network\n"
    (page,) = package("diary").pages.values()
    assert [entry[0] for entry in page] == ["start", 100, 200, 300, "finished"]


@pytest.mark.parametrize("where", ["start", "log"])
def test_a_tracker_that_hangs_does_not_hold_the_run(
    where: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(package("notebook"), "during", lambda method: method != where or answer.wait())
    monkeypatch.setattr(tracking, "START_SECONDS", 0.0)
    monkeypatch.setattr(tracking, "FINISH_SECONDS", 0.0)
    tracked(run, 1, 2, 3)
    assert capsys.readouterr().err == "tracking with notebook failed: not everything was sent within 0 s\n"
    answer.set()


def test_names_are_those_of_the_files() -> None:
    assert tracker_names() == ["diary", "mlflow", "notebook", "trackio", "wandb"]
    check_trackers(["diary", "notebook"])
    with pytest.raises(UserError, match="unknown tracker 'nope': choose among diary, mlflow, notebook, trackio, wandb"):
        check_trackers(["notebook", "nope"])
    with pytest.raises(UserError, match=r"^track: expected a list, got 'diary' alone: pass track=\['diary'\]$"):
        check_trackers("diary")


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"tracking with diary needs the package diary: pip install 'yamame\[diary\]'"
    (tmp_path / "packages" / "diary.py").unlink()
    with pytest.raises(UserError, match=message):
        check_trackers(["diary"])
    (tmp_path / "packages" / "diary").mkdir()  # where a tracker of this name writes to
    with pytest.raises(UserError, match=message):
        check_trackers(["diary"])


@pytest.mark.parametrize("content", ['{"run_id": "../.."}', '{"trackers": []}', "[]", "{", '{"run_id": 3}'])
def test_a_corrupted_record_is_refused(content: str, run: Path) -> None:
    (run / "tracking.json").write_text(content)
    with pytest.raises(UserError, match=r"tracking\.json cannot be read|tracking"):
        read_tracking(run)
