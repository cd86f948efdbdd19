"""Learning curves over seeds, by hand."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from yamame.envs.tmaze import PassiveTMazeConfig
from yamame.metrics.logger import MetricLogger
from yamame.metrics.registry import EVAL_RETURN, RETURN, read_metrics
from yamame.run_config import EvalConfig, OfflineConfig, RunConfig
from yamame.tools.plots import plot_learning_curve
from yamame.tools.study.curves import MAX_POINTS, RunCurve, mean_curve, run_curve
from yamame.training.state import TrainState


def curve(env_steps: Sequence[float], returns: Sequence[float], *, solved: bool = False) -> RunCurve:
    return RunCurve(x=np.array(env_steps, float), values=np.array(returns, float), solved=solved)


def test_a_curve_of_a_run_has_its_evaluations_and_ends_in_the_final_one(tmp_path: Path) -> None:
    with MetricLogger(tmp_path) as metrics:
        for env_steps, value in ((10, 0.5), (20, None), (30, float("nan")), (40, 1.5), (50, 9.0)):
            values = {RETURN: 7.0} | ({} if value is None else {EVAL_RETURN: value})
            metrics.write(env_steps=env_steps, updates=env_steps, wall_seconds=0.0, values=values)
    result = {"env_steps": 50, "return_mean": 2.0}
    config = RunConfig(env=PassiveTMazeConfig(horizon=3), env_steps=50, eval=EvalConfig(interval_env_steps=10))
    made = run_curve(tmp_path, result, config)
    assert made.x.tolist() == [10, 40, 50] and made.values.tolist() == [0.5, 1.5, 2.0]
    assert not made.solved
    state = TrainState()
    for _ in range(2):
        state.record_evaluation(1.0, EvalConfig(interval_env_steps=10, stop_return=1.0), env_steps=50)
    assert run_curve(tmp_path, {**result, "end_reason": state.end_reason}, config).solved
    shortened = replace(config, env_steps=80)
    for end_reason in ("it was enough", "solved enough", "pruned", None):
        assert not run_curve(tmp_path, {**result, "end_reason": end_reason}, shortened).solved
    # the final evaluation replaces one made shortly before
    rarely = replace(config, eval=EvalConfig(interval_env_steps=30))
    assert run_curve(tmp_path, result, rarely).x.tolist() == [10, 50]
    # the result of an unfinished run's policy has no wall seconds
    assert run_curve(tmp_path, result, config, x_axis="wall_seconds").values.tolist() == [0.5, 1.5, 9.0]


def test_a_purely_offline_run_has_all_its_evaluations_and_is_not_solved(tmp_path: Path) -> None:
    with MetricLogger(tmp_path) as metrics:
        for env_steps, values in ((10, {EVAL_RETURN: 0.5}), (20, {EVAL_RETURN: 1.5}), (40, {RETURN: 7.0})):
            metrics.write(env_steps=env_steps, updates=env_steps, wall_seconds=0.0, values=values)
    config = RunConfig(env=PassiveTMazeConfig(horizon=3), env_steps=40, eval=EvalConfig(interval_env_steps=10))
    result = {"env_steps": 0, "updates": 40, "return_mean": 2.0, "return_ci95": [1.0, 3.0]}
    made = run_curve(tmp_path, result, replace(config, offline=OfflineConfig(data=("histories",))))
    assert made.x.tolist() == [10, 20, 40] and made.values.tolist() == [0.5, 1.5, 2.0]
    assert not made.solved
    assert run_curve(tmp_path, result, config, x_axis="updates").x.tolist() == [10, 20, 40]
    with (tmp_path / "metrics.jsonl").open("a") as file:
        ends = {"eval/return_ci95_low": 0.0, "eval/return_ci95_high": 1.0}
        file.write(json.dumps({"env_steps": 50, "updates": 50, EVAL_RETURN: 0.5, **ends}) + "\n")
        file.write(json.dumps({"env_steps": 60, "updates": 60}) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        drawn: list[np.ndarray] = []
        patch.setattr("matplotlib.axes.Axes.errorbar", lambda axes, x, *_, **__: drawn.append(x))
        plot_learning_curve(tmp_path / "curve.png", read_metrics(tmp_path), result, None)
    assert [x.tolist() for x in drawn] == [[50, 60]]


def test_the_mean_is_over_common_steps() -> None:
    pair = [curve([0, 10, 20], [0, 1, 2]), curve([4, 10, 30], [2, 3, 8])]
    made = mean_curve(pair * 2)
    assert made is not None and made.ci95 is not None and made.seeds == ()
    assert made.x.tolist() == [4, 10, 20]
    assert made.mean == pytest.approx([(0.4 + 2) / 2, 2, (2 + 5.5) / 2])
    half = 3.18245 * np.array([0.8, 1.0, 1.75]) / np.sqrt(3)  # Student's t with three degrees of freedom
    assert made.ci95 == pytest.approx(np.stack([made.mean - half, made.mean + half]), rel=1e-4)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_seeds_are_curves_of_their_own_without_a_band(count: int) -> None:
    runs = [curve([0, 10], [seed, 2 * seed]) for seed in range(count)]
    made = mean_curve(runs)
    assert made is not None and made.ci95 is None
    assert [(x.tolist(), values.tolist()) for x, values in made.seeds] == (
        [] if count == 1 else [([0, 10], [seed, 2 * seed]) for seed in range(count)]
    )


def test_a_solved_curve_holds_its_value_and_an_unsolved_one_ends() -> None:
    solved, longer = curve([0, 10], [0, 1], solved=True), curve([0, 10, 30], [0, 0.5, 0.8])
    made = mean_curve([solved, longer])
    assert made is not None and made.x.tolist() == [0, 10, 30] and made.mean == pytest.approx([0, 0.75, 0.9])
    assert not made.solved
    both = mean_curve([solved, curve([0, 20], [0, 1], solved=True)])
    assert both is not None and both.x.tolist() == [0, 10, 20] and both.solved
    assert mean_curve([curve([10], [1]), curve([20], [1])]) is None


def test_long_curves_are_thinned() -> None:
    env_steps = np.arange(5000.0)
    made = mean_curve([curve(env_steps, env_steps), curve(env_steps, 3 * env_steps)])
    assert made is not None and len(made.x) == MAX_POINTS
    assert made.mean == pytest.approx(2 * made.x) and made.x[-1] == 4999
