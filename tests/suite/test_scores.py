"""Standardized scores and aggregates, against hand-computed ones and the paper's figure 3."""

import numpy as np
import pytest

from yamame.envs.popgym import POPGYM_NAMES
from yamame.tools.suite.reference import Reference, published_summaries, references
from yamame.tools.suite.scores import aggregate

AMAGO_STANDARDISED = {"AutoencodeEasy": 0.1395, "RepeatPreviousMedium": 0.1179, "RepeatPreviousHard": 0.0418}
"""The GRU's standardized scores in figure 3, where the published bounds are pinned well."""


def reference(**changes: float | None) -> Reference:
    known = {"gru": 0.2, "best_baseline": 0.6, "worst_baseline": -0.4, "paper": 0.85, "random": -0.5}
    return Reference(**{**known, **changes})  # type: ignore[arg-type]


def test_standardized_by_hand() -> None:
    exact = reference()
    assert exact.is_exact
    assert exact.standardized(-0.4) == 0.0
    assert exact.standardized(0.85) == 1.0
    assert exact.standardized(0.6) == pytest.approx(0.8)  # 1.0 / 1.25
    assert exact.standardized(1.1) == pytest.approx(1.2)
    assert reference(paper=0.5).standardized(0.6) == 1.0  # the best of all methods, whoever it is
    stand_in = reference(worst_baseline=None, paper=None)
    assert not stand_in.is_exact
    assert stand_in.standardized(0.05) == pytest.approx(0.5)  # between -0.5 and 0.6
    assert reference(paper=None, best_baseline=None).standardized(0.3) is None


@pytest.mark.parametrize(("name", "standardized"), AMAGO_STANDARDISED.items())
def test_the_grus_scores_are_those_of_the_papers_figure(name: str, standardized: float) -> None:
    known = references()[name]
    assert known.is_exact and known.gru is not None
    assert known.standardized(known.gru) == pytest.approx(standardized, abs=1e-3)


def test_the_shipped_figures_are_those_of_all_environments() -> None:
    assert set(references()) == set(POPGYM_NAMES) and len(POPGYM_NAMES) == 39
    assert all(-1.0 <= each.random <= 0.3 for each in references().values())
    worst = [(each.worst_baseline, each.random) for each in references().values() if each.worst_baseline is not None]
    assert len(worst) == 7 and max(abs(known - random) for known, random in worst) < 0.03
    # the environments whose figures are the medians of figure 3
    medians = {each.scale: each for each in published_summaries() if each.statistic == "median"}
    assert references()["MultiarmedBanditHard"].gru == float(medians["unstandardized"].gru) == 0.516
    means = {each.scale: each for each in published_summaries() if each.statistic == "mean"}
    assert float(means["unstandardized"].paper) == pytest.approx(0.629, abs=5e-4)
    assert means["standardized"].paper == "0.9545..0.9575"
    # 24 of the 39 have a published GRU figure; the mean over all leaves 3.25 for the other 15
    grus = [each.gru for each in references().values() if each.gru is not None]
    assert len(grus) == 24
    assert 39 * float(means["unstandardized"].gru) - sum(grus) == pytest.approx(3.25, abs=0.03)


def test_aggregates_by_hand() -> None:
    result = aggregate([[0.0, 0.2], [0.4, 0.6], [0.8, 1.0], [-9.0, 2.0]])
    assert result is not None
    assert (result.environments, result.runs) == (4, 8)
    assert result.mean == pytest.approx((0.1 + 0.5 + 0.9 - 3.5) / 4)
    assert result.interquartile_mean == pytest.approx(0.5)  # of 0.2 0.4 0.6 0.8
    assert result.mean_ci95 is not None and result.interquartile_mean_ci95 is not None
    assert result.mean_ci95[0] <= result.mean <= result.mean_ci95[1]
    assert result.interquartile_mean_ci95[0] < 0.5 < result.interquartile_mean_ci95[1]


def test_the_interval_is_stratified() -> None:
    """Environments that differ much, seeds that do not: only the seeds are drawn anew."""
    rng = np.random.default_rng(0)
    scores = [(level + rng.normal(0, 0.01, 3)).tolist() for level in np.linspace(-1, 1, 13)]
    result = aggregate(scores)
    assert result is not None and result.mean_ci95 is not None and result.interquartile_mean_ci95 is not None
    for low, high in (result.mean_ci95, result.interquartile_mean_ci95):
        assert 0.0 < high - low < 0.03


def test_intervals_cover_the_truth() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(60):
        result = aggregate([(level + rng.normal(0, 0.1, 6)).tolist() for level in (0.0, 0.5, 1.0)])
        assert result is not None and result.mean_ci95 is not None
        covered += result.mean_ci95[0] <= 0.5 <= result.mean_ci95[1]
    assert 48 <= covered < 60


def test_single_seeds_have_no_interval_and_nothing_no_aggregate() -> None:
    result = aggregate([[0.5], [0.7, 0.9]])
    assert result is not None and result.mean_ci95 is None and result.interquartile_mean_ci95 is None
    assert result.mean == pytest.approx(0.65)
    assert aggregate([]) is None
