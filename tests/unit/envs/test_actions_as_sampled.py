"""Environments get actions of the kinds that `action_space.sample()` gives, which they may keep and change."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from yamame.data.actions import check_action_space, policy_action_space, split_env_actions, to_env_action
from yamame.envs.vector.faults import MAX_RESET_SEED, reset_seeds, restart_seed
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter, make_episode_vector_env

SPACES: list[Any] = [
    spaces.Discrete(3),
    spaces.Discrete(3, start=-1),
    spaces.Discrete(5, dtype=np.int8),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiDiscrete([[2, 3], [4, 5]], np.int32),
    spaces.MultiBinary(3),
    spaces.MultiBinary((2, 2)),
    spaces.Box(-1, 1, ()),
    spaces.Box(-2, 1, (3,)),
    spaces.Box(-2, 1, (2, 2), np.float64),
    spaces.Box(-1, 1, (1,), np.float16),
    spaces.Box(0, 255, (2,), np.uint8),
    spaces.Box(-5, 5, (2,), np.int64),
    spaces.Dict(turn=spaces.Discrete(3), arm=spaces.Tuple([spaces.MultiBinary(2), spaces.Discrete(2, dtype=np.int16)])),
    spaces.Tuple([spaces.Dict(z=spaces.Box(0, 1, (2,)), a=spaces.Box(-1, 1, (1,), np.float64))]),
    spaces.Dict({2: spaces.Discrete(2), "b": spaces.Discrete(3), "a": spaces.Discrete(4)}),
]


def kinds(action: Any) -> Any:
    """Types, shapes and order of the parts of an action."""
    if isinstance(action, dict):
        return "dict", [(key, type(key), kinds(part)) for key, part in action.items()]
    if isinstance(action, tuple):
        return "tuple", [kinds(part) for part in action]
    return type(action), action.dtype, action.shape


def arrays(action: Any) -> list[np.ndarray]:
    parts = action.values() if isinstance(action, dict) else action if isinstance(action, tuple) else None
    if parts is None:
        return [action] if isinstance(action, np.ndarray) else []
    return [array for part in parts for array in arrays(part)]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_single_environments_get_what_sample_gives(space: Any) -> None:
    policy = policy_action_space(check_action_space(space))
    policy.seed(0)
    actions = np.stack([policy.sample() for _ in range(4)])
    before = actions.copy()
    singles = split_env_actions(space, to_env_action(space, actions))
    space.seed(0)
    sample = space.sample()
    for single in singles:
        assert kinds(single) == kinds(sample) and space.contains(single)
    for array in arrays(singles[0]):
        array[...] = 0  # does not raise, and changes no other action
    np.testing.assert_array_equal(actions, before)
    again = split_env_actions(space, to_env_action(space, actions))
    assert repr(again[1:]) == repr(singles[1:])


class Keeps(gymnasium.Env[Any, Any]):
    """Keeps its actions and seeds."""

    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def __init__(self, action_space: Any = action_space) -> None:
        self.action_space, self.actions, self.seeds = action_space, [], []  # type: ignore[var-annotated]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.seeds.append(seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        return np.zeros(1, np.float32), float(action.sum()), False, False, {}


def test_kept_actions_do_not_change_later() -> None:
    env = Keeps(spaces.Box(-1, 1, (2,)))
    envs = make_episode_vector_env([env], 0)
    envs.reset(np.ones(1, np.bool_), np.ones(1, np.bool_))
    action = np.zeros((1, 2), np.float32)
    for value in (0.25, 0.5, 1.0):
        action[:] = value
        envs.step(action)
    assert [kept.tolist() for kept in env.actions] == [[0.25] * 2, [0.5] * 2, [1.0] * 2]


def test_a_category_has_the_methods_of_a_numpy_number() -> None:
    env = Keeps()
    envs = make_episode_vector_env([env], 0)
    envs.reset(np.ones(1, np.bool_), np.ones(1, np.bool_))
    assert envs.step(np.ones(1, np.int64)).reward.tolist() == [1.0]
    assert env.actions[0].item() == 1 and {1: "right"}[env.actions[0]] == "right"


def test_seeds_are_integers_of_31_bits() -> None:
    for seed in range(50):
        sequence = np.random.SeedSequence(seed)
        seeds = reset_seeds(sequence, 40)
        assert all(type(each) is int and 0 <= each < 2**31 for each in seeds) and len(set(seeds)) == 40
        assert seeds == [int(each) % 2**31 for each in sequence.generate_state(40)]
        assert 0 <= restart_seed(seed, 3, seed) < 2**31
        envs = [Keeps() for _ in range(3)]
        make_episode_vector_env(envs, seed).reset(np.ones(3, np.bool_), np.ones(3, np.bool_))
        assert [env.seeds for env in envs] == [[each] for each in seeds[:3]]
    vector = gymnasium.vector.SyncVectorEnv([Keeps] * 3, autoreset_mode=gymnasium.vector.AutoresetMode.DISABLED)
    GymnasiumVectorAdapter(vector, 0).reset(np.ones(3, np.bool_), np.ones(3, np.bool_))
    assert all(0 <= env.seeds[0] <= MAX_RESET_SEED for env in vector.envs)  # type: ignore[attr-defined]
