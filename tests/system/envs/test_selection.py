"""Parts of an observation that the agent sees, and those that it does not."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from yamame.data.observations import flatten_observation
from yamame.data.spaces import flatten_space, leaf_names, select_leaves
from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.gymnasium import GymnasiumConfig
from yamame.errors import UserError

SPACE = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (9, 9, 3), np.uint8),
        "body": spaces.Dict({"angle": spaces.Box(-1.0, 1.0, (2,)), "gear": spaces.Discrete(4)}),
        "pair": spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)]),
        "graph": spaces.Graph(spaces.Discrete(2), None),
    }
)


class Rich(gymnasium.Env[dict[str, Any], int]):
    """Shows all of that space at random."""

    observation_space = SPACE
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self.observation_space.sample(), 0.0, False, self.time == 3, {}


class WithMask(Rich):
    observation_space = spaces.Dict(
        {"a": spaces.Discrete(3), "b": spaces.Discrete(3), "action_mask": spaces.MultiBinary(2)}
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return {**observation, "action_mask": np.array([1, 0], np.int8)}, info


def make_pair() -> SyncVectorEnv:
    return SyncVectorEnv([Plain, Plain])


class Plain(Rich):
    observation_space = spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Box(0, 255, (8, 8, 3), np.uint8)})


def test_names_reach_into_dicts() -> None:
    assert leaf_names(SPACE) == ["body/angle", "body/gear", "graph", "image", "pair/0", "pair/1"]
    chosen = select_leaves(SPACE, ["image", "body/gear"], [])
    assert set(flatten_space(chosen)) == {"image", "body/gear"}
    dropped = select_leaves(SPACE, [], ["graph", "body/angle"])
    assert set(flatten_space(dropped)) == {"body/gear", "image", "pair/0", "pair/1"}
    both = select_leaves(SPACE, ["body", "image"], ["body/gear"])
    assert set(flatten_space(both)) == {"body/angle", "image"}


def test_what_is_chosen_is_found_in_whole_observations() -> None:
    whole, part = spaces.Dict({name: SPACE[name] for name in ("image", "body", "pair")}), ["image", "body/angle"]
    whole.seed(0)
    observation = whole.sample()
    everything = flatten_observation(whole, observation)
    chosen = flatten_observation(select_leaves(whole, part, []), observation)
    assert set(chosen) == set(part)
    for name, leaf in chosen.items():
        np.testing.assert_array_equal(leaf, everything[name])


def test_unknown_names_list_the_known_ones() -> None:
    listed = "body/angle, body/gear, graph, image, pair/0, pair/1"
    for keys, dropped in ((["imag"], []), ([], ["body/angel"])):
        with pytest.raises(UserError, match=listed):
            select_leaves(SPACE, keys, dropped)
    with pytest.raises(UserError, match=f"no leaf.*{listed}"):
        select_leaves(SPACE, ["image"], ["image"])
    with pytest.raises(UserError, match="tuple 'pair'"):
        select_leaves(SPACE, ["pair/0"], [])
    assert set(flatten_space(select_leaves(SPACE, ["pair"], []))) == {"pair/0", "pair/1"}


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_not_supported_can_be_left_out(workers: int) -> None:
    """Here and in worker processes the same."""
    task = EnvFnConfig(
        env_fn=Rich, horizon=3, num_workers=workers, obs_keys=("image", "body"), drop_obs_keys=("body/gear",)
    )
    trials = task.build(3, seed=0)
    try:
        first = trials.reset()
        step = trials.step(np.zeros(3, np.int64))
    finally:
        trials.close()
    assert {name: leaf.shape for name, leaf in first.items()} == {"body/angle": (3, 2), "image": (3, 9, 9, 3)}
    assert set(step.observation) == set(first)
    assert set(flatten_space(trials.observation_space)) == set(first)


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_a_graph_is_refused_with_the_way_out(workers: int | None) -> None:
    with pytest.raises(UserError, match=r"'graph' is a Graph.*--env\.drop-obs-keys graph"):
        EnvFnConfig(env_fn=Rich, horizon=3, num_workers=workers).build(2, seed=0)
    with pytest.raises(UserError, match="has no 'imge': choose among body/angle"):
        EnvFnConfig(env_fn=Rich, horizon=3, num_workers=workers, obs_keys=("imge",)).build(2, seed=0)


def test_a_graph_alone_cannot_be_left_out() -> None:
    with pytest.raises(UserError, match=r"observation 'observation' is a Graph, which is not supported: wrap the"):
        flatten_space(spaces.Graph(spaces.Box(0, 1), None))


def test_a_vector_environment_is_selected_from_too() -> None:
    trials = EnvFnConfig(env_fn=make_pair, horizon=3, vector_size=2, drop_obs_keys=("b",)).build(2, seed=0)
    assert set(trials.reset()) == {"a"}
    for _ in range(4):
        step = trials.step(np.zeros(2, np.int64))
        assert set(step.observation) == set(step.final_observation) == {"a"}


def test_the_action_mask_stays_unless_it_is_dropped() -> None:
    kept = EnvFnConfig(env_fn=WithMask, horizon=3, num_workers=0, obs_keys=("a",)).build(2, seed=0)
    assert set(flatten_space(kept.observation_space)) == {"a", "action_mask"}
    dropped = EnvFnConfig(env_fn=WithMask, horizon=3, num_workers=0, drop_obs_keys=("action_mask",)).build(2, seed=0)
    assert set(flatten_space(dropped.observation_space)) == {"a", "b"}


def test_a_bare_observation_has_one_name() -> None:
    task = GymnasiumConfig(id="CartPole-v1", horizon=5, num_workers=0, obs_keys=("observation",))
    assert set(task.build(2, seed=0).reset()) == {"observation"}
    with pytest.raises(UserError, match="choose among observation"):
        GymnasiumConfig(id="CartPole-v1", horizon=5, num_workers=0, obs_keys=("angle",)).build(2, seed=0)
