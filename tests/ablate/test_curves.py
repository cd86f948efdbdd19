"""Learning curves over seeds: by hand, and in a picture."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from yamame.config import EvalConfig, RunConfig
from yamame.envs.tmaze import PassiveTMazeConfig
from yamame.metrics import EVAL_RETURN, RETURN, MetricLogger
from yamame.tools.ablate.arms import Arm
from yamame.tools.ablate.curves import MAX_POINTS, RunCurve, mean_curve, run_curve
from yamame.tools.ablate.figure import draw_curves
from yamame.tools.ablate.results import AblationResults, ArmResult, FinishedRun
from yamame.tools.ablate.statistic import mean_of
from yamame.tools.plots import COLORS, RANDOM_COLOR


def curve(env_steps: Sequence[float], returns: Sequence[float], *, solved: bool = False) -> RunCurve:
    return RunCurve(x=np.array(env_steps, float), values=np.array(returns, float), solved=solved)


def test_a_runs_curve_has_its_evaluations_and_ends_in_the_final_one(tmp_path: Path) -> None:
    with MetricLogger(tmp_path) as metrics:
        for env_steps, value in ((10, 0.5), (20, None), (30, float("nan")), (40, 1.5), (50, 9.0)):
            values = {RETURN: 7.0} | ({} if value is None else {EVAL_RETURN: value})
            metrics.write(env_steps=env_steps, updates=env_steps, wall_seconds=0.0, values=values)
    result = {"env_steps": 50, "return_mean": 2.0}
    config = RunConfig(env=PassiveTMazeConfig(horizon=3), env_steps=50, eval=EvalConfig(interval_env_steps=10))
    made = run_curve(tmp_path, result, config)
    assert made.x.tolist() == [10, 40, 50] and made.values.tolist() == [0.5, 1.5, 2.0]
    assert not made.solved
    assert run_curve(tmp_path, result, replace(config, env_steps=80)).solved
    # what was judged shortly before the end is judged better at the end
    rarely = replace(config, eval=EvalConfig(interval_env_steps=30))
    assert run_curve(tmp_path, result, rarely).x.tolist() == [10, 50]


def test_the_mean_is_over_common_steps() -> None:
    made = mean_curve([curve([0, 10, 20], [0, 1, 2]), curve([4, 10, 30], [2, 3, 8])])
    assert made is not None and made.ci95 is not None
    assert made.x.tolist() == [4, 10, 20]
    assert made.mean == pytest.approx([(0.4 + 2) / 2, 2, (2 + 5.5) / 2])
    # of two seeds the interval is their range
    assert made.ci95 == pytest.approx(np.array([[0.4, 1, 2], [2, 3, 5.5]]))


def test_what_is_solved_stays_solved_and_what_merely_ends_does_not() -> None:
    solved, longer = curve([0, 10], [0, 1], solved=True), curve([0, 10, 30], [0, 0.5, 0.8])
    made = mean_curve([solved, longer])
    assert made is not None and made.x.tolist() == [0, 10, 30] and made.mean == pytest.approx([0, 0.75, 0.9])
    assert not made.solved
    both = mean_curve([solved, curve([0, 20], [0, 1], solved=True)])
    assert both is not None and both.x.tolist() == [0, 10, 20] and both.solved
    assert mean_curve([curve([10], [1]), curve([20], [1])]) is None


def test_a_single_seed_has_no_band() -> None:
    made = mean_curve([curve([0, 10], [0, 1])])
    assert made is not None and made.ci95 is None and made.mean.tolist() == [0, 1]
    assert mean_of([0.5]).ci95 is None
    several = mean_of([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert several.ci95 is not None and several.mean == pytest.approx(0.35)
    assert 0.1 < several.ci95[0] < 0.3 and 0.4 < several.ci95[1] < 0.6


def test_long_curves_are_thinned() -> None:
    env_steps = np.arange(5000.0)
    made = mean_curve([curve(env_steps, env_steps), curve(env_steps, 3 * env_steps)])
    assert made is not None and len(made.x) == MAX_POINTS
    assert made.mean == pytest.approx(2 * made.x) and made.x[-1] == 4999


def shows(path: Path, color: str, strength: float = 1.0) -> bool:
    """Whether a picture has more than a few pixels of a colour, laid over white in this strength."""
    pixels = np.round(matplotlib.image.imread(path)[..., :3] * 255).astype(int)
    ink = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)])
    return bool((np.abs(pixels - np.round(255 - strength * (255 - ink))) <= 1).all(-1).sum() > 100)


@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("arms", [1, 2, 9])
def test_the_picture_has_a_line_and_a_band_for_each_arm(tmp_path: Path, arms: int, seeds: int) -> None:
    def arm(number: int) -> ArmResult:
        returns = [[10 * number, 10 * number + seed] for seed in range(0, 6, 2)[:seeds]]
        runs = [
            FinishedRun(directory=tmp_path, seed=seed, result={}, curve=curve([0, 2_000_000], of_seed))
            for seed, of_seed in enumerate(returns)
        ]
        return ArmResult(arm=Arm("full" if number == 0 else f"variant-{number}"), runs=runs)

    picture = tmp_path / "curves.png"
    random_return = -5.0 if seeds == 3 else None
    every = [arm(number) for number in range(arms)]
    draw_curves(picture, AblationResults(recipe="a", arms=every, random_return=random_return, unfinished=0))
    for number, color in enumerate(COLORS[:-1]):  # the last one is that of the axes
        assert shows(picture, color) == (number < arms)
        if number < min(arms, 4):
            assert shows(picture, color, 0.15) == (seeds > 1)
    assert shows(picture, RANDOM_COLOR) == (random_return is not None)


def test_a_curve_of_one_point_is_seen(tmp_path: Path) -> None:
    run = FinishedRun(directory=tmp_path, seed=0, result={}, curve=curve([50], [1]))
    results = AblationResults(
        recipe="a", arms=[ArmResult(arm=Arm("full"), runs=[run])], random_return=None, unfinished=0
    )
    draw_curves(tmp_path / "point.png", results)
    assert shows(tmp_path / "point.png", COLORS[0])
    draw_curves(tmp_path / "empty.png", AblationResults(recipe="a", arms=[], random_return=None, unfinished=0))
    assert not shows(tmp_path / "empty.png", COLORS[0])
