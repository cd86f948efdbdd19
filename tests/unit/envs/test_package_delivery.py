from typing import Any

import numpy as np
import pytest

from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY, INSTRUCTION_KEY, NO_GOAL
from yamame.envs.package_delivery import (
    FIRST_DROP,
    FORWARD,
    LEFT,
    NO_PACKAGE,
    RIGHT,
    PackageDeliveryConfig,
    PackageDeliveryVectorEnv,
)
from yamame.errors import ConfigFieldError

VALID, WRONG = FIRST_DROP + 2, FIRST_DROP + 1


def road(destinations: tuple[int, ...] = (2, 5), forks: dict[int, int] | None = None) -> PackageDeliveryVectorEnv:
    """One road of 30 with this task: forks (LEFT or RIGHT by position), and packages dropped by `VALID`."""
    environment = PackageDeliveryVectorEnv(1)
    environment.reset(seed=0)
    environment.correct_side[:] = -1
    for position, side in (forks or {}).items():
        environment.correct_side[0, position] = side
    environment.valid_drop[:] = VALID
    environment.destinations[:] = NO_GOAL
    environment.destinations[0, : len(destinations)] = destinations
    environment.reset(options={"new_task": False})
    return environment


def go(environment: PackageDeliveryVectorEnv, *actions: int) -> tuple[list[float], float]:
    """What is seen after the last action, and the goal it achieved."""
    for action in actions:
        seen = environment.step(np.array([action]))[0]
    return seen["observation"][0].tolist(), float(seen[ACHIEVED_KEY][0, 0, 0])


def test_an_episode_begins_at_zero_with_three_packages_for_each_destination() -> None:
    seen, info = road((4, 9, 11)).reset(options={"new_task": False})
    assert seen["observation"].tolist() == [[0, 9, 0]]
    assert seen[DESIRED_KEY][0, :, 0].tolist() == [4, 9, 11, NO_GOAL]
    assert info == {}


def test_forward_wraps_around_the_end_of_the_road() -> None:
    environment = road()
    assert go(environment, *[FORWARD] * 29)[0] == [29, 6, 0]
    assert go(environment, FORWARD)[0] == [0, 6, 0]


def test_off_forks_turns_and_nothing_do_nothing() -> None:
    assert go(road(), FORWARD, LEFT, RIGHT, NO_PACKAGE)[0] == [1, 6, 0]


def test_a_fork_has_to_be_taken_by_its_correct_side() -> None:
    environment = road(forks={1: RIGHT})
    assert go(environment, FORWARD)[0] == [1, 6, 1]
    assert go(environment, FORWARD)[0] == [1, 6, 1]
    assert go(environment, RIGHT)[0] == [2, 6, 0]
    assert go(road(forks={1: RIGHT}), FORWARD, LEFT)[0] == [0, 6, 0]
    assert go(road(forks={1: LEFT}), FORWARD, LEFT)[0] == [2, 6, 0]


def test_a_package_dropped_in_the_valid_way_achieves_the_position() -> None:
    assert go(road(), FORWARD, FORWARD, VALID) == ([2, 5, 0], 2.0)
    assert go(road(), FORWARD, VALID) == ([1, 5, 0], 1.0)  # a destination or not
    assert go(road(), FORWARD, VALID, NO_PACKAGE) == ([1, 5, 0], NO_GOAL)


@pytest.mark.parametrize("drop", [drop for drop in range(FIRST_DROP, NO_PACKAGE) if drop != VALID])
def test_other_ways_of_dropping_lead_back(drop: int) -> None:
    assert go(road(), FORWARD, FORWARD, drop) == ([0, 6, 0], NO_GOAL)


def test_dropping_at_zero_and_without_packages_leads_back_and_at_a_fork_does_nothing() -> None:
    assert go(road(), VALID) == ([0, 6, 0], NO_GOAL)
    assert go(road((4,)), FORWARD, VALID, VALID, VALID) == ([1, 0, 0], 1.0)
    assert go(road((4,)), FORWARD, VALID, VALID, VALID, VALID) == ([0, 0, 0], NO_GOAL)
    environment = road(forks={1: LEFT})
    for drop in (VALID, WRONG):
        assert go(environment, FORWARD, drop) == ([1, 6, 1], NO_GOAL)


