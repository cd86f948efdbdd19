"""benchmarks/maze_memory.py and delivery_memory.py: what a run remembers, in tables."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
TINY_RUN = "--num-envs 4 --env-steps 160 --size tiny --evaluation.trials 2 --replay.batch-size 2"


def table(script: str, run: Path, *, trials: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"benchmarks/{script}.py", str(run), "--trials", str(trials)]
    return subprocess.run(command, cwd=ROOT, env=ONE_THREAD, capture_output=True, text=True, check=False)


def train(recipe: str, run: Path, *arguments: str) -> Path:
    command = [sys.executable, "-m", "yamame", "train", recipe, "--run-dir", str(run), *TINY_RUN.split(), *arguments]
    subprocess.run(command, cwd=ROOT, env=ONE_THREAD, check=True, capture_output=True)
    return run


def rows(text: str) -> list[list[str]]:
    """The cells of all rows of tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {index - 1 for index, line in enumerate(lines) if line.startswith("|---")}
    return [
        line.strip("| ").split(" | ")
        for index, line in enumerate(lines)
        if index not in heads and not line.startswith("|---")
    ]


@pytest.mark.slow
def test_a_maze_gives_a_row_for_each_quarter_of_memory(tmp_path: Path) -> None:
    run = train("maze-runner", tmp_path / "maze", "--env.rewired", "--env.horizon", "40", "--context-length", "20")
    done = table("maze_memory", run, trials=8)
    assert done.returncode == 0, done.stderr
    assert [steps for steps, *_ in rows(done.stdout)] == ["0 to 4", "5 to 9", "10 to 14", "15 to 19"]
    for _, moves, recognised, chance, entropy in rows(done.stdout):
        assert int(moves) > 0
        assert 0 <= float(recognised) <= 1
        assert chance == "0.20"
        assert 0 < float(entropy) <= 1.61


@pytest.mark.slow
def test_a_road_gives_rows_for_turns_and_for_drops(tmp_path: Path) -> None:
    run = train("package-delivery", tmp_path / "road", "--env-steps", "720")
    done = table("delivery_memory", run, trials=128)
    assert done.returncode == 0, done.stderr
    drops = {ways: cells for ways, *cells in rows(done.stdout) if ways.isdigit()}
    assert drops.keys() == {"1", "2", "3"}
    count, another, chance, *_ = drops["1"]
    assert int(count) > 64
    assert chance == "0.75"
    assert abs(float(another) - 0.75) < 0.2, "an agent that has learned nothing drops at random"


@pytest.mark.slow
def test_other_runs_are_refused_in_one_line(tmp_path: Path) -> None:
    road = train("package-delivery", tmp_path / "road", "--env.horizon", "40")
    blind = train("maze-runner", tmp_path / "blind", "--env.no-position", "--env.horizon", "40")
    other = f"{blind} is a run of maze-runner-15x15-no-position: give one of Package Delivery"
    for script, run, trials, complaint in (
        ("maze_memory", tmp_path / "nowhere", 2, f"{tmp_path}/nowhere does not exist: yamame train makes one"),
        ("maze_memory", road, 2, f"{road} is a run of package-delivery-30: give one of MazeRunner"),
        ("maze_memory", blind, 2, f"{blind} needs discrete actions, a position and a world model"),
        ("delivery_memory", blind, 2, other),
        ("delivery_memory", road, 0, "--trials must be at least 1"),
    ):
        done = table(script, run, trials=trials)
        assert (done.returncode, done.stdout, done.stderr.splitlines()) == (2, "", [complaint])
