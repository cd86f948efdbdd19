"""Conventions of other libraries: masks by a method, `is_success`, time limits of wrappers."""

import sys
from collections import deque
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import FilterObservation, NormalizeReward, TimeAwareObservation, TimeLimit
from gymnasium.wrappers.vector import NormalizeObservation as NormalizeVectorObservation

from yamame.collect.collector import Collector, RandomPolicy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.data.actions import ACTION_MASK_KEY
from yamame.envs.env_fn import EnvFnConfig, env_config, find_time_limit
from yamame.envs.vector.autotune import measure_step_seconds
from yamame.envs.vector.gymnasium_adapter import make_episode_vector_env
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.errors import UserError


class Masked(gymnasium.Env):
    """Its actions are checked in every step. Its mask does not exist after the last step."""

    observation_space = spaces.Box(0.0, 1.0, (1,))

    def __init__(self, action_space=None, as_list=False, ends=(True, False)):
        self.action_space = action_space or spaces.Discrete(3)
        self.as_list, self.ends = as_list, ends

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def legal(self):
        """Choices of the first component, then of the second."""
        return [[True, self.t % 2 == 0, False], [False, True]]

    def action_masks(self):
        if self.t == 4:
            raise IndexError("there is no mask after the end")
        first, second = self.legal()
        mask = first + second if isinstance(self.action_space, spaces.MultiDiscrete) else first
        return mask if self.as_list else np.array(mask)

    def step(self, action):
        for choice, allowed in zip(np.atleast_1d(action), self.legal(), strict=False):
            assert allowed[choice], f"action {action} is illegal at step {self.t}"
        self.t += 1
        over = self.t == 4
        terminated, truncated = self.ends
        success = np.array([over and action == 1]) if isinstance(self.action_space, spaces.Discrete) else None
        return np.zeros(1, np.float32), 1.0, over and terminated, over and truncated, {"is_success": success}


class ByProperty(Masked):
    @property
    def action_masks(self):
        return np.array(self.legal()[0])


class ByArray(Masked):
    """Keeps the mask in an attribute."""

    def __init__(self):
        super().__init__()
        self.action_masks = np.array([True, True, False])

    def reset(self, **kwargs):
        result = super().reset(**kwargs)
        self.action_masks = np.array(self.legal()[0])
        return result

    def step(self, action):
        result = super().step(action)
        self.action_masks = np.array(self.legal()[0])
        return result


class NeedsAgent(Masked):
    def action_masks(self, agent):
        raise AssertionError("is not called")

    def legal(self):
        return [[True] * 3]


class ByWrapper(gymnasium.Wrapper):
    """The form of sb3-contrib's `ActionMasker`: the environment itself has a method of another name."""

    def __init__(self, env):
        super().__init__(env)
        self.ask = env.unwrapped.action_masks

    def action_masks(self):
        return self.ask()


class HandMade(gymnasium.Env):
    """A wrapper that is none of Gymnasium's."""

    def __init__(self, env):
        self.env, self.observation_space, self.action_space = env, env.observation_space, env.action_space

    def reset(self, *, seed=None, options=None):
        return self.env.reset(seed=seed)

    def step(self, action):
        return self.env.step(action)


MASKED = {
    "plain": Masked,
    "below gymnasium's wrappers": lambda: TimeAwareObservation(TimeLimit(Masked(), 10)),
    "a wrapper's": lambda: ByWrapper(Masked()),
    "below a hand-made wrapper": lambda: HandMade(TimeLimit(Masked(), 10)),
    "list": lambda: Masked(as_list=True),
    "a property": ByProperty,
    "an array": ByArray,
    "components": lambda: Masked(spaces.MultiDiscrete([3, 2])),
    "list of components": lambda: Masked(spaces.MultiDiscrete([3, 2]), as_list=True),
    "truncated": lambda: Masked(ends=(False, True)),
}


def play(env_config, num_envs, trials=12):
    """Return the first trials of random actions, without any fault."""
    envs = env_config.build(num_envs, 0)
    explorer = Explorer(NoExploration(), envs.action_space, num_envs, np.random.default_rng(0))
    collector = Collector(envs, "", explorer)
    played = []
    while len(played) < trials:
        played += [
            trial
            for _, trial in collector.step(
                RandomPolicy(envs.action_space, np.random.default_rng(1)), deterministic=False
            )
        ]
    collector.close()
    assert collector.faults.metrics() == {"faults/restarts": 0.0}
    return played


@pytest.mark.parametrize(("name", "num_workers"), [*((name, 0) for name in MASKED), ("list of components", 1)])
def test_action_masks_of_a_method_are_obeyed(name, num_workers):
    played = play(EnvFnConfig(env_fn=MASKED[name], horizon=8, num_workers=num_workers), 4)
    assert all(len(trial) == 4 and ACTION_MASK_KEY in trial.observation for trial in played)


