"""An exported policy acts as the policy that it was exported from."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import exported_runs
import numpy as np
import pytest
from exported_runs import CONTINUOUS, EVERYTHING, FACTORED, VECTOR, empty_memory, load_step, staggered_times
from gymnasium import spaces
from solved_tmaze import solved_tmaze

import yamame
from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.observations import flatten_observation
from yamame.run_config import OfflineConfig
from yamame.tools.export.policy import export_policy
from yamame.training.trained_run import load_trained_run

pytestmark = pytest.mark.slow

ENVS, STEPS = 8, 1000
NESTED = spaces.Dict({"legs": spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiBinary(2)]), "say": FACTORED})
ROTARY = {
    "agent.trajectory_encoder": {
        "position_embedding": "sinusoidal_and_rotary",
        "token_shift": True,
        "num_running_maxima": 8,
    }
}
CASES: dict[str, tuple[str, spaces.Space[Any], spaces.Space[Any], bool, dict[str, Any]]] = {
    "transformer, vector, masked": ("transformer", VECTOR, spaces.Discrete(5, start=2), True, {}),
    "gru, vector, factored and masked": ("gru", VECTOR, FACTORED, True, {}),
    "feedforward, everything, continuous": ("feedforward", EVERYTHING, CONTINUOUS, False, {}),
}
MORE_CASES = {
    "transformer, everything, continuous": ("transformer", EVERYTHING, CONTINUOUS, False, {}),
    "transformer, rotary and token shift, factored": ("transformer", VECTOR, FACTORED, False, ROTARY),
    "gru, everything, masked": ("gru", EVERYTHING, spaces.Discrete(5), True, {}),
    "feedforward, everything, bits": ("feedforward", EVERYTHING, spaces.MultiBinary((2, 2)), True, {}),
    "linear recurrence, vector, masked": ("linear_recurrence", VECTOR, spaces.Discrete(5), True, {}),
    "windowed, vector, continuous": ("windowed", VECTOR, CONTINUOUS, False, {}),
    "recurrent memory, vector, masked": ("recurrent_memory", VECTOR, spaces.Discrete(5), True, {}),
    "gru, vector, nested actions": ("gru", VECTOR, NESTED, False, {}),
    "gru, vector, integers": ("gru", VECTOR, spaces.Box(-3, 5, (2,), np.int32), False, {}),
}


def _cases() -> list[Any]:
    graph_of_torch = {"gru, vector, factored and masked"}
    formats = {"onnx": CASES.keys() - graph_of_torch, "pt2": graph_of_torch}
    return [
        pytest.param(
            case, suffix, id=f"{name}, {suffix}", marks=[] if name in formats[suffix] else pytest.mark.thorough
        )
        for name, case in (CASES | MORE_CASES).items()
        for suffix in formats
    ]


@pytest.mark.parametrize(("case", "suffix"), _cases())
def test_a_thousand_steps_over_eight_environments(case: Any, suffix: str, tmp_path: Path) -> None:
    model, observation_space, action_space, masked, settings = case
    run = exported_runs.train(tmp_path, model, observation_space, action_space, masked=masked, **settings)
    exported = tmp_path / f"policy.{suffix}"
    run.export(exported, num_envs="dynamic")
    step, manifest = load_step(exported)
    policy = run.load(num_envs=ENVS)
    policy._policy._records_log_prob = True  # keeps the distribution of the last action
    rng, starts = np.random.default_rng(0), np.zeros(ENVS, np.bool_)
    observation_space.seed(0)
    samples = [observation_space.sample() for _ in range(100)]
    memory = empty_memory(manifest, ENVS)
    shown: list[np.ndarray] = []
    for time in staggered_times(ENVS, STEPS, rng):
        observations = [samples[index] for index in rng.integers(len(samples), size=ENVS)]
        masks = np.stack([exported_runs.random_mask(rng, action_space) for _ in range(ENVS)]) if masked else None
        rewards, starts = rng.normal(size=ENVS).astype(np.float32), rng.random(ENVS) < 0.1
        policy.reset(time == 0)
        expected = policy.act(_batch(observations), rewards, starts, deterministic=True, action_mask=masks)
        leaves = [flatten_observation(observation_space, each) for each in observations]
        found = step(
            {
                **{name: array for name, array in _stacked(leaves).items() if array.size},
                **({} if masks is None else {ACTION_MASK_KEY: masks}),
                "previous_reward": rewards,
                "episode_start": starts,
                "time": time,
                "deterministic": np.ones(ENVS, np.bool_),
                "seed": np.zeros(ENVS, np.int64),
                **memory,
            }
        )
        memory = {name: found[output] for name, output in manifest.feedback.items()}
        for keys, leaf in _action_leaves(expected):
            action = found["/".join(("action", *keys))]
            if np.issubdtype(leaf.dtype, np.floating):
                np.testing.assert_allclose(action, leaf, rtol=0, atol=1e-5)
            else:
                np.testing.assert_array_equal(action, leaf)
            assert action.dtype == leaf.dtype
        shown.append(_check_distribution(policy, found))
    assert np.std(shown, axis=(0, 1)).max() > 0.01, "the distribution does not depend on what the agent sees"


def test_a_policy_of_stored_data_alone_has_made_no_environment_steps(tmp_path: Path) -> None:
    run = load_trained_run(solved_tmaze(tmp_path))
    offline = replace(run, config=replace(run.config, offline=OfflineConfig(data=("elsewhere",))))
    made = [export_policy(each, tmp_path / "policy.pt2").env_steps for each in (run, offline)]
    assert made == [run.checkpoint.state["env_steps"], 0] and made[0] > 0


@pytest.mark.parametrize("model", ["gru", pytest.param("transformer", marks=pytest.mark.thorough)])
def test_environments_of_a_file_that_do_not_step_keep_their_memory(model: str, tmp_path: Path) -> None:
    settings = ROTARY if model == "transformer" else {}
    run = exported_runs.train(tmp_path, model, VECTOR, CONTINUOUS, **settings)
    run.export(tmp_path / "policy.onnx", num_envs="dynamic")
    together = yamame.load(tmp_path / "policy.onnx", num_envs=ENVS)
    alone = [run.load() for _ in range(ENVS)]
    rng = np.random.default_rng(0)
    actions = []
    for _ in range(40):
        steps, observation = rng.random(ENVS) < 0.5, rng.uniform(-1, 1, (ENVS, 3)).astype(np.float32)
        resets = rng.random(ENVS) < 0.03
        together.reset(resets)
        found = together.act(observation, 0.5, deterministic=True, step_mask=steps)
        for index, policy in enumerate(alone):
            if resets[index]:
                policy.reset()
            if steps[index]:
                actions.append(policy.act(observation[index], 0.5, deterministic=True))
                np.testing.assert_allclose(found[index], actions[-1], rtol=0, atol=1e-5)
    assert np.std(actions, axis=0).max() > 0.01


def _check_distribution(policy: Any, found: dict[str, np.ndarray]) -> np.ndarray:
    """Compare the distribution of the policy's last action; return what describes it."""
    distribution, _ = policy._policy._last
    if "mean" in found:
        expected = {"mean": distribution.mean_NGA, "std": distribution.log_std_NGA.exp()}
    else:
        expected = {"probability": distribution.probability_NGA}
    for name, tensor in expected.items():
        np.testing.assert_allclose(found[name], tensor[:, 0].numpy(), rtol=0, atol=1e-5)
    return found[next(iter(expected))]


def _action_leaves(action: Any, keys: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], np.ndarray]]:
    if isinstance(action, np.ndarray):
        return [(keys, action)]
    parts = action.items() if isinstance(action, dict) else enumerate(action)
    return [leaf for key, part in parts for leaf in _action_leaves(part, (*keys, str(key)))]


def _batch(observations: list[Any]) -> Any:
    if isinstance(observations[0], dict):
        return {name: _batch([each[name] for each in observations]) for name in observations[0]}
    if isinstance(observations[0], tuple):
        return tuple(_batch(list(parts)) for parts in zip(*observations, strict=True))
    return np.stack([np.asarray(each) for each in observations])


def _stacked(leaves: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {f"observation/{name}": np.stack([each[name] for each in leaves]) for name in leaves[0]}
