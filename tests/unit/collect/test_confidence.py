"""Intervals that cover what they should, as often as they say."""

import numpy as np
import pytest

from yamame.metrics.confidence import aggregate, bootstrap_ci95, mean_of, student_ci95, wilson_ci95


def covered(low: np.ndarray, high: np.ndarray, truth: float) -> float:
    return float(np.mean((low <= truth) & (truth <= high)))


@pytest.mark.parametrize("skewed", [False, True])
def test_bootstrap_intervals_cover_the_mean_19_times_in_20(skewed: bool) -> None:
    rng = np.random.default_rng(0)
    samples = rng.exponential(1.0, (100, 400)) if skewed else rng.normal(1.0, 2.0, (100, 400))
    low, high = bootstrap_ci95(samples)
    assert 0.9 < covered(low, high, 1.0) < 0.98
    middle, width = (low + high) / 2, high - low
    assert covered(middle - width / 4, middle + width / 4, 1.0) < 0.8  # half as wide covers less


def test_a_bootstrap_interval_is_about_four_standard_errors_wide() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, (400, 1))
    low, high = bootstrap_ci95(values)
    np.testing.assert_allclose(high - low, 2 * 1.96 * values.std() / 20, rtol=0.05)


def test_missing_values_do_not_count() -> None:
    full = np.random.default_rng(2).normal(size=(60, 1))
    ragged = np.concatenate([full, np.full((60, 1), np.nan)])
    (low,), (high,) = bootstrap_ci95(full)
    (ragged_low,), (ragged_high,) = bootstrap_ci95(ragged)
    np.testing.assert_allclose([ragged_low, ragged_high], [low, high], atol=0.05)
    both_low, both_high = bootstrap_ci95(np.column_stack([ragged, np.full(120, np.nan), np.full(120, 0.1)]))
    np.testing.assert_allclose([both_low[0], both_high[0]], [ragged_low, ragged_high])
    assert np.isnan(both_low[1]) and np.isnan(both_high[1])
    assert both_low[2] == both_high[2] == 0.1


def test_chunks_of_the_resampling_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).normal(size=(30, 3))
    whole = bootstrap_ci95(values)
    monkeypatch.setattr("yamame.metrics.confidence.MAX_CHUNK_VALUES", 1000)
    np.testing.assert_array_equal(bootstrap_ci95(values), whole)


def test_score_intervals_by_hand() -> None:
    # 0 and 10 of 10, and 45 of 100: Wilson's interval as tables have it
    low, high = wilson_ci95(np.array([0.0, 10.0, 45.0]), np.array([10.0, 10.0, 100.0]))
    np.testing.assert_allclose(low, [0.0, 0.7225, 0.3561], atol=1e-4)
    np.testing.assert_allclose(high, [0.2775, 1.0, 0.5476], atol=1e-4)


@pytest.mark.parametrize("rate", [0.02, 0.5, 0.97])
def test_score_intervals_cover_the_rate_19_times_in_20(rate: float) -> None:
    successes = np.random.default_rng(4).binomial(128, rate, 2000).astype(np.float64)
    assert 0.92 < covered(*wilson_ci95(successes, np.full(2000, 128.0)), rate) < 0.98


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_intervals_over_seeds_cover_the_mean_19_times_in_20(seeds: int) -> None:
    samples = np.random.default_rng(5).normal(1.0, 2.0, (seeds, 4000))
    assert 0.94 < covered(*student_ci95(samples), 1.0) < 0.96


def test_intervals_over_seeds_by_hand() -> None:
    assert mean_of([0.5]).ci95 is None
    half = 4.302653 * 0.1 / np.sqrt(3)  # quantile of Student's t with two degrees of freedom
    assert mean_of([0.1, 0.2, 0.3]).ci95 == pytest.approx((0.2 - half, 0.2 + half))
    assert mean_of([0.7, 0.7, 0.7]).ci95 == pytest.approx((0.7, 0.7))
    assert mean_of([0.9, 1.0], is_rate=True).ci95 == pytest.approx((0.95 - 12.7062 * 0.05, 1.0))


def test_a_missing_seed_does_not_count() -> None:
    low, high = student_ci95(np.array([[0.1, 0.1], [np.nan, 0.2], [0.3, np.nan]]))
    expected = [mean_of([0.1, 0.3]).ci95, mean_of([0.1, 0.2]).ci95]
    np.testing.assert_allclose(np.stack([low, high], axis=1), expected)


def test_aggregates_by_hand() -> None:
    result = aggregate([[0.0, 0.2], [0.4, 0.6], [0.8, 1.0], [-9.0, 2.0], [0.5, 0.5]])
    assert result is not None
    assert (result.num_envs, result.num_runs) == (5, 10)
    assert result.mean == pytest.approx((0.1 + 0.5 + 0.9 - 3.5 + 0.5) / 5)
    assert result.interquartile_mean == pytest.approx(0.5)  # of 0.2 0.4 0.5 0.5 0.6 0.8
    assert result.mean_ci95 is not None and result.interquartile_mean_ci95 is not None
    assert result.mean_ci95[0] <= result.mean <= result.mean_ci95[1]
    assert result.interquartile_mean_ci95[0] < 0.5 < result.interquartile_mean_ci95[1]


def test_the_interval_of_an_aggregate_is_stratified() -> None:
    """Environments differ much and seeds do not: only seeds are resampled."""
    rng = np.random.default_rng(0)
    result = aggregate([(level + rng.normal(0, 0.01, 3)).tolist() for level in np.linspace(-1, 1, 13)])
    assert result is not None and result.mean_ci95 is not None and result.interquartile_mean_ci95 is not None
    for low, high in (result.mean_ci95, result.interquartile_mean_ci95):
        assert 0.0 < high - low < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [1, 3, 15])
def test_mean_intervals_of_aggregates_cover_the_truth(num_envs: int) -> None:
    rng = np.random.default_rng(1)
    levels, spreads = np.linspace(0, 1, num_envs), np.linspace(0.1, 0.5, num_envs)
    bounds = []
    for _ in range(400):
        result = aggregate((levels[:, None] + spreads[:, None] * rng.normal(size=(num_envs, 3))).tolist())
        assert result is not None and result.mean_ci95 is not None
        bounds.append(result.mean_ci95)
    assert 0.92 < covered(*np.array(bounds).T, levels.mean()) < 0.99


def test_interquartile_intervals_cover_9_times_in_10() -> None:
    rng = np.random.default_rng(2)
    bounds = []
    for _ in range(300):
        result = aggregate((np.linspace(-1, 1, 9)[:, None] + 0.2 * rng.normal(size=(9, 3))).tolist())
        assert result is not None and result.interquartile_mean_ci95 is not None
        bounds.append(result.interquartile_mean_ci95)
    assert 0.9 < covered(*np.array(bounds).T, 0.0) < 0.98


def test_few_environments_have_no_interval_of_the_interquartile_mean() -> None:
    result = aggregate([[0.1, 0.2, 0.3]] * 4)
    assert result is not None and result.mean_ci95 is not None and result.interquartile_mean_ci95 is None


def test_an_aggregate_of_single_seeds_has_no_interval() -> None:
    result = aggregate([[0.5], [0.7, 0.9]])
    assert result is not None and result.mean_ci95 is None and result.interquartile_mean_ci95 is None
    assert result.mean == pytest.approx(0.65)
    assert aggregate([]) is None
