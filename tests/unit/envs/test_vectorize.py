from typing import Any

import gymnasium
import numpy as np
import pytest
from counting_environment import CountingEnv, OpaqueVectorEnv
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter, make_episode_vector_env
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.errors import UserError


class BrokenEnv(gymnasium.Env[Any, Any]):
    """Gives a chosen observation and reward at the second step, after a sound first one."""

    def __init__(self, observation: Any = None, reward: float = 0.0, first: Any = None) -> None:
        self.observation_space = spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "n": spaces.Discrete(3, start=1)})
        self.action_space = spaces.Discrete(2)
        self.sound = {"x": np.zeros(2, np.float32), "n": 1}
        self.broken, self.reward, self.first = observation or self.sound, reward, first or self.sound

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.steps = 0
        return self.first, {}

    def step(self, action: int) -> Any:
        self.steps += 1
        return (self.broken, self.reward, False, False, {}) if self.steps == 2 else (self.sound, 0.0, False, False, {})


def reset_all(environments):
    everywhere = np.ones(environments.num_envs, np.bool_)
    return environments.reset(everywhere, everywhere)


def test_whatever_is_given_becomes_environments():
    assert isinstance(make_episode_vector_env(CountingEnv(), 0), SerialVectorEnv)
    assert isinstance(make_episode_vector_env([CountingEnv(), CountingEnv()], 0), SerialVectorEnv)
    assert isinstance(make_episode_vector_env(SyncVectorEnv([CountingEnv]), 0), GymnasiumVectorAdapter)


@pytest.mark.parametrize("given", [42, [CountingEnv(), "CartPole-v1"], []])
def test_anything_else_is_refused(given):
    with pytest.raises(UserError):
        make_episode_vector_env(given, 0)


def test_serial_steps_resets_and_reports():
    singles = [CountingEnv(), CountingEnv()]
    environments = SerialVectorEnv(singles, seed=3)
    first = reset_all(environments)["observation"]
    singles[0].task, singles[1].task = 4, 5  # 3 steps then terminated; 4 steps then truncated
    for count in (1, 2):
        step = environments.step(np.array([0, 1]))
        assert step.reward.tolist() == [count, count + 10] and step.reward.dtype == np.float64
        assert (
            not step.terminated.any() and not step.truncated.any() and step.is_transition.all() and step.success is None
        )
    step = environments.step(np.array([1, 0]))
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True, False], [False, False])
    assert step.success is not None and step.success.tolist() == [True, False]
    again = environments.reset(np.array([True, False]), np.array([False, False]))["observation"]
    np.testing.assert_array_equal(again, [[4, 1, 0], [5, 0, 3]])
    step = environments.step(np.array([0, 0]))
    assert step.truncated.tolist() == [False, True]
    assert step.success is not None and step.success.tolist() == [False, False]  # announced once: an array from then on
    assert first.dtype == np.float32 and first.shape == (2, 3)


def test_serial_seeds_the_first_reset_only_and_passes_an_option_where_a_task_is_repeated():
    def singles(seed):
        made = [CountingEnv() for _ in range(3)]
        environments = SerialVectorEnv(made, seed)
        reset_all(environments)
        environments.reset(np.array([False, True, True]), np.array([False, True, False]))
        return made

    made, same, other = singles(7), singles(7), singles(8)
    seeds = [each.seeds[0] for each in made]
    assert len(set(seeds)) == 3 and None not in seeds
    assert seeds == [each.seeds[0] for each in same] != [each.seeds[0] for each in other]
    assert [each.seeds[1:] for each in made] == [[], [None], [None]]
    assert [each.options[-1] for each in made] == [None, None, {"new_task": False}]
    assert [each.task for each in made] == [each.task for each in same]


def test_discrete_observation_and_action_count_from_zero():
    class Shifted(BrokenEnv):
        def __init__(self):
            super().__init__()
            self.action_space = spaces.Discrete(2, start=5)

        def step(self, action):
            assert self.action_space.contains(action)
            return super().step(action)

    environments = make_episode_vector_env([Shifted(), Shifted()], 0)
    assert reset_all(environments)["n"].tolist() == [0, 0]
    assert environments.action_space == spaces.Discrete(2)
    environments.step(np.array([0, 1]))


