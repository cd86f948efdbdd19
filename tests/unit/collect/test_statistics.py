import json

import numpy as np

from yamame.collect.statistics import TrialStats, mean_per_attempt, summarize_trial
from yamame.data.trajectory import Trajectory


def trial(*attempts: list[float], success: list[bool] | None = None) -> Trajectory:
    """A trial with these rewards in its attempts."""
    reward = np.concatenate(attempts).astype(np.float32)
    starts = [step == 0 for attempt in attempts for step in range(len(attempt))]
    length = len(reward)
    return Trajectory(
        reward=reward,
        action=np.zeros(length, np.int64),
        terminated=np.arange(length) == length - 1,
        truncated=np.zeros(length, np.bool_),
        episode_start=np.array([*starts, False]),
        observation={"observation": np.zeros((length + 1, 1), np.float32)},
        success=None if success is None else np.array(success),
        horizon=100,
    )


def test_nothing_to_say_before_the_first_trial():
    assert TrialStats().metrics() == {}
    assert TrialStats().return_per_attempt == []


def test_means_by_hand():
    statistics = TrialStats()
    statistics.extend([summarize_trial(trial([1, 2], [4], success=[False, True, False]))])
    statistics.extend([summarize_trial(trial([5], success=[False]))])
    assert statistics.metrics() == {
        "rollout/num_trials": 2.0,
        "rollout/return_mean": 6.0,
        "rollout/trial_length_mean": 2.0,
        "rollout/success_rate": 0.5,
        "rollout/return_mean_attempt_1": 4.0,
        "rollout/return_mean_attempt_2": 4.0,
    }
    assert statistics.return_per_attempt == [4.0, 4.0]


def test_one_attempt_and_no_success_leave_their_keys_out():
    statistics = TrialStats()
    statistics.extend([summarize_trial(trial([1, 2]))])
    assert set(statistics.metrics()) == {"rollout/num_trials", "rollout/return_mean", "rollout/trial_length_mean"}


def test_large_numbers_of_attempts_do_not_flood_the_metrics():
    statistics = TrialStats()
    statistics.extend([summarize_trial(trial(*[[float(i)] for i in range(50)]))])
    assert len(statistics.return_per_attempt) == 50
    keys = [key for key in statistics.metrics() if key.startswith("rollout/return_mean_attempt_")]
    assert keys == [f"rollout/return_mean_attempt_{i}" for i in range(1, 11)]


def test_only_the_window_counts():
    statistics = TrialStats(window=2)
    for reward in (100, 1, 2):
        statistics.extend([summarize_trial(trial([reward]))])
    assert statistics.metrics()["rollout/return_mean"] == 1.5
    assert statistics.trials == 3


def test_state_goes_through_json():
    statistics = TrialStats(window=3)
    for i in range(5):
        statistics.extend([summarize_trial(trial([0.1 * i], [0.3], success=[i == 4, False]))])
    restored = TrialStats(window=3)
    restored.load_state_dict(json.loads(json.dumps(statistics.state_dict())))
    assert restored.metrics() == statistics.metrics()
    for each in (statistics, restored):
        each.extend([summarize_trial(trial([7.0], success=[True]))])
    assert restored.metrics() == statistics.metrics()


def test_mean_per_attempt_is_ragged():
    assert mean_per_attempt([[1.0, 2.0, 9.0], [3.0, 4.0], [2.0], [2.0]]) == [2.0, 3.0, 9.0]


def test_successes_belong_to_their_attempts():
    summary = summarize_trial(trial([1, 2], [4, 0], [1], success=[False, True, False, False, True]))
    assert summary.success is True and summary.success_per_attempt == [True, False, True]
    silent = summarize_trial(trial([1, 2], [4]))
    assert silent.success is None and silent.success_per_attempt is None


def test_trials_without_a_signal_failed_if_another_one_signals_success():
    statistics = TrialStats()
    statistics.extend([summarize_trial(trial([1, 2])), summarize_trial(trial([1], success=[True]))])
    assert statistics.metrics()["rollout/success_rate"] == 0.5
