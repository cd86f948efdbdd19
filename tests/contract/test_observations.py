"""Every kind of observation from the environment to the update and back, by the same code."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from observation_agents import agent_for, collected
from sampled_observations import ALL, LENGTH, MIXED, SampledObservations
from tiny_agents import in_double

import yamame
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.data.batch import Window, pack
from yamame.data.observations import flatten_observation
from yamame.data.spaces import (
    flatten_space,
    space_from_json,
    space_to_json,
    stored_dtype,
    stored_shape,
)
from yamame.data.step import PolicyInput
from yamame.data.store import ReplayStore
from yamame.data.trajectory import Trajectory

pytestmark = pytest.mark.slow

every_kind = pytest.mark.parametrize("kind", ALL)


def stored(trajectories: list[Trajectory], directory: Path) -> list[Trajectory]:
    with ReplayStore(directory, capacity_trajectories=100, cache_bytes=0) as store:
        return [store.get(each) for each in store.extend(trajectories)]


def as_input(trajectory: Trajectory, time: int) -> PolicyInput:
    before = max(time - 1, 0)
    return PolicyInput(
        time=np.array([time]),
        observation={name: leaf[time : time + 1].copy() for name, leaf in trajectory.observation.items()},
        previous_action=trajectory.action[before : before + 1].copy(),
        previous_reward=trajectory.reward[before : before + 1].copy(),
        episode_start=trajectory.episode_start[time : time + 1].copy(),
    )


def check_the_whole_way(space: spaces.Space[Any], directory: Path) -> None:
    """Collect, store, pack, update; and acting step by step is the training forward."""
    agent = agent_for(space)
    trajectories = stored(collected(agent, space, trials=4), directory)
    assert len(trajectories) == 4
    for name, leaf in flatten_space(space).items():
        for trajectory in trajectories:
            seen = trajectory.observation[name]
            assert (seen.shape[1:], seen.dtype) == (stored_shape(leaf), stored_dtype(leaf)), name
    windows = [Window(trajectory=each, start=0, length=LENGTH) for each in trajectories]
    batch = pack(windows, pad_tokens_to_multiple_of=16)

    learner = Learner(agent, LearnerConfig(lr_warmup_updates=1), generator=torch.Generator().manual_seed(0))
    before = {name: value.clone() for name, value in agent.timestep_encoder.named_parameters()}
    metrics = [learner.update(batch) for _ in range(2)]
    assert learner.num_nonfinite == 0 and all(np.isfinite(float(value)) for each in metrics for value in each.values())
    for name, value in agent.timestep_encoder.named_parameters():
        assert not torch.equal(value, before[name]) or not value.numel(), name

    double = agent.double()
    with torch.no_grad():
        expected_ND = double.encode(double.features(in_double(batch)), in_double(batch))
    policy = NetworkPolicy(double, num_envs=1, generator=torch.Generator())
    for index, trajectory in enumerate(trajectories):
        for time in range(LENGTH + 1):
            token = int(batch.cu_seqlens[index]) + time
            state_1D = policy.state(as_input(trajectory, time))
            torch.testing.assert_close(state_1D[0].clone(), expected_ND[token], rtol=0, atol=1e-9)


@every_kind
def test_the_whole_way(kind: str, tmp_path: Path) -> None:
    check_the_whole_way(ALL[kind], tmp_path / "store")


@pytest.mark.parametrize("kind", ["image", "text", "nothing", "all of them in one"])
def test_worker_processes_collect_the_same_trajectories(kind: str) -> None:
    agent = agent_for(ALL[kind])
    here, there = (collected(agent, ALL[kind], trials=4, workers=workers) for workers in (0, 2))
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one.action, other.action)
        for name, leaf in one.observation.items():
            np.testing.assert_array_equal(leaf, other.observation[name])
            assert leaf.dtype == other.observation[name].dtype


def leaf_spaces() -> st.SearchStrategy[spaces.Space[Any]]:
    small, sides = st.integers(0, 4), st.integers(1, 4)
    shapes = st.lists(small, max_size=3).map(tuple)
    floats = st.sampled_from([np.float32, np.float64])
    return st.one_of(
        st.builds(lambda shape, dtype: spaces.Box(-2.0, 2.0, shape, dtype), shapes, floats),
        st.builds(lambda shape: spaces.Box(0, 255, shape, np.uint8), shapes),
        st.builds(lambda shape: spaces.Box(0, 1, shape, np.bool_), shapes),
        st.builds(lambda shape, low: spaces.Box(low, low + 9, shape, np.int32), shapes, st.integers(-9, 9)),
        st.builds(
            lambda h, w, c: spaces.Box(0, 255, (h, w, c), np.uint8), st.integers(8, 20), st.integers(8, 9), small
        ),
        st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 130), st.integers(-5, 5)),
        st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 130), min_size=1, max_size=3)),
        st.builds(lambda n, h, w: spaces.MultiDiscrete(np.full((h, w), n)), st.integers(1, 9), sides, sides),
        st.builds(spaces.MultiBinary, st.integers(1, 4)),
        st.builds(lambda length: spaces.Text(length, min_length=0, charset="añ b"), st.integers(0, 5)),
    )


def nested_spaces() -> st.SearchStrategy[spaces.Space[Any]]:
    names = st.text("ab.é ", max_size=3)
    return st.recursive(
        leaf_spaces(),
        lambda inner: (
            st.dictionaries(names, inner, max_size=3).map(spaces.Dict) | st.lists(inner, max_size=3).map(spaces.Tuple)
        ),
        max_leaves=5,
    )


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(space=nested_spaces())
def test_any_nesting_goes_the_whole_way(space: spaces.Space[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    check_the_whole_way(space, tmp_path_factory.mktemp("store"))


@settings(max_examples=60, deadline=None)
@given(space=nested_spaces(), seed=st.integers(0, 99))
def test_any_nesting_survives_its_json_and_flattens_to_its_leaves(space: spaces.Space[Any], seed: int) -> None:
    again = space_from_json(space_to_json(space))
    assert again == space
    space.seed(seed)
    sample = space.sample()
    flat, leaves = flatten_observation(again, sample), flatten_space(again)
    assert list(flat) == list(leaves)
    for name, leaf in leaves.items():
        assert flat[name].shape == stored_shape(leaf) and flat[name].dtype == stored_dtype(leaf)


# whole runs

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "replay.batch_size": 2,
    "env_steps_per_iteration": 32,
    "eval": {"trials": 4, "final_trials": 4, "num_envs": 4, "interval_env_steps": 0},
}


def make_mixed() -> SampledObservations:
    return SampledObservations(MIXED)


def test_a_run_on_all_kinds_resumes_and_acts(tmp_path: Path) -> None:
    kinds = ["sight/map=vector", "level=vector"]
    changes = {
        **SMALL,
        "agent.timestep_encoder.encoder_overrides": kinds,
        "env": {"num_workers": 0, "drop_obs_keys": ["sight/none"]},
    }
    run = yamame.train(make_mixed, horizon=LENGTH, env_steps=64, size="tiny", run_dir=tmp_path / "run", **changes)
    assert run.result["updates"] > 0
    assert run.config is not None and run.config.algorithm.agent.trajectory_encoder.state_size == 32
    longer = yamame.resume(tmp_path / "run", env_steps=128, modules=[__name__])
    assert longer.result["env_steps"] == 128 and longer.result["updates"] > run.result["updates"]
    MIXED.seed(0)
    policy = longer.load()
    assert all(policy.act(MIXED.sample()) in SampledObservations.action_space for _ in range(3))
    samples = [MIXED.sample() for _ in range(2)]
    together = longer.load(num_envs=2)
    batch = gymnasium.vector.utils.concatenate(MIXED, samples, gymnasium.vector.utils.create_empty_array(MIXED, 2))
    assert together.act(batch, deterministic=True).tolist() == [
        longer.load().act(sample, deterministic=True) for sample in samples
    ]


def test_a_misspelt_leaf_is_an_error_before_anything_is_made(tmp_path: Path) -> None:
    for changes in (
        {"agent.timestep_encoder.encoder_overrides": ["sight/mapp=tokens"]},
        {"env.obs_keys": ["sight/mapp"]},
    ):
        with pytest.raises(yamame.UserError, match=r"'sight/mapp'.*sight/map"):
            yamame.train(make_mixed, horizon=LENGTH, env_steps=64, run_dir=tmp_path / "run", **SMALL, **changes)
        assert not (tmp_path / "run").exists()
