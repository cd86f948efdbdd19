"""benchmarks/paper_runs.py: long runs that survive every interruption, and end early for stated reasons only."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from paper_endings import is_flat
from paper_picture import PANELS, draw
from paper_rows import ROWS, TINY_ITERATIONS, TINY_STEPS, Run, all_runs, anneal_env_steps
from paper_runs import require_same_config
from scripts import BENCHMARKS

from yamame.config.serialization import to_json
from yamame.errors import UserError
from yamame.metrics.registry import read_metrics
from yamame.recipes.settings.presets import replace_agent_fields
from yamame.runs.directory import CONFIG
from yamame.runs.durable_files import write_json

RUNS = ("maze-runner-15-seed0", "wind-default-seed1")
STEPS = 4 * TINY_STEPS
"""Environment steps of an iteration."""


def test_the_picture_has_the_runs_that_the_results_have(tmp_path: Path) -> None:
    records = json.loads((BENCHMARKS / "paper_runs.json").read_text())["runs"]
    assert {name for runs in PANELS.values() for name in runs.values()} <= records.keys()
    draw(records, tmp_path / "whole.png")
    draw({name: records[name] for name in RUNS}, tmp_path / "part.svg")
    assert (tmp_path / "whole.png").read_bytes().startswith(b"\x89PNG")
    drawn = (tmp_path / "part.svg").read_text()
    assert "seed 0" in drawn and "twice" not in drawn


def queue(folder: Path, *arguments: str) -> list[str]:
    """Return the command line of a tiny queue in a folder."""
    options = ["--tiny", "--runs-dir", str(folder), "--json", str(folder / "results.json"), "--rows", *RUNS]
    return [sys.executable, str(BENCHMARKS / "paper_runs.py"), *options, *arguments]


def results(folder: Path) -> dict[str, Any]:
    """Return the results without what a second run takes or a restart adds."""
    runs = json.loads((folder / "results.json").read_text())["runs"]
    own = ("seconds", "core_seconds")
    return {name: {key: run[key] for key in run if key not in own} for name, run in runs.items()}


def kill_at_step(folder: Path, run: str, env_steps: int, number: signal.Signals) -> int:
    """Start the queue, send it a signal when a run has made a number of steps, and return its exit code."""
    process = subprocess.Popen(queue(folder), stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not any(line["env_steps"] >= env_steps for line in read_metrics(folder / run)):
        time.sleep(0.01)
    os.kill(process.pid, number)
    _, errors = process.communicate()
    if number is signal.SIGTERM:
        assert "the same command continues" in errors.splitlines()[-1]
    return process.returncode


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_an_interrupted_queue_ends_with_the_results_of_one_that_was_not(tmp_path: Path) -> None:
    whole, interrupted = tmp_path / "whole", tmp_path / "interrupted"
    assert subprocess.run(queue(whole), check=False).returncode == 0
    assert kill_at_step(interrupted, RUNS[0], STEPS, signal.SIGKILL) == -signal.SIGKILL
    unfinished = results(interrupted)
    assert list(unfinished) == [RUNS[0]] and unfinished[RUNS[0]]["status"] == "unfinished"
    assert kill_at_step(interrupted, RUNS[1], STEPS, signal.SIGTERM) == 1
    assert [run["status"] for run in results(interrupted).values()] == ["finished", "unfinished"]
    (interrupted / "results.json").unlink()  # the run directories are enough
    assert subprocess.run(queue(interrupted), check=False).returncode == 0
    assert results(interrupted) == results(whole)
    for run in results(whole).values():
        assert run["status"] == "finished" and run["commit"] and run["curve"]
        assert run["steps"] >= TINY_ITERATIONS * STEPS
        assert run["return_mean"] is not None and run["random_return"] is not None

    table = subprocess.run(queue(whole, "--table"), capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split(" | ")[0] for line in table[2:]] == [f"| {name}" for name in RUNS]
    status = subprocess.run(queue(whole, "--status"), capture_output=True, text=True, check=True).stdout
    assert status.count("| finished |") == 2


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_a_run_that_fails_is_noted_and_the_next_begins(tmp_path: Path) -> None:
    (tmp_path / RUNS[0]).mkdir()
    (tmp_path / RUNS[0] / "mine.txt").write_text("not of a run")
    failed = subprocess.run(queue(tmp_path), capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and failed.stderr.endswith(
        f"not finished: {RUNS[0]}; the same command tries them again\n"
    )
    first, second = results(tmp_path).values()
    assert first["status"] == "failed" and "is not empty" in first["note"] and second["status"] == "finished"
    (tmp_path / RUNS[0] / "mine.txt").unlink()
    assert subprocess.run(queue(tmp_path), check=False).returncode == 0
    assert [run["status"] for run in results(tmp_path).values()] == ["finished", "finished"]


def test_only_a_changed_config_is_refused(tmp_path: Path) -> None:
    """A field that is newer than a run has its default there."""
    config = Run(next(row for row in ROWS if row.name == "maze-runner-15"), 0).config()
    content = to_json(config)
    del content["algorithm"]["agent"]["separate_gamma"]
    write_json(tmp_path / CONFIG, content)
    require_same_config(tmp_path, config)
    with pytest.raises(UserError, match=r"began with another config \(seed, agent.separate_gamma\)"):
        require_same_config(tmp_path, replace(replace_agent_fields(config, separate_gamma=0.99), seed=1))


def test_an_unknown_row_is_one_line(tmp_path: Path) -> None:
    failed = subprocess.run(queue(tmp_path, "maze-runner-16"), capture_output=True, text=True, check=False)
    assert failed.returncode == 2 and failed.stderr.startswith("no row 'maze-runner-16'")
    assert failed.stderr.count("\n") == 1 and not (tmp_path / "results.json").exists()


@pytest.mark.parametrize("row", [row for row in ROWS if not row.after], ids=lambda row: row.name)
def test_schedules_fit_the_length_of_a_run(row: Any) -> None:
    config = Run(row, row.seeds[-1]).config()
    assert config.seed == row.seeds[-1] and (row.env_steps or config.env_steps) == config.env_steps
    assert anneal_env_steps(config) <= config.env_steps / 2
    decay = config.algorithm.learner.lr_decay_updates  # type: ignore[attr-defined]
    assert not decay or decay == pytest.approx(config.total_updates, rel=0.01)
    if row.env_steps:
        assert config.env_steps / config.eval.interval_env_steps == pytest.approx(50, rel=0.01)
    if row.recipe:
        assert Run(row, 0).metadata().command == Run(row, 0).command()


def test_every_row_can_be_built_and_has_a_name_of_its_own() -> None:
    runs = list(all_runs())
    assert len({run.name for run in runs}) == len(runs) == 15 + 39
    for tiny in (False, True):
        for run in all_runs(tiny=tiny):
            config = run.config()
            assert config.total_updates >= 1
            assert getattr(config.env, "num_workers", 0) == 0  # one process


def curve(values: list[float], *, points: int = 50) -> list[tuple[int, float]]:
    return [(1000 * (i + 1) // points, value) for i, value in enumerate(values)]


WAVE = [0.1 * math.sin(40 * i) for i in range(50)]
"""What evaluations differ by without any change of the agent."""


def flat_from(values: list[float], annealed: int = 500) -> int | None:
    """Return the number of the first of 50 evaluations at which a curve counts as flat."""
    whole = curve(values)
    return next((n for n in range(1, 51) if is_flat(whole[:n], env_steps=1000, annealed=annealed)), None)


def test_a_curve_that_rises_is_never_flat() -> None:
    assert flat_from([i / 50 + WAVE[i] for i in range(50)]) is None


def test_a_curve_is_flat_once_it_has_not_risen_for_a_third_of_the_steps() -> None:
    stops_rising_at = 20
    ended = flat_from([min(i, stops_rising_at) / 20 + WAVE[i] for i in range(50)])
    assert ended is not None and 35 <= ended <= 42


def test_no_curve_is_flat_before_half_of_the_steps_or_with_few_evaluations() -> None:
    assert flat_from(WAVE, annealed=0) == 25
    few = [(100 * (i + 1), 0.0) for i in range(10)]
    assert not is_flat(few, env_steps=1000, annealed=500)


def test_a_late_rise_is_waited_for_while_noise_is_annealed() -> None:
    late = [(0.0 if i < 40 else (i - 40) / 10) + WAVE[i] for i in range(50)]
    assert flat_from(late, annealed=500) == 25
    assert flat_from(late, annealed=900) is None
