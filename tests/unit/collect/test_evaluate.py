import json

import numpy as np
import pytest
from fake_rollout import ScriptedEnvironments, WatchingPolicy, announces

from yamame.collect.statistics import TrialSummary
from yamame.errors import UserError
from yamame.training.evaluate import EvalResult, _aggregate, evaluate_policy


def short_then_long(env: int, trial: int) -> list[int]:
    """Every environment takes short and long trials in turn, environments 0, 2, ... a short one first."""
    return [1] if (env + trial) % 2 == 0 else [10]


def one_for_long_trials(place: np.ndarray, action: object) -> float:
    return float(place[3] == 9)


def evaluation_of(returns: list[float], seed: int = 0) -> EvalResult:
    return _aggregate([TrialSummary(length=1, return_per_attempt=[r], success=None) for r in returns], seed)


def test_short_trials_are_not_favoured():
    environments = ScriptedEnvironments(4, short_then_long, reward=one_for_long_trials)
    result = evaluate_policy(WatchingPolicy(), environments, trials=8, deterministic=True)
    assert result.trials == 8
    assert result.return_mean == 0.5
    np.testing.assert_array_equal(result.returns, [0, 1, 1, 0, 0, 1, 1, 0])  # environment by environment
    assert len(environments.executed) == 11  # no step more than the slowest quota needs


@pytest.mark.parametrize("trials", [1, 3, 4, 6, 9])
def test_exactly_so_many_trials_spread_evenly(trials):
    environments = ScriptedEnvironments(4, lambda env, trial: [1 + env], reward=lambda place, action: place[0])
    result = evaluate_policy(WatchingPolicy(), environments, trials=trials, deterministic=True)
    assert result.trials == len(result.returns) == trials
    quotas = [trials // 4 + (env < trials % 4) for env in range(4)]
    expected = [env * (1 + env) for env in range(4) for _ in range(quotas[env])]
    np.testing.assert_array_equal(result.returns, expected)


def test_no_noise_is_added_and_the_mode_is_passed_on():
    environments = ScriptedEnvironments(2, lambda env, trial: [3])
    modes = []

    class Constant(WatchingPolicy):
        def act(self, step, *, deterministic):
            modes.append(deterministic)
            return np.full(2, 3)

    evaluate_policy(Constant(), environments, trials=4, deterministic=False)
    assert modes == [False] * 6
    assert all((action == 3).all() for action in environments.executed)


def test_success_and_attempts():
    environments = ScriptedEnvironments(1, lambda env, trial: [1] * (1 + trial), reward=lambda place, action: place[2])
    result = evaluate_policy(WatchingPolicy(), environments, trials=4, deterministic=True)
    expected = [any(announces(trial, attempt) for attempt in range(1 + trial)) for trial in range(4)]
    assert result.success_rate == np.mean(expected)
    assert result.return_per_attempt == [0.0, 1.0, 2.0]  # a fourth attempt was started by one trial of four
    of_attempt = [[announces(trial, attempt) for trial in range(attempt, 4)] for attempt in range(3)]
    assert result.success_per_attempt == [np.mean(each) for each in of_attempt]
    assert result.success_per_attempt_ci95 is not None
    for attempt in range(3):
        assert result.return_per_attempt_ci95[attempt] == (attempt, attempt)  # all trials earned the same
        low, high = result.success_per_attempt_ci95[attempt]
        assert 0.0 <= low <= result.success_per_attempt[attempt] <= high <= 1.0 and low < high
    quiet = ScriptedEnvironments(1, lambda env, trial: [1], announces_success=False)
    silent = evaluate_policy(WatchingPolicy(), quiet, trials=1, deterministic=True)
    assert (silent.success_rate, silent.success_per_attempt, silent.success_per_attempt_ci95) == (None, None, None)


def test_the_interval_is_that_of_the_mean():
    returns = np.random.default_rng(1).normal(5.0, 2.0, 400)
    result = evaluation_of(returns.tolist())
    low, high = result.return_ci95
    half_width = 1.96 * returns.std() / 20
    np.testing.assert_allclose([low, high], [returns.mean() - half_width, returns.mean() + half_width], atol=0.03)
    assert evaluation_of(returns.tolist()).return_ci95 == result.return_ci95
    assert evaluation_of(returns.tolist(), seed=1).return_ci95 != result.return_ci95


@pytest.mark.parametrize("returns", [[2.0], [2.0] * 50])
def test_equal_returns_have_an_interval_of_no_width(returns):
    assert evaluation_of(returns).return_ci95 == (2.0, 2.0)


@pytest.mark.parametrize("returns", [[0.0, 1.0], [0.0] * 99 + [1.0]])
def test_lopsided_returns_have_a_finite_interval(returns):
    result = evaluation_of(returns)
    low, high = result.return_ci95
    assert 0.0 <= low <= result.return_mean <= high <= 1.0


def test_json_has_the_keys_of_the_command():
    environments = ScriptedEnvironments(2, lambda env, trial: [2, 1])
    report = json.loads(
        json.dumps(evaluate_policy(WatchingPolicy(), environments, trials=2, deterministic=True).to_json())
    )
    assert set(report) == {
        *("return_mean", "return_ci95", "return_per_attempt", "return_per_attempt_ci95", "trials"),
        *("success_rate", "success_per_attempt", "success_per_attempt_ci95"),
    }
    assert len(report["return_ci95"]) == 2
    assert report["trials"] == 2


def test_no_trials_is_a_mistake():
    environments = ScriptedEnvironments(1, lambda env, trial: [1])
    with pytest.raises(UserError, match="at least 1"):
        evaluate_policy(WatchingPolicy(), environments, trials=0, deterministic=True)


def test_same_seed_same_evaluation():
    def run() -> dict[str, object]:
        environments = ScriptedEnvironments(3, short_then_long)
        return evaluate_policy(
            WatchingPolicy(), environments, trials=7, deterministic=True, confidence_seed=5
        ).to_json()

    assert run() == run()


def test_a_task_that_signals_success_alone_has_the_success_rate_of_all_trials():
    trials = [TrialSummary(length=2, return_per_attempt=[1.0, 0.0], success=None) for _ in range(3)]
    trials.append(TrialSummary(length=1, return_per_attempt=[1.0], success=True, success_per_attempt=[True]))
    result = _aggregate(trials, 0)
    assert (result.success_rate, result.success_per_attempt) == (0.25, [0.25, 0.0])
