from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorWrapper

from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY, INSTRUCTION_KEY, TOLERANCE
from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.goal_tolerance import _single_env, find_goal_tolerance
from yamame.envs.gymnasium import GymnasiumConfig
from yamame.errors import UserError


def tolerance_of(make: Callable[[], Any]) -> float | None:
    with closing(make()) as env:
        return find_goal_tolerance(env)


RADIUS = 0.05
GOAL = np.array([1.0, -0.5, 0.25])


def sparse(achieved: np.ndarray, desired: np.ndarray, info: dict[str, Any]) -> Any:
    return -(np.linalg.norm(achieved - desired, axis=-1) > RADIUS).astype(np.float32)


def dense(achieved: np.ndarray, desired: np.ndarray, info: dict[str, Any]) -> Any:
    return -np.linalg.norm(achieved - desired, axis=-1)


class Reach(gymnasium.Env[dict[str, np.ndarray], np.ndarray]):
    """The action is the place. Reward 5, whatever `compute_reward` is."""

    num_open = 0
    observation_space = spaces.Dict(
        {name: spaces.Box(-2, 2, (3,), np.float64) for name in ("observation", ACHIEVED_KEY, DESIRED_KEY)}
    )
    action_space = spaces.Box(-1, 1, (3,), np.float32)

    def __init__(self, compute_reward: Callable[..., Any] | None) -> None:
        if compute_reward:
            self.compute_reward = compute_reward
        Reach.num_open += 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._observe(np.zeros(3)), {"radius": RADIUS}

    def step(self, action: np.ndarray) -> Any:
        return self._observe(action.astype(np.float64)), 5.0, False, False, {}

    def close(self) -> None:
        Reach.num_open -= 1

    def _observe(self, place: np.ndarray) -> dict[str, np.ndarray]:
        return {"observation": place, ACHIEVED_KEY: place, DESIRED_KEY: GOAL}


def config(compute_reward: Callable[..., Any] | None, **settings: Any) -> EnvFnConfig:
    return EnvFnConfig(env_fn=partial(Reach, compute_reward), horizon=5, num_workers=0, **settings)


def test_the_tolerance_is_the_largest_difference_in_all_numbers_that_is_rewarded() -> None:
    assert tolerance_of(partial(Reach, sparse)) == pytest.approx(RADIUS / np.sqrt(3), rel=1e-6)


@pytest.mark.parametrize(
    ("compute_reward", "tolerance"),
    [
        (dense, None),
        (lambda *arguments: -sparse(*arguments), None),  # to stay away is rewarded
        (lambda *_: 0.0, None),
        (None, TOLERANCE),
        (lambda achieved, desired, info: np.exp(-info["radius"] * dense(achieved, desired, info) ** 2), None),
        (lambda achieved, desired, info: abs(achieved - desired).max() < 1e9, None),
        (lambda achieved, desired, info: 1e-3 < abs(achieved - desired).max() < 1.0, None),
        (lambda achieved, desired, info: sparse(achieved[:2], desired[:2], info), None),  # a number that does not count
    ],
)
def test_rewards_without_a_step(compute_reward: Callable[..., Any] | None, tolerance: float | None) -> None:
    assert tolerance_of(partial(Reach, compute_reward)) == tolerance


def test_the_reward_of_a_wrapper_counts() -> None:
    class Farther(gymnasium.Wrapper[Any, Any, Any, Any]):
        def compute_reward(self, achieved: np.ndarray, desired: np.ndarray, info: dict[str, Any]) -> Any:
            return sparse(achieved / 4, desired / 4, info)

    tolerance = tolerance_of(lambda: Farther(Reach(sparse)))
    assert tolerance == pytest.approx(4 * RADIUS / np.sqrt(3), rel=1e-6)


def test_goals_that_must_be_hit_exactly() -> None:
    tolerance = tolerance_of(partial(Reach, lambda achieved, desired, info: (achieved == desired).all()))
    assert tolerance is not None and tolerance < 1e-12


def test_environments_with_a_sparse_reward_are_instructed() -> None:
    with_reward = config(sparse).build(2, seed=0)
    assert set(with_reward.reset()) == {"observation", INSTRUCTION_KEY}
    near, far = GOAL + 0.02, GOAL + np.array([0.0, 0.0, 0.04])
    assert with_reward.step(np.array([near, far], np.float32)).reward.tolist() == [1.0, 0.0]


def pair(
    compute_reward: Callable[..., Any], vector: type[SyncVectorEnv | AsyncVectorEnv], wrapped: bool = False
) -> Any:
    envs = vector([partial(Reach, compute_reward)] * 2)
    return VectorWrapper(envs) if wrapped else envs


