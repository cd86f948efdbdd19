"""benchmarks/maze_memory.py and delivery_memory.py: tables of what a run's memory holds."""

from pathlib import Path

import pytest
from scripts import script, train

TINY_RUN = (
    "--num-envs 4 --env-steps 160 --size tiny --eval.trials 2 --eval.final-trials 2 --eval.num-envs 2 "
    "--replay.batch-size 2"
)


def rows(text: str) -> dict[str, list[str]]:
    """The cells of all lines of tables, by the first of their line."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {name: cells for name, *cells in lines}


@pytest.mark.slow
def test_a_maze_gives_a_row_for_each_quarter_of_memory(tmp_path: Path) -> None:
    run = train("maze-runner", tmp_path / "maze", f"{TINY_RUN} --env.rewired --env.horizon 40 --context-length 20")
    done = script("maze_memory", str(run), "--trials", "32")
    assert done.returncode == 0, done.stderr
    table = rows(done.stdout)
    assert table.keys() == {"steps of memory", "0 to 4", "5 to 9", "10 to 14", "15 to 19"}
    del table["steps of memory"]
    for moves, recognized, random, entropy in table.values():
        assert int(moves) > 32
        assert float(recognized) < 0.5, "the agent is untrained"
        assert random == "0.20"
        assert 1.4 < float(entropy) <= 1.61, "it acts at random"


@pytest.mark.slow
def test_a_road_gives_rows_for_turns_and_for_drops(tmp_path: Path) -> None:
    run = train("package-delivery", tmp_path / "road", f"{TINY_RUN} --env-steps 720")
    done = script("delivery_memory", str(run), "--trials", "128")
    assert done.returncode == 0, done.stderr
    table = rows(done.stdout)
    assert table.keys() >= {"the right way", "the wrong way", "1", "2", "3"}
    for turns in ("the right way", "the wrong way"):
        visits, right, wrong, stays, *_ = map(float, table[turns])
        assert visits > 20
        assert right + wrong + stays == pytest.approx(1, abs=0.02)
        assert stays == pytest.approx(6 / 8, abs=0.25), "the agent is untrained, and two of eight actions turn"
    drops, another, random, *_ = map(float, table["1"])
    assert drops > 64
    assert random == 0.75
    assert another == pytest.approx(random, abs=0.2), "the agent is untrained"


@pytest.mark.slow
def test_other_runs_are_refused_in_one_line(tmp_path: Path) -> None:
    road = train("package-delivery", tmp_path / "road", f"{TINY_RUN} --env.horizon 40")
    blind = train("maze-runner", tmp_path / "blind", f"{TINY_RUN} --env.no-position --env.horizon 40")
    other = f"{blind} is a run of maze-runner-15x15-no-position: give one of Package Delivery"
    for name, run, trials, complaint in (
        ("maze_memory", tmp_path / "nowhere", "2", f"{tmp_path}/nowhere does not exist: yamame train creates one"),
        ("maze_memory", road, "2", f"{road} is a run of package-delivery-30: give one of MazeRunner"),
        ("maze_memory", blind, "2", f"{blind} needs discrete actions, a position and a world model"),
        ("delivery_memory", blind, "2", other),
        ("delivery_memory", road, "0", "--trials must be at least 1"),
    ):
        done = script(name, str(run), "--trials", trials)
        assert (done.returncode, done.stdout, done.stderr.splitlines()) == (2, "", [complaint])


@pytest.mark.slow
def test_windows_as_long_as_a_trial_are_the_carried_state_and_shorter_ones_are_not(tmp_path: Path) -> None:
    command = f"{TINY_RUN} --variant gru --env.horizon 8 --no-deterministic-actions"
    whole, short = (
        train("passive-tmaze", tmp_path / name, f"{command} --context-length {context}")
        for name, context in (("whole", 9), ("short", 1))
    )
    done = script("gru_window", str(whole), "--trials", "64")
    assert done.returncode == 0, done.stderr
    carried, windows = rows(done.stdout)["from the start of the trial"], rows(done.stdout)["of the last 10 timesteps"]
    assert carried == windows
    done = script("gru_window", str(short), "--trials", "2048")
    assert rows(done.stdout)["from the start of the trial"] != rows(done.stdout)["of the last 2 timesteps"]


@pytest.mark.slow
def test_a_transformer_has_no_state_to_carry(tmp_path: Path) -> None:
    run = train("passive-tmaze", tmp_path / "maze", f"{TINY_RUN} --env.horizon 4")
    done = script("gru_window", str(run))
    assert done.returncode == 2
    assert "no recurrent model" in done.stderr