def test_a_mask_may_be_an_array_of_arrays():
    class Ragged(Masked):
        def action_masks(self):
            return np.array([np.array(part) for part in self.legal()], dtype=object)

    played = play(EnvFnConfig(env_fn=lambda: Ragged(spaces.MultiDiscrete([3, 2])), horizon=8, num_workers=0), 2)
    assert all(trial.observation[ACTION_MASK_KEY].shape[1] == 5 for trial in played)


def test_a_method_with_arguments_gives_no_masks():
    assert all(ACTION_MASK_KEY not in trial.observation for trial in play(EnvFnConfig(env_fn=NeedsAgent, horizon=8), 1))


@pytest.mark.parametrize(
    ("mask", "found"),
    [([0.0, -np.inf, 0.0], "-inf"), ([0, 1, 2], "2"), ([-1, -1, 1], "-1"), (np.array([0.0, -1e9, 0.0]), "-1e")],
    ids=["logits", "actions", "signs", "large logits"],
)
@pytest.mark.parametrize("in_observation", [False, True])
def test_masks_of_other_numbers_than_0_and_1_are_refused(mask, found, in_observation):
    class Other(Masked):
        action_masks = None
        if in_observation:
            observation_space = spaces.Dict(action_mask=spaces.Box(-np.inf, np.inf, (3,)))

        def reset(self, **kwargs):
            observation, _ = super().reset(**kwargs)
            if not in_observation:
                return observation, {"action_mask": mask}
            return {"action_mask": np.maximum(mask, -1e9).astype(np.float32)}, {}

    envs = SerialVectorEnv([Other()], 0)
    found = found.replace("inf", "1e") if in_observation else found
    with pytest.raises(UserError, match=f"^an action mask has the entry {found}"):
        envs.reset(np.ones(1, np.bool_), np.ones(1, np.bool_))


def test_masks_in_info_come_before_the_method():
    class Both(Masked):
        def reset(self, **kwargs):
            return super().reset(**kwargs)[0], {"action_mask": np.array([1, 0, 0])}

        def action_masks(self):
            raise AssertionError("is not called")

        def step(self, action):
            assert action == 0
            return *super().step(action)[:4], {"action_mask": np.array([1, 0, 0])}

    assert play(EnvFnConfig(env_fn=Both, horizon=8, num_workers=0), 2)


def test_no_masks_where_they_are_switched_off():
    envs = SerialVectorEnv([Masked()], 0, action_mask_key="")
    assert set(envs.reset(np.ones(1, np.bool_), np.ones(1, np.bool_))) == {"observation"}


def test_speed_is_measured_with_legal_actions():
    assert measure_step_seconds(Masked()) > 0.0
    assert measure_step_seconds(Masked(spaces.MultiDiscrete([3, 2]))) > 0.0


class ManyMasked(VectorEnv):
    def __init__(self):
        self.envs, self.num_envs = [Masked(), Masked()], 2
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = Masked().observation_space, Masked().action_space
        self.observation_space, self.action_space = (
            batch_space(space, 2) for space in (self.single_observation_space, self.single_action_space)
        )

    def reset(self, *, seed=None, options=None):
        rows = (options or {}).get("reset_mask", [True, True])
        for env, starts in zip(self.envs, rows, strict=True):
            if starts:
                env.reset()
        return np.zeros((2, 1), np.float32), {}

    def action_masks(self):
        return np.array([env.action_masks() if env.t < 4 else [True] * 3 for env in self.envs])

    def step(self, actions):
        results = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        over = np.array([result[2] for result in results])
        success = np.array([bool(result[4]["is_success"][0]) for result in results])
        return np.zeros((2, 1), np.float32), np.ones(2), over, np.zeros(2, bool), {"is_success": success}


class Lenient(Masked):
    def action_masks(self):
        return super().action_masks() if self.t < 4 else np.ones(3, bool)


@pytest.mark.parametrize(
    "make",
    [
        ManyMasked,
        lambda: SyncVectorEnv([Lenient] * 2),
        lambda: SyncVectorEnv([Lenient] * 2, autoreset_mode=AutoresetMode.SAME_STEP),
        lambda: AsyncVectorEnv([Lenient] * 2),
    ],
    ids=["method", "sync", "same step", "async"],
)
def test_vector_environments_with_the_method_and_is_success(make):
    played = play(EnvFnConfig(env_fn=make, horizon=4, vector_size=2), 2, trials=20)
    assert all(len(trial) == 4 and trial.success is not None for trial in played)
    assert all(trial.success[-1] == (trial.action[-1] == 1) for trial in played)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_a_method_that_fails_after_an_episode_says_nothing_of_the_other_environments(mode):
    class Later(Masked):
        def reset(self, **kwargs):
            result = super().reset(**kwargs)
            self.t = 2  # so that the episodes end at different times
            return result

    played = play(
        EnvFnConfig(env_fn=lambda: SyncVectorEnv([Masked, Later], autoreset_mode=mode), horizon=4, vector_size=2),
        2,
        trials=20,
    )
    assert {len(trial) for trial in played} == {2, 4}
    assert all((trial.action[1::2] == 0).all() for trial in played), "the mask of odd steps"


