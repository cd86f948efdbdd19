"""Exploration, relabeling and throughput: what is drawn is what the code does."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from yamame.collect.exploration import BilevelEpsilonGreedy, NoExploration
from yamame.config.serialization import to_json
from yamame.data.relabeling import Relabeler
from yamame.data.spaces import space_to_json
from yamame.data.verify import iter_valid_trajectories
from yamame.errors import UserError
from yamame.runs.checkpoint import load_latest_checkpoint
from yamame.tools.bench.benchmarks import LearnerBench
from yamame.tools.figures import exploration_schedule, relabeling_priorities, throughput
from yamame.training.run_files import read_config, read_task_spec
from yamame.training.state import load_goal_statistics

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_the_schedule_is_what_explores(tmaze: Path) -> None:
    run = tmaze / "full-seed-0"
    config, horizon = read_config(run), 4
    over_trial, over_training = exploration_schedule.draw([run], exploration_schedule.Options(num_stages=2)).axes
    one = np.ones(1)
    for line, env_steps in zip(over_trial.lines, (0, config.env_steps), strict=True):
        expected = [config.exploration.epsilon(np.array([step]), horizon, env_steps, one)[0] for step in range(horizon)]
        assert line.get_data()[0].tolist() == list(range(horizon)) and line.get_data()[1] == pytest.approx(expected)
    labels = [line.get_label() for line in over_training.lines]
    assert labels == ["first step of a trial", "middle of a trial", "last step of a trial"]
    for line, step in zip(over_training.lines, (0, 2, 3), strict=True):
        x, y = line.get_data()
        expected = [config.exploration.epsilon(np.array([step]), horizon, int(at), one)[0] for at in x]
        assert y == pytest.approx(expected) and x[-1] == config.env_steps
    assert over_trial.get_ylabel() == "probability of a random action"


def test_random_noise_scales_are_a_band(maze: Path) -> None:
    over_trial, over_training = exploration_schedule.draw([maze], exploration_schedule.Options()).axes
    assert len(over_trial.lines) == 5 and over_trial.get_ylabel() == "maximum probability of a random action"
    (band,) = over_training.collections
    corners = band.get_paths()[0].vertices
    first = corners[corners[:, 0] == 0, 1]
    assert first.min() == pytest.approx(0.1, abs=0.03) and first.max() == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize(
    ("space", "is_box"),
    [
        (spaces.Discrete(4), False),
        (spaces.Dict(a=spaces.Discrete(3), b=spaces.Discrete(2)), False),
        (spaces.Box(-1, 1, (2,)), True),
    ],
    ids=["discrete", "dict", "box"],
)
def test_the_band_of_log_uniform_scales_is_that_of_discrete_actions(
    maze: Path, tmp_path: Path, *, space: spaces.Space[Any], is_box: bool
) -> None:
    exploration = BilevelEpsilonGreedy(log_noise_scale=True, random_end_prob=0.25)
    (tmp_path / "config.json").write_text(json.dumps(to_json(replace(read_config(maze), exploration=exploration))))
    described = json.loads((maze / "spaces.json").read_text())
    described["action_space"] = space_to_json(space)
    (tmp_path / "spaces.json").write_text(json.dumps(described))
    horizon = read_task_spec(maze).horizon
    _, over_training = exploration_schedule.draw([tmp_path], exploration_schedule.Options()).axes
    (band,) = over_training.collections
    corners = band.get_paths()[0].vertices
    low, high = (0.1, 0.9) if is_box else (horizon**-0.9, horizon**-0.1)
    first = corners[corners[:, 0] == 0, 1]
    assert first.min() == pytest.approx(low, rel=0.3) and first.max() == pytest.approx(high, rel=0.1)
    assert ("with noise throughout" in band.get_label()) != is_box


def test_a_run_without_exploration(tmaze: Path, tmp_path: Path) -> None:
    config = replace(read_config(tmaze / "full-seed-0"), exploration=NoExploration())
    (tmp_path / "config.json").write_text(json.dumps(to_json(config)))
    (tmp_path / "spaces.json").write_text((tmaze / "full-seed-0/spaces.json").read_text())
    with pytest.raises(UserError, match="does not explore"):
        exploration_schedule.draw([tmp_path], exploration_schedule.Options())
    with pytest.raises(UserError, match="this figure shows one run, got 3"):
        exploration_schedule.draw([tmaze], exploration_schedule.Options())


@pytest.mark.parametrize("importance_sampling", [True, False])
def test_probs_are_those_by_which_relabeling_chooses(maze: Path, importance_sampling: bool) -> None:
    relabel = replace(read_config(maze).replay.relabel, importance_sampling=importance_sampling, mode="all")
    relabeler, statistics = Relabeler(relabel), load_goal_statistics(load_latest_checkpoint(maze / "checkpoints"))
    assert len(statistics.index) > 3
    trials = list(iter_valid_trajectories(maze / "replay", read_task_spec(maze).schema))
    candidates = max(filter(None, map(relabeler.candidates, trials)), key=lambda each: len(set(each[0].tolist())))
    probs = relabeler.first_choice_prob(*candidates, statistics)
    assert probs.sum() == pytest.approx(1)
    rng, draws = np.random.default_rng(0), 2000
    chosen = [relabeler._choose(*candidates, 1, statistics, rng)[0][0] for _ in range(draws)]
    steps, counts = np.unique(chosen, return_counts=True)
    drawn = dict(zip(steps.tolist(), (counts / draws).tolist(), strict=True))
    for step in set(candidates[0].tolist()):
        assert drawn.get(step, 0.0) == pytest.approx(probs[candidates[0] == step].sum(), abs=0.04)


def test_relabeling_prefers_what_is_rare(maze: Path) -> None:
    often, chosen = relabeling_priorities.draw([maze], relabeling_priorities.Options(num_goals=6)).axes
    statistics = load_goal_statistics(load_latest_checkpoint(maze / "checkpoints"))
    relabel = read_config(maze).replay.relabel
    found = relabeling_priorities.priorities(
        list(iter_valid_trajectories(maze / "replay", read_task_spec(maze).schema)),
        statistics,
        Relabeler(relabel),
        Relabeler(replace(relabel, importance_sampling=False)),
    )
    shown = [found[at] for at in np.linspace(0, len(found) - 1, 6).astype(int)]
    assert [bar.get_width() for bar in often.patches] == pytest.approx([100 * each.frequency for each in shown])
    rare, alike = ([bar.get_width() for bar in container] for container in chosen.containers)
    assert rare == pytest.approx([100 * each.importance for each in shown])
    assert alike == pytest.approx([100 * each.uniform for each in shown])
    texts = [label.get_text() for label in often.get_yticklabels()]
    assert texts == [f"({each.goal[0]:g}, {each.goal[1]:g})" for each in shown]
    assert f"6 of {len(found)} goals" in chosen.get_title()


def test_a_run_without_instructions(tmaze: Path) -> None:
    with pytest.raises(UserError, match=r"has no instructions .*: give a run with instructions"):
        relabeling_priorities.draw([tmaze / "full-seed-0"], relabeling_priorities.Options())


def answer(context: int, speed: float, **config: Any) -> dict[str, Any]:
    settings = {"context": context, "encoder": "transformer", "batch": 24, "size": "popgym", **config}
    machine = {
        "cpu": "A CPU", "cores": 2, "isa": ["avx2"], "memory_gib": 8.0, "gpu": None, "threads": 2, "torch": "2",
        "python": "3", "system": "Linux",
    }  # fmt: skip
    return {
        "bench": "learner", "updates_per_second": speed, "tokens_per_second": 24 * context * speed,
        "peak_memory_bytes": 2**30, "spread": {"updates_per_second": [speed / 2, 2 * speed]}, "config": settings,
        "machine": machine,
    }  # fmt: skip


def test_throughput_of_files(tmp_path: Path) -> None:
    lines = [answer(128, 2.0), answer(32, 8.0), answer(128, 1.0, encoder="gru"), answer(128, 4.0)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (axes,) = throughput.draw([tmp_path / "a.jsonl"], throughput.Options()).axes
    transformer, gru = axes.containers
    assert transformer.get_label() == "Transformer" and gru.get_label() == "GRU"
    assert transformer.lines[0].get_data()[0] == pytest.approx([32, 128])
    assert transformer.lines[0].get_data()[1] == pytest.approx([8.0, 3.0])
    ends = [segment[:, 1].tolist() for segment in transformer.lines[2][0].get_segments()]
    assert ends == pytest.approx(np.array([[4.0, 16.0], [1.0, 8.0]]))
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert any("A CPU, 2 cores" in text.get_text() for text in axes.texts)
    (axes,) = throughput.draw([tmp_path / "a.jsonl"], throughput.Options(metric="peak_memory_bytes")).axes
    assert set(axes.containers[1].lines[0].get_data()[1]) == {1.0} and "GiB" in axes.get_ylabel()


def test_throughput_of_the_stored_table() -> None:
    (record,) = sorted(BENCHMARKS.glob("*-2-cores-amd-epyc-avx2.json"))[-1:]
    (axes,) = throughput.draw([record], throughput.Options()).axes
    assert "tmaze, Transformer, full windows" in [container.get_label() for container in axes.containers]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"bench": "learner"}', '{"bench": "replay"}'])
def test_files_that_are_no_answers(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UserError, match="yamame bench learner --json"):
        throughput.draw([tmp_path / "x.json"], throughput.Options())


def test_throughput_measured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "LearnerBench", partial(LearnerBench, compile="off", warmup=1))
    options = throughput.Options(context_lengths=(4, 8), encoders=("gru",), size="tmaze", batch=1, repeats=1)
    (axes,) = throughput.draw([], options).axes
    (line,) = axes.containers
    assert line.lines[0].get_data()[0] == pytest.approx([4, 8]) and (np.array(line.lines[0].get_data()[1]) > 0).all()
