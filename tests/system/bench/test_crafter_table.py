"""benchmarks/crafter_goals.py: the table and the bars of a run on Crafter."""

from pathlib import Path

import pytest
from scripts import script, train

from yamame.envs.crafter.goals import ACHIEVEMENTS

TINY_RUN = (
    "--env.horizon 8 --num-envs 2 --env-steps 32 --size tiny --eval.trials 2 --eval.final-trials 2 --eval.num-envs 2"
)


@pytest.mark.slow
def test_a_run_of_crafter_gives_a_row_for_every_goal_and_a_picture(tmp_path: Path) -> None:
    run = train("crafter", tmp_path / "crafter", TINY_RUN)
    done = script("crafter_goals", str(run), "--trials", "2")
    assert done.returncode == 0, done.stderr
    rows = dict(line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:])
    assert rows.keys() >= {name.replace("_", " ") for name in ACHIEVEMENTS}
    assert rows.keys() >= {"eat cow, make stone pickaxe, collect coal, make wood sword, defeat zombie"}
    assert rows.keys() >= {"travel to (30, 30)", "all random instructions"}
    assert rows["make iron sword"] == "0.00 [0.00, 0.66]"
    assert (run / "crafter_goals.png").stat().st_size > 10_000


@pytest.mark.slow
def test_other_runs_are_refused_in_one_line(tmp_path: Path) -> None:
    train("crafter", tmp_path / "wild", f"{TINY_RUN} --env.undirected")
    for folder, complaint in (
        ("nowhere", f"{tmp_path}/nowhere does not exist: yamame train creates one"),
        ("wild", f"{tmp_path}/wild is a run of crafter-undirected: give one of crafter without --env.undirected"),
    ):
        done = script("crafter_goals", str(tmp_path / folder))
        assert (done.returncode, done.stdout, done.stderr.splitlines()) == (2, "", [complaint])
