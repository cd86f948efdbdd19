from typing import Any

import numpy as np

from yamame.data.trajectory import Trajectory


def trajectory(**changes: Any) -> Trajectory:
    """Five transitions in attempts of two, one and two; the last observation starts nothing."""
    fields: dict[str, Any] = {
        "reward": np.array([1.0, 2.0, 4.0, 8.0, 16.0], np.float32),
        "action": np.zeros(5, np.int64),
        "terminated": np.array([False, False, False, False, True]),
        "truncated": np.zeros(5, np.bool_),
        "episode_start": np.array([True, False, True, True, False, False]),
        "observation": {"observation": np.zeros((6, 1), np.float32)},
        "horizon": 5,
    }
    return Trajectory(**fields | changes)


def test_length_is_the_number_of_transitions() -> None:
    assert len(trajectory()) == 5


def test_returns_are_summed_by_attempt() -> None:
    returns = trajectory().return_per_attempt()
    assert returns.tolist() == [3.0, 4.0, 24.0]
    assert returns.dtype == np.float32


def test_an_attempt_that_would_begin_after_the_end_is_none() -> None:
    begins_last = np.array([True, False, True, True, False, True])
    assert trajectory(episode_start=begins_last).return_per_attempt().tolist() == [3.0, 4.0, 24.0]


def test_one_attempt_has_the_whole_return() -> None:
    only = np.array([True, False, False, False, False, False])
    assert trajectory(episode_start=only).return_per_attempt().tolist() == [31.0]


def test_an_attempt_succeeds_if_any_step_says_so() -> None:
    success = np.array([True, False, False, False, True])
    found = trajectory(success=success).success_per_attempt()
    assert found is not None and found.tolist() == [True, False, True]


def test_tasks_without_success_have_none() -> None:
    assert trajectory().success_per_attempt() is None
