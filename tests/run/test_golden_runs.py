"""Runs that older versions left behind can still be read, judged and gone on with, and hold what they held.

For a new format of records or checkpoints, copy a small finished run of that day to `tests/golden/run-<day>` (without
`tensorboard`, pictures and locks) and write its hashes by

    YAMAME_BLESS=1 .venv/bin/pytest -n0 tests/run/test_golden_runs.py

which adds those of new folders to `tests/golden/hashes.json`. It never changes one that is there: what a folder holds
does not change, so a hash that does is a mistake in reading it. Everything that is hashed is named here, so that new
fields of a trajectory do not move it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from yamame.data.trajectory import Trajectory
from yamame.data.verify import iter_valid_trajectories, verify_store
from yamame.runs import evaluate as evaluate_run
from yamame.runs import load_model, read_config, resume
from yamame.tools.data import task_spec_of

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden"
HASHES = GOLDEN / "hashes.json"
RUNS = sorted(path.name for path in GOLDEN.glob("run-*"))
ARRAYS = ("reward", "action", "terminated", "truncated", "episode_start", "success")
ARRAYS_OF_GOALS = ("instruction", "achieved_step", "achieved_goal")
FACTS = ("task", "horizon", "policy_version", "noise_scale")
FACTS_OF_GOALS = ("tolerance", "hide_future_goals")


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a golden run, of the same name."""
    for picture in ("plot_learning_curve", "plot_attempts"):  # they take longer than tiny runs
        monkeypatch.setattr(f"yamame.tools.report.{picture}", lambda *_: None)
    return Path(shutil.copytree(GOLDEN / request.param, tmp_path / request.param))


def hash_of(named: Iterable[tuple[object, Any]]) -> str:
    """Of arrays with their types and shapes, and of plain values, in the order in which they come."""
    digest = hashlib.sha256()
    for name, value in named:
        if isinstance(value, np.ndarray):
            digest.update(f"{name} {value.dtype.str} {value.shape}\n".encode() + value.tobytes())
        else:
            digest.update(f"{name} {value!r}\n".encode())
    return digest.hexdigest()


def contents(trajectory: Trajectory) -> Iterable[tuple[str, Any]]:
    yield from trajectory.observation.items()
    yield from ((name, getattr(trajectory, name)) for name in (*ARRAYS, *FACTS))
    if trajectory.goals is not None:
        yield from ((name, getattr(trajectory.goals, name)) for name in (*ARRAYS_OF_GOALS, *FACTS_OF_GOALS))


def hashes_of_trajectories(run: Path) -> list[str]:
    """Oldest first."""
    return [hash_of(contents(each)) for each in iter_valid_trajectories(run / "replay", task_spec_of(run).schema)]


def measured(run: Path) -> dict[str, Any]:
    """What is recorded of a golden run."""
    trajectories = hashes_of_trajectories(run)
    agent, checkpoint = load_model(run)
    return {
        "trajectories": len(trajectories),
        "replay": hash_of(enumerate(trajectories)),
        "updates": checkpoint.step,
        "agent": hash_of(sorted((name, weights.numpy()) for name, weights in agent.state_dict().items())),
    }


def test_there_are_golden_runs() -> None:
    assert "run-2026-11-21" in RUNS


def test_it_holds_what_it_held(run: Path) -> None:
    golden = json.loads(HASHES.read_text()) if HASHES.exists() else {}
    found = verify_store(run / "replay", task_spec_of(run).schema)
    assert found.num_valid and (found.corrupted, found.quarantined) == ([], [])
    if os.environ.get("YAMAME_BLESS") and run.name not in golden:
        golden[run.name] = measured(run)
        HASHES.write_text(json.dumps(golden, indent=2) + "\n")
    assert measured(run) == golden[run.name]


def test_it_can_be_judged(run: Path) -> None:
    config = read_config(run)
    judged = evaluate_run(run, trials=8, seed=3)
    assert judged["trials"] == 8 and judged["env_steps"] == config.env_steps
    assert np.isfinite(judged["return_mean"])


def test_it_goes_on_to_another_end(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, longer = measured(run), read_config(run).env_steps + 200
    old = hashes_of_trajectories(run)
    summary = resume(run, env_steps=longer, quiet=True)
    assert summary["env_steps"] == longer and summary["updates"] > before["updates"]
    assert "damaged" not in capsys.readouterr().err
    found = verify_store(run / "replay", task_spec_of(run).schema)
    assert (found.corrupted, found.quarantined) == ([], [])
    now = hashes_of_trajectories(run)
    stayed = len([each for each in now if each in old])
    assert now[:stayed] == old[-stayed:] and 0 < stayed < len(now)
    assert read_config(run).env_steps == longer
    assert (run / "report.md").is_file() and load_model(run)[1].step == summary["updates"]
