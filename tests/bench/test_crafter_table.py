"""benchmarks/crafter_goals.py: the table and the bars of a run on Crafter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from yamame.environments.crafter_goals import ACHIEVEMENTS

ROOT = Path(__file__).parents[2]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
TINY_RUN = "--env.horizon 8 --num-envs 2 --env-steps 32 --size tiny --evaluation.trials 2"


def table(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "benchmarks/crafter_goals.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=ONE_THREAD, capture_output=True, text=True, check=False)


def train(run: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "yamame", "train", "crafter", "--run-dir", str(run), *TINY_RUN.split(), *arguments]
    subprocess.run(command, cwd=ROOT, env=ONE_THREAD, check=True, capture_output=True)


@pytest.mark.slow
def test_a_run_of_crafter_gives_a_row_for_every_goal_and_a_picture(tmp_path: Path) -> None:
    run = tmp_path / "crafter"
    train(run)
    done = table(str(run), "--trials", "2")
    assert done.returncode == 0, done.stderr
    rows = dict(line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:])
    assert rows.keys() >= {name.replace("_", " ") for name in ACHIEVEMENTS}
    assert rows.keys() >= {"eat cow, make stone pickaxe, collect coal, make wood sword, defeat zombie"}
    assert rows.keys() >= {"travel to (30, 30)", "all random instructions"}
    assert rows["make iron sword"] == "0.00 [0.00, 0.66]"
    assert (run / "crafter_goals.png").stat().st_size > 10_000


@pytest.mark.slow
def test_other_runs_are_refused_in_one_line(tmp_path: Path) -> None:
    train(tmp_path / "wild", "--env.undirected")
    for folder, complaint in (
        ("nowhere", f"{tmp_path}/nowhere does not exist: yamame train makes one"),
        ("wild", f"{tmp_path}/wild is a run of crafter-undirected: give one of crafter without --env.undirected"),
    ):
        done = table(str(tmp_path / folder))
        assert (done.returncode, done.stdout, done.stderr.splitlines()) == (2, "", [complaint])
