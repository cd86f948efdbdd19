"""Scripted environments and a policy that writes down what it is shown."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import spaces

from yamame.collect.collector import Policy
from yamame.data.step import PolicyInput, VectorStep
from yamame.data.trajectory import Trajectory

NUM_ACTIONS = 5

AttemptLengths = Callable[[int, int], list[int]]
"""(environment, trial) -> length of each attempt."""


class ScriptedEnvironments:
    """Observations spell (environment, trial, attempt, step); reward repeats them together with the action.

    Even trials end terminated, odd ones truncated. Environments in `late` deliver the first observation after a reset
    one call late. All arrays are reused from step to step, as some real environments do.
    """

    def __init__(
        self,
        num_envs: int,
        lengths: AttemptLengths,
        *,
        late: frozenset[int] = frozenset(),
        announces_success: bool = True,
        action_space: spaces.Discrete | spaces.Box | None = None,
        reward: Callable[[np.ndarray, Any], float] | None = None,
        horizon: int = 1000,
    ) -> None:
        self.num_envs = num_envs
        self.horizon = horizon
        self.action_space = action_space or spaces.Discrete(NUM_ACTIONS)
        self.env_action_space = self.action_space
        self.observation_space = spaces.Box(0, np.inf, (4,), np.float32)
        self.executed: list[np.ndarray] = []
        self._lengths = lengths
        self._late = late
        self._announces_success = announces_success
        self._reward_of = reward or spelled_reward
        self._place = np.zeros((num_envs, 4), np.float32)
        self._shown = np.zeros((num_envs, 4), np.float32)
        self._final = np.zeros((num_envs, 4), np.float32)
        self._reward = np.zeros(num_envs, np.float32)
        self._flags = {name: np.zeros(num_envs, np.bool_) for name in ("end", "stop", "start", "live", "success")}
        self._waits = np.zeros(num_envs, np.bool_)

    def reset(self) -> Mapping[str, np.ndarray]:
        self._place[:] = 0
        self._place[:, 0] = np.arange(self.num_envs)
        self._waits[:] = False
        self._shown[:] = self._place
        return {"observation": self._shown}

    def step(self, action: np.ndarray) -> VectorStep:
        self.executed.append(action.copy())
        for env in range(self.num_envs):
            self._step_one(env, action[env])
        return VectorStep(
            reward=self._reward,
            terminated=self._flags["end"],
            truncated=self._flags["stop"],
            episode_start=self._flags["start"],
            is_transition=self._flags["live"],
            final_observation={"observation": self._final},
            observation={"observation": self._shown},
            success=self._flags["success"] if self._announces_success else None,
        )

    def close(self) -> None:
        pass

    def _step_one(self, env: int, action: Any) -> None:
        for flag in self._flags.values():
            flag[env] = False
        if self._waits[env]:
            self._waits[env] = False
            self._flags["start"][env] = True
            self._reward[env] = np.nan  # means nothing
            self._flags["end"][env] = True  # means nothing
            self._shown[env] = self._place[env]
            return
        self._flags["live"][env] = True
        place = self._place[env]
        self._reward[env] = self._reward_of(place, action)
        _, trial, attempt, _ = (int(x) for x in place)
        place[3] += 1
        self._final[env] = place
        lengths = self._lengths(env, trial)
        if place[3] == lengths[attempt]:
            trial_ends = attempt + 1 == len(lengths)
            self._flags["success"][env] = announces(trial, attempt)
            self._flags["start"][env] = True
            self._flags["end"][env] = trial_ends and trial % 2 == 0
            self._flags["stop"][env] = trial_ends and trial % 2 == 1
            place[1:] = [trial + 1, 0, 0] if trial_ends else [trial, attempt + 1, 0]
            self._waits[env] = env in self._late
        self._shown[env] = self._final[env] if self._waits[env] else place


class WatchingPolicy(Policy):
    """Acts by what it sees and keeps a copy of it."""

    def __init__(self, action_space: spaces.Discrete | spaces.Box | None = None) -> None:
        self.version = 0
        self.seen: list[PolicyInput] = []
        self._action_space = action_space or spaces.Discrete(NUM_ACTIONS)

    def act(self, step: PolicyInput, *, deterministic: bool) -> np.ndarray:
        self.seen.append(deepcopy(step))
        return chosen_action(step.observation["observation"], self._action_space)


def chosen_action(place: np.ndarray, action_space: spaces.Discrete | spaces.Box) -> np.ndarray:
    """What `WatchingPolicy` does at places `[..., 4]`."""
    code = (place @ np.array([1, 3, 5, 1])).astype(np.int64)
    if isinstance(action_space, spaces.Discrete):
        return code % NUM_ACTIONS
    return np.stack([np.sin(code), np.cos(code)], -1).astype(np.float32)


def spelled_reward(place: np.ndarray, action: Any) -> float:
    return float(place @ np.array([10_000, 1000, 100, 10]) + np.sum(action))


def announces(trial: int, attempt: int) -> bool:
    """Whether the last step of an attempt announces success."""
    return (trial + attempt) % 3 == 1


def expected_trajectory(env: int, trial: int, lengths: list[int], **facts: Any) -> Trajectory:
    """The whole trial, written down from the script alone."""
    steps = [(env, trial, attempt, step) for attempt, length in enumerate(lengths) for step in range(length)]
    last = (env, trial, len(lengths) - 1, lengths[-1])
    observation = np.array([*steps, last], np.float32)
    action = chosen_action(observation[:-1], spaces.Discrete(NUM_ACTIONS))
    ends = np.arange(len(steps)) == len(steps) - 1
    return Trajectory(
        reward=np.array([spelled_reward(*pair) for pair in zip(observation[:-1], action, strict=True)], np.float32),
        action=action,
        terminated=ends & (trial % 2 == 0),
        truncated=ends & (trial % 2 == 1),
        episode_start=np.append(observation[:-1, 3] == 0, False),
        observation={"observation": observation},
        success=np.array([step + 1 == lengths[a] and announces(t, a) for _, t, a, step in steps], np.bool_),
        **{"task": "scripted", "horizon": 1000, **facts},
    )


def assert_same_trajectory(actual: Trajectory, expected: Trajectory) -> None:
    for field in ("reward", "action", "terminated", "truncated", "episode_start", "success"):
        left, right = getattr(actual, field), getattr(expected, field)
        np.testing.assert_array_equal(left, right, err_msg=field)
        assert (left is None and right is None) or left.dtype == right.dtype, field
    assert actual.observation.keys() == expected.observation.keys()
    for name, value in expected.observation.items():
        np.testing.assert_array_equal(actual.observation[name], value)
        assert actual.observation[name].dtype == value.dtype
    for field in ("goals", "task", "horizon", "policy_version", "noise_scale"):
        assert getattr(actual, field) == getattr(expected, field), field