def test_tasks_are_drawn_as_they_should_be() -> None:
    environment = PackageDeliveryVectorEnv(2000)
    seen, _ = environment.reset(seed=1)
    forks = environment.correct_side >= 0
    assert set(forks.sum(axis=1)) == {3, 4, 5, 6}
    assert not forks[:, 0].any() and forks[:, 1:].any(axis=0).all()
    assert set(environment.correct_side[forks]) == {LEFT, RIGHT}
    assert set(environment.valid_drop) == set(range(FIRST_DROP, NO_PACKAGE))
    for fork, destinations in zip(forks, environment.destinations, strict=True):
        expected = destinations[destinations != NO_GOAL].astype(int)
        assert 2 <= len(expected) <= 4 and (np.diff(expected) > 0).all() and expected[0] > 0
        assert not fork[expected].any()
    assert (seen["observation"][:, 1] == 3 * (seen[DESIRED_KEY][:, :, 0] != NO_GOAL).sum(axis=1)).all()


def test_destinations_can_begin_farther_off() -> None:
    environment = PackageDeliveryVectorEnv(2000, min_destination=20)
    environment.reset(seed=1)
    destinations = environment.destinations
    assert set(destinations[destinations != NO_GOAL]) == set(range(20, 30))
    assert (np.diff(destinations[:, :2]) > 0).all()
    forks = environment.correct_side >= 0
    assert forks[:, 1:].any(axis=0).all()
    rows, columns = np.nonzero(destinations != NO_GOAL)
    assert not forks[rows, destinations[rows, columns].astype(int)].any()


def test_the_same_task_is_repeated_unless_it_is_to_be_new() -> None:
    environment = PackageDeliveryVectorEnv(3)
    environment.reset(seed=0)
    before = environment.correct_side.copy()
    environment.step(np.full(3, FORWARD))
    options = {"reset_mask": np.array([True, False, True]), "new_task": np.array([False, False, True])}
    seen, _ = environment.reset(options=options)
    assert seen["observation"][:, 0].tolist() == [0, 1, 0]
    assert (environment.correct_side[:2] == before[:2]).all()
    assert (environment.correct_side[2] != before[2]).any()


def test_seeds_repeat() -> None:
    one, other = PackageDeliveryVectorEnv(5), PackageDeliveryVectorEnv(5)
    one.reset(seed=3)
    other.reset(seed=3)
    assert (one.correct_side == other.correct_side).all() and (one.destinations == other.destinations).all()


def courier(environment: PackageDeliveryVectorEnv, instruction: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """A policy with the right turns that delivers at once."""
    rows = np.arange(len(seen))
    position = seen[:, 0].astype(int)
    turn = environment.correct_side[rows, position]
    here = (instruction == seen[:, :1]).any(axis=1)
    return np.where(turn >= 0, turn, np.where(here, environment.valid_drop, FORWARD))


def test_a_policy_with_the_right_turns_earns_the_maximum() -> None:
    trials: Any = PackageDeliveryConfig().build(32, seed=5)
    leaves = trials.reset()
    roads = trials.env.env._env
    earned = np.zeros(32)
    expected = (leaves[INSTRUCTION_KEY][:, :, 0] >= 0).sum(axis=1)
    done = np.zeros(32, np.bool_)
    for _ in range(34):
        action = courier(roads, leaves[INSTRUCTION_KEY][:, :, 0], leaves["observation"])
        step = trials.step(action)
        earned += np.where(done, 0, step.reward)
        done |= step.terminated
        leaves = step.observation
    assert (earned == expected).all() and done.all()


def test_destinations_that_begin_farther_off_change_nothing_else() -> None:
    near, far = PackageDeliveryVectorEnv(50), PackageDeliveryVectorEnv(50, min_destination=10)
    near.reset(seed=3)
    far.reset(seed=3)
    assert (near.correct_side == far.correct_side).all() and (near.valid_drop == far.valid_drop).all()
    assert (near.destinations != far.destinations).any()


def test_its_name_has_the_first_destination() -> None:
    assert PackageDeliveryConfig().task_name == "package-delivery-30"
    assert PackageDeliveryConfig(min_destination=10).task_name == "package-delivery-30-from-10"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"max_goals": 24}, "at most 23"),
        ({"max_goals": 15, "min_destination": 10}, "at most 14"),
        ({"min_destination": 24}, "at most 23"),
        ({"min_destination": 0}, "at least 1"),
        ({"road_length": 9}, "least 10"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, int], problem: str) -> None:
    with pytest.raises(ConfigFieldError, match=problem):
        PackageDeliveryConfig(**settings)


def test_a_single_goal() -> None:
    trials = PackageDeliveryConfig(max_goals=1).build(4, seed=0)
    assert trials.reset()[INSTRUCTION_KEY].shape == (4, 1, 1)


def test_a_picture_shows_where_it_is() -> None:
    environment = road()
    before = environment.render()[0]
    go(environment, FORWARD)
    assert before.ndim == 3 and (environment.render()[0] != before).any()