@pytest.mark.parametrize("num_workers", [0, 1])
def test_is_success_counts_as_success(num_workers):
    class Free(Masked):
        action_masks = None

        def legal(self):
            return [[True] * 3]

    played = play(EnvFnConfig(env_fn=Free, horizon=8, num_workers=num_workers), 4, trials=20)
    success = [bool(trial.success.any()) for trial in played]
    assert success == [trial.action[-1] == 1 for trial in played]
    assert True in success and False in success


@pytest.mark.parametrize(
    ("info", "success"),
    [
        ({"is_success": 1.0}, True),
        ({"is_success": np.bool_(True)}, True),
        ({"is_success": 0}, False),
        ({"success": False, "is_success": True}, False),
        ({"success": None, "is_success": None}, None),
        ({"success": None, "is_success": True}, True),
        ({}, None),
    ],
)
def test_success_comes_before_is_success(info, success):
    class Signals(Masked):
        def step(self, action):
            return np.zeros(1, np.float32), 0.0, True, False, info

    for env in (Signals(), SyncVectorEnv([Signals])):
        envs = make_episode_vector_env(env, 0, action_mask_key="")
        envs.reset(np.ones(1, np.bool_), np.ones(1, np.bool_))
        found = envs.step(np.zeros(1, np.int64)).success
        assert (None if found is None else bool(found[0])) == success


class Walk(gymnasium.Env):
    observation_space, action_space = spaces.Dict(x=spaces.Box(-9.0, 9.0, (1,))), spaces.Discrete(2)


class OldLimit(gymnasium.Wrapper):
    """A wrapper of somebody's own."""

    def __init__(self, env, max_steps):
        super().__init__(env)
        self.max_steps = max_steps


@pytest.mark.parametrize(
    "make",
    [
        lambda: TimeLimit(Walk(), 20),
        lambda: FilterObservation(TimeLimit(Walk(), 20), ["x"]),
        lambda: TimeAwareObservation(TimeLimit(Walk(), 20)),
        lambda: TimeLimit(TimeLimit(Walk(), 20), 30),
        lambda: TimeLimit(TimeLimit(Walk(), 30), 20),
        lambda: TimeLimit(gymnasium.make("CartPole-v1"), 20),
        lambda: gymnasium.make("CartPole-v1", max_episode_steps=20),
        lambda: HandMade(gymnasium.make("CartPole-v1", max_episode_steps=20)),
        lambda: SyncVectorEnv([lambda: TimeLimit(Walk(), 20)] * 2),
        lambda: AsyncVectorEnv([lambda: TimeLimit(Walk(), 20)] * 2),
        lambda: gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync", max_episode_steps=20),
        lambda: gymnasium.make_vec("CartPole-v1", num_envs=2, max_episode_steps=20),
    ],
)
def test_time_limits_of_wrappers_are_found(make, capsys):
    config = env_config(make, horizon=None, attempts=1)
    assert config.horizon == 20
    assert env_config(make, horizon=None, attempts=3).horizon == 60
    assert capsys.readouterr().err == ""


def test_a_limit_that_is_only_an_attribute_is_printed(capsys):
    assert find_time_limit(OldLimit(Walk(), 20)) == 20
    line = "episodes end after 20 steps at the latest, the max_steps of OldLimit; horizon= sets another maximum\n"
    assert capsys.readouterr().err == line
    assert find_time_limit(OldLimit(Walk(), None)) is None
    assert find_time_limit(OldLimit(TimeLimit(Walk(), 7), 20)) == 7


class Progress(Masked):
    """Reports a number as success."""

    def __init__(self, success=0.1):
        super().__init__()
        self.success = success

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 4, False, {"success": self.success}


@pytest.mark.parametrize("success", [0.1, -1, 2, float("nan")])
@pytest.mark.parametrize("vector", [False, True])
def test_a_success_that_is_neither_true_nor_false_is_refused(success, vector):
    env = SyncVectorEnv([lambda: Progress(success)] * 2) if vector else [Progress(success), Progress(success)]
    episodes = make_episode_vector_env(env, seed=0)
    episodes.reset(np.ones(2, np.bool_), np.ones(2, np.bool_))
    with pytest.raises(UserError, match=r"info\['success'\] is .*, expected True or False"):
        episodes.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("success", [0, 1, 1.0, np.float32(0), np.True_, np.array([1])])