NAN = {"x": np.array([0.0, np.nan], np.float32), "n": 1}
INFINITE = {"x": np.array([0.0, np.inf], np.float32), "n": 1}


NOT_FINITE = [
    ({"observation": NAN}, "environment 1 returned NaN in observation 'x' at step 2"),
    ({"observation": INFINITE}, "environment 1 returned infinity in observation 'x' at step 2"),
    ({"reward": float("nan")}, "environment 1 returned NaN as reward at step 2"),
]
FIRST_NOT_FINITE = ({"first": NAN}, "environment 1 returned NaN in observation 'x' at step 0")


def makers(broken):
    return [BrokenEnv, lambda: BrokenEnv(**broken), BrokenEnv]


@pytest.mark.parametrize(("broken", "message"), [*NOT_FINITE, FIRST_NOT_FINITE])
def test_numbers_that_are_not_finite_are_refused(broken, message):
    environments = make_episode_vector_env([make() for make in makers(broken)], 0)
    with pytest.raises(UserError, match=message):
        reset_all(environments)
        for _ in range(2):
            environments.step(np.zeros(3, np.int64))


def test_a_vector_environment_that_is_not_finite_when_it_begins_is_refused():
    broken, message = FIRST_NOT_FINITE
    with pytest.raises(UserError, match=message):
        reset_all(make_episode_vector_env(SyncVectorEnv(makers(broken)), 0))


@pytest.mark.parametrize(("broken", "message"), NOT_FINITE)
def test_rows_of_vector_environments_that_are_not_finite_restart(broken, message):
    environments = make_episode_vector_env(SyncVectorEnv(makers(broken)), 0)
    reset_all(environments)
    assert environments.step(np.zeros(3, np.int64)).failed is None
    step = environments.step(np.zeros(3, np.int64))
    assert step.failed is not None and step.failed.tolist() == [False, True, False] == (~step.is_transition).tolist()
    assert len(step.faults) == 1 and message in step.faults[0].message
    assert np.isfinite(step.observation["x"]).all() and step.reward.tolist() == [0, 0, 0]
    assert environments.step(np.zeros(3, np.int64)).failed is None


def test_observation_of_the_wrong_shape_is_refused():
    with pytest.raises(UserError, match=r"observation 'x' has shape \(3,\), expected \(2,\) by its space"):
        reset_all(make_episode_vector_env(BrokenEnv(first={"x": np.zeros(3, np.float32), "n": 1}), 0))
    opaque = OpaqueVectorEnv(2, AutoresetMode.SAME_STEP)
    opaque.single_observation_space = spaces.Box(0, 1, (4,))
    with pytest.raises(UserError, match=r"shape \(2, 3\), expected \(2, 4\)"):
        reset_all(make_episode_vector_env(opaque, 0))


@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, None])
def test_unsupported_spaces_are_refused_when_built(mode):
    class Odd(CountingEnv):
        def __init__(self, **replaced: spaces.Space[Any]) -> None:
            super().__init__()
            vars(self).update(replaced)

    def build(**replaced):
        make_episode_vector_env(
            SyncVectorEnv([lambda: Odd(**replaced)], autoreset_mode=mode) if mode else Odd(**replaced), 0
        )

    for replaced, message in [
        ({"observation_space": spaces.Sequence(spaces.Discrete(2))}, "Sequence"),
        ({"action_space": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 1.0)])}, "mixes discrete parts"),
        ({"action_space": spaces.Box(-np.inf, np.inf, (2,))}, "infinite"),
    ]:
        with pytest.raises(UserError, match=message):
            build(**replaced)


def test_environments_with_different_spaces_are_refused():
    with pytest.raises(UserError, match="other spaces"):
        make_episode_vector_env([CountingEnv(), BrokenEnv()], 0)


def test_vector_environment_that_does_not_say_how_it_resets_is_refused():
    opaque = OpaqueVectorEnv(2, AutoresetMode.SAME_STEP)
    opaque.metadata = {}
    with pytest.raises(UserError, match="autoreset_mode"):
        make_episode_vector_env(opaque, 0)