@pytest.mark.parametrize("wrapped", [False, True])
def test_vector_environments_have_the_tolerance_of_single_ones(wrapped: bool) -> None:
    def build(compute_reward: Callable[..., Any]) -> Any:
        make = partial(pair, compute_reward, SyncVectorEnv, wrapped)
        return EnvFnConfig(env_fn=make, horizon=5, vector_size=2).build(2, seed=0)

    with closing(build(sparse)) as trials:
        assert set(trials.reset()) == {"observation", INSTRUCTION_KEY}
        near, far = GOAL + 0.02, GOAL + np.array([0.0, 0.0, 0.04])
        assert trials.step(np.array([near, far], np.float32)).reward.tolist() == [1.0, 0.0]
    with closing(build(dense)) as trials:
        assert set(trials.reset()) == {"observation", ACHIEVED_KEY, DESIRED_KEY}
        assert trials.step(np.array([GOAL, GOAL], np.float32)).reward.tolist() == [5.0, 5.0]


def test_goals_that_a_vector_wrapper_adds_have_the_tolerance_of_an_environment_without_compute_reward() -> None:
    class WithGoals(VectorWrapper):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            space = env.single_observation_space
            names = ("observation", ACHIEVED_KEY, DESIRED_KEY)
            self.single_observation_space = spaces.Dict(dict.fromkeys(names, space))

    wrapped = WithGoals(SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2))
    with closing(wrapped):
        single = _single_env(wrapped)
        assert single is wrapped and find_goal_tolerance(single) == TOLERANCE


def test_vector_environments_in_other_processes_need_a_tolerance() -> None:
    make = partial(pair, sparse, AsyncVectorEnv)
    with pytest.raises(UserError, match=r"in other processes: set env.goal_tolerance"):
        EnvFnConfig(env_fn=make, horizon=5, vector_size=2).build(2, seed=0)
    with closing(EnvFnConfig(env_fn=make, horizon=5, vector_size=2, goal_tolerance=0.03).build(2, seed=0)) as trials:
        trials.reset()
        assert trials.step(np.array([GOAL + 0.02, GOAL + 0.04], np.float32)).reward.tolist() == [1.0, 0.0]


def test_goals_stay_if_other_leaves_are_chosen() -> None:
    with closing(config(sparse, obs_keys=("observation",)).build(1, seed=0)) as trials:
        assert set(trials.reset()) == {"observation", INSTRUCTION_KEY}


def test_environments_with_a_dense_reward_keep_it_and_show_their_goals() -> None:
    one = config(dense).build(1, seed=0)
    assert set(one.reset()) == {"observation", ACHIEVED_KEY, DESIRED_KEY}
    step = one.step(np.array([GOAL], np.float32))
    assert step.reward.tolist() == [5.0] and not step.terminated[0] and step.goals is None


def test_a_tolerance_that_is_set_counts() -> None:
    def fail(*_: Any) -> float:
        raise AssertionError

    one = config(fail, goal_tolerance=0.3).build(1, seed=0)
    one.reset()
    assert one.step(np.array([GOAL + 0.25], np.float32)).terminated[0]


def test_goals_that_are_no_vectors_are_observations() -> None:
    class Kitchen(Reach):
        observation_space = spaces.Dict({ACHIEVED_KEY: spaces.Dict(), DESIRED_KEY: spaces.Dict()})

    assert tolerance_of(partial(Kitchen, sparse)) is None


def test_a_reward_that_raises_is_one_line_and_closes_the_environments() -> None:
    def fail(*_: Any) -> float:
        raise KeyError("distance")

    Reach.num_open = 0
    with pytest.raises(UserError, match=r"raised KeyError\('distance'\): set env.goal_tolerance$"):
        config(fail).build(3, seed=0)
    assert Reach.num_open == 0


def test_registered_environments() -> None:
    gymnasium.register("yamame-test/Reach-v0", entry_point=lambda: Reach(dense), max_episode_steps=5)
    try:
        dense_env = GymnasiumConfig(id="yamame-test/Reach-v0", horizon=5, num_workers=0)
        assert DESIRED_KEY in dense_env.build(1, seed=0).reset()
        instructed = GymnasiumConfig(id="yamame-test/Reach-v0", horizon=5, num_workers=0, goal_tolerance=0.1)
        assert INSTRUCTION_KEY in instructed.build(1, seed=0).reset()
    finally:
        del gymnasium.registry["yamame-test/Reach-v0"]