def test_zero_and_one_are_a_success(success):
    episodes = SerialVectorEnv([Progress(success)], 0)
    episodes.reset(np.ones(1, np.bool_), np.ones(1, np.bool_))
    assert episodes.step(np.zeros(1, np.int64)).success.tolist() == [bool(success)]


class WithLimit(Masked):
    max_steps = np.int64(4)


class WithLimitByProperty(Masked):
    @property
    def max_steps(self):
        return 4


class WithoutLimit(Masked):
    max_steps = sys.maxsize


class WithLimitAfterReset(Masked):
    @property
    def max_steps(self):
        return self.t


@pytest.mark.parametrize(
    ("env_class", "limit"),
    [(WithLimit, 4), (WithLimitByProperty, 4), (WithoutLimit, None), (WithLimitAfterReset, None)],
)
def test_an_attribute_is_the_time_limit(env_class, limit):
    assert find_time_limit(env_class()) == limit


class SharedArrays(gymnasium.Env):
    """All copies return the arrays of one simulator."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(0.0, 20.0, (1,))
    array, mask, success = np.zeros(1, np.float32), np.ones(2, np.bool_), np.zeros(1, np.bool_)
    info: ClassVar = {ACTION_MASK_KEY: mask, "success": success}

    def __init__(self, number):
        self.number = number

    def show(self):
        return self.array

    def observe(self, value):
        self.array[0], self.mask[:], self.success[0] = value, [value % 2 == 0, True], value == 11
        return self.show()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(self.number), self.info

    def step(self, action):
        observation = self.observe(10 + self.number)
        return observation, self.array, False, False, self.info


class SharedParts(SharedArrays):
    observation_space = spaces.Dict(part=spaces.Tuple([SharedArrays.observation_space, spaces.Discrete(2)]))

    def show(self):
        return {"part": (self.array, 1)}


class SharedFrames(SharedArrays):
    observation_space = spaces.Box(0.0, 20.0, (2, 1))

    def show(self):
        return deque([self.array, self.array])


class SharedTensor(SharedArrays):
    tensor = torch.zeros(1)

    def show(self):
        self.tensor[:] = torch.from_numpy(self.array)
        return self.tensor


@pytest.mark.parametrize("env_class", [SharedArrays, SharedParts, SharedFrames, SharedTensor])
def test_environments_may_return_one_array_together(env_class):
    episodes = SerialVectorEnv([env_class(number) for number in range(3)], 0)
    first = episodes.reset(np.ones(3, np.bool_), np.ones(3, np.bool_))
    name = next(name for name in first if name not in (ACTION_MASK_KEY, "part/1"))
    assert first[name].reshape(3, -1)[:, 0].tolist() == [0, 1, 2]
    assert first[ACTION_MASK_KEY][:, 0].tolist() == [True, False, True]
    step = episodes.step(np.ones(3, np.int64))
    assert step.observation[name].reshape(3, -1)[:, 0].tolist() == [10, 11, 12]
    assert step.observation[ACTION_MASK_KEY][:, 0].tolist() == [True, False, True]
    assert step.reward.tolist() == [10, 11, 12]
    assert step.success.tolist() == [False, True, False]
    again = episodes.reset(np.array([True, False, False]), np.ones(3, np.bool_))
    assert again[name].reshape(3, -1)[:, 0].tolist() == [0, 11, 12]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizon": "4"}, "horizon must be a whole number, got '4'"),
        ({"horizon": 4.5}, "horizon must be a whole number, got 4.5"),
        ({"horizon": 4, "attempts": "2"}, "attempts must be a whole number, got '2'"),
        ({"horizon": 4, "eval_env_fn": Masked()}, "eval_env_fn must be a class or function .* got a Masked"),
    ],
)
def test_what_is_no_number_and_no_function_is_named(settings, message):
    config = EnvFnConfig(env_fn=Masked, horizon=4)
    for name, value in settings.items():  # as without the type checks of the tests
        object.__setattr__(config, name, value)
    with pytest.raises(UserError, match=message):
        config.__post_init__()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: NormalizeReward(TimeLimit(Masked(), 4)), "NormalizeReward"),
        (lambda: SyncVectorEnv([lambda: NormalizeReward(Masked())] * 2), "NormalizeReward"),
        (lambda: NormalizeVectorObservation(SyncVectorEnv([Masked] * 2)), "NormalizeObservation"),
    ],
)
def test_a_wrapper_that_normalizes_is_named(make, name, capsys):
    env_config(make, horizon=4, attempts=1)
    assert capsys.readouterr().err.startswith(f"{name} has statistics of its own in each environment")
