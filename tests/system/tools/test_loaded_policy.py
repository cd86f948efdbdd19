"""A loaded policy by PyTorch and by onnxruntime: the same refusals, the same distributions; values of the critics."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported_runs import CONTINUOUS, EVERYTHING, FACTORED, VECTOR, random_mask, train

import yamame
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.data.trajectory import Trajectory
from yamame.training.trained_run import load_trained_run

pytestmark = pytest.mark.slow

Policies = dict[str, yamame.LoadedPolicy]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> yamame.Run:
    run = train(tmp_path_factory.mktemp("masked"), "gru", EVERYTHING, FACTORED, masked=True)
    run.export(run.directory.parent / "policy.onnx", num_envs="dynamic")
    return run


@pytest.fixture(scope="module")
def continuous(tmp_path_factory: pytest.TempPathFactory) -> yamame.Run:
    run = train(tmp_path_factory.mktemp("continuous"), "transformer", VECTOR, CONTINUOUS)
    run.export(run.directory.parent / "policy.onnx", num_envs="dynamic")
    return run


def both(run: yamame.Run, num_envs: int | None = None) -> Policies:
    """The policy of a run, and of its exported file."""
    return {name: yamame.load(run.directory.parent / name, num_envs=num_envs) for name in ("run", "policy.onnx")}


def refusals(policies: Policies, *arguments: Any, **named: Any) -> set[str]:
    """What the policies say, each of which must refuse."""
    lines = set()
    for policy in policies.values():
        with pytest.raises(yamame.UserError) as caught:
            policy.act(*arguments, **named)
        lines.add(str(caught.value))
    return lines


def sample(seed: int = 0) -> dict[str, Any]:
    EVERYTHING.seed(seed)
    return EVERYTHING.sample()


def test_both_refuse_the_same_in_the_same_words(masked: yamame.Run) -> None:
    policies = both(masked)
    good, mask = sample(), random_mask(np.random.default_rng(0), FACTORED)
    category = EVERYTHING["level"]
    first = {name: policy.act(good, 0.5, action_mask=mask, deterministic=True) for name, policy in policies.items()}
    for arguments, problem in (
        ({"observation": {name: part for name, part in good.items() if name != "body"}}, "has no 'body'"),
        ({"observation": {**good, "more": 0}}, "has 'more', which the policy was not trained with"),
        ({"observation": np.zeros(3)}, "to be a dict with the keys"),
        ({"observation": {**good, "sight": np.zeros(3)}}, "expected observation 'sight' to be a dict with the keys"),
        ({"observation": {**good, "level": category.start + category.n}}, "which is not in Discrete"),
        ({"observation": {**good, "level": category.start - 1}}, "which is not in Discrete"),
        ({"observation": {**good, "level": 0.5}}, "observation 'level' is 0.5, which is not in Discrete(200"),
        ({"observation": {**good, "mission": 7}}, "expected observation 'mission' to be a text"),
        ({"observation": {**good, "body": good["body"][:2]}}, "to be a tuple of 3 parts"),
        ({"observation": {**good, "body": (good["body"][0] * np.nan, *good["body"][1:])}}, "NaN"),
        ({"observation": good, "reward": [0.0, 1.0]}, "expected reward to be a number, got shape (2,)"),
        ({"observation": good, "reward": np.nan}, "expected reward to be finite"),
        ({"observation": good, "episode_start": [True]}, "expected episode_start to be a number, got shape (1,)"),
        ({"observation": good, "action_mask": None}, "trained with action masks: pass action_mask at every call"),
        ({"observation": good, "action_mask": np.ones(3)}, "has 3 entries"),
        ({"observation": good, "action_mask": np.zeros(7)}, "allows no action"),
    ):
        (line,) = refusals(policies, **{"action_mask": mask, **arguments})
        assert problem in line and "\n" not in line
    for name, policy in policies.items():  # the memory is as it was
        policy.act(good, 0.5, action_mask=mask, deterministic=True)
        policy.reset()
        np.testing.assert_array_equal(policy.act(good, 0.5, action_mask=mask, deterministic=True), first[name])


def test_both_refuse_batches_of_another_size_and_masks_that_nobody_asked_for(continuous: yamame.Run) -> None:
    policies = both(continuous, num_envs=3)
    for policy in policies.values():
        policy.act(np.zeros((3, 3)), np.zeros(3), [True, False, True], step_mask=[True, True, False])
    for arguments, problem in (
        ({"observation": np.zeros((2, 3))}, "expected observation 'observation' to have shape (3, 3), got (2, 3)"),
        ({"observation": np.zeros(3)}, "to have shape (3, 3), got (3,)"),
        ({"observation": np.zeros((3, 3)), "reward": np.zeros(2)}, "expected reward to be numbers of shape (3,)"),
        ({"observation": np.zeros((3, 3)), "reward": np.zeros((3, 1))}, "got shape (3, 1)"),
        ({"observation": np.zeros((3, 3)), "episode_start": [True] * 4}, "expected episode_start to be numbers"),
        ({"observation": np.zeros((3, 3)), "step_mask": [True] * 4}, "expected step_mask to be numbers"),
        ({"observation": np.zeros((3, 3)), "action_mask": [[1, 1]] * 3}, "was trained without masks"),
    ):
        (line,) = refusals(policies, **arguments)
        assert problem in line
    for policy in policies.values():
        with pytest.raises(yamame.UserError, match="expected reset_mask to be numbers"):
            policy.reset([True, False])
    with pytest.raises(yamame.UserError, match="num_envs is 0: pass at least 1"):
        yamame.load(continuous.directory, num_envs=0)


def test_masks_for_several_environments(masked: yamame.Run) -> None:
    policies, rng = both(masked, num_envs=2), np.random.default_rng(0)
    observation = _repeat(sample(), 2)
    masks = [random_mask(rng, FACTORED) for _ in range(2)]
    found = [policy.act(observation, action_mask=masks, deterministic=True) for policy in policies.values()]
    np.testing.assert_array_equal(*found)
    for given, problem in (
        (masks[0], "expected action_mask to be 2 masks, one an environment"),
        (masks * 2, "expected action_mask to be 2 masks"),
        ([masks[0], None], "pass action_mask at every call"),
        (7, "expected action_mask to be 2 masks"),
    ):
        (line,) = refusals(policies, observation, action_mask=given)
        assert problem in line
    for policy in policies.values():
        policy.act(observation, action_mask=[masks[0], None], step_mask=[True, False])
    for first in (None, [None, None]):
        for policy in both(masked, num_envs=2).values():
            policy.act(observation, action_mask=first, step_mask=[False, False])
            again = policy.act(observation, action_mask=masks, deterministic=True)
            np.testing.assert_array_equal(again, found[0])


def _repeat(value: Any, count: int) -> Any:
    if isinstance(value, dict):
        return {name: _repeat(part, count) for name, part in value.items()}
    return tuple(_repeat(part, count) for part in value) if isinstance(value, tuple) else np.stack([value] * count)


def test_distributions_are_those_of_the_actions(continuous: yamame.Run, masked: yamame.Run) -> None:
    """Of thousands of samples at one timestep, and alike in both."""
    num_envs = 4000
    seen = np.broadcast_to(np.array([0.5, -0.5, 1.0], np.float32), (num_envs, 3))
    found = []
    for policy in both(continuous, num_envs=num_envs).values():
        with pytest.raises(yamame.UserError, match="call act before distribution"):
            policy.distribution()
        action = policy.act(seen, deterministic=False)
        distribution = policy.distribution()
        error = np.abs(action.mean(axis=0) - distribution.mean[0]) / distribution.std[0]
        assert error.max() < 5 / np.sqrt(num_envs)
        np.testing.assert_allclose(action.std(axis=0), distribution.std[0], rtol=0.1)
        assert CONTINUOUS.contains(distribution.mode[0]) and distribution.mean.shape == action.shape
        found.append(distribution)
    for name in ("mean", "std", "mode"):
        np.testing.assert_allclose(getattr(found[0], name), getattr(found[1], name), rtol=0, atol=1e-4)

    mask = np.array([1, 0, 1, 1, 1, 0, 0], np.bool_)
    probabilities = []
    for policy in both(masked, num_envs=num_envs).values():
        action = policy.act(_repeat(sample(), num_envs), action_mask=[mask] * num_envs, deterministic=False)
        first, second = policy.distribution().probability
        assert first.shape == (num_envs, 3) and second.shape == (num_envs, 4)
        assert first[0, 1] == 0 and second[0, 2:].tolist() == [0, 0]
        for probability, column, start in ((first[0], action[:, 0], 1), (second[0], action[:, 1], -2)):
            counts = np.bincount(column - start, minlength=len(probability)) / num_envs
            assert np.abs(counts - probability).max() < 4 * 0.5 / np.sqrt(num_envs)
        probabilities.append(np.concatenate([first, second], axis=1))
    np.testing.assert_allclose(*probabilities, rtol=0, atol=1e-5)


def test_values_are_those_of_a_forward_pass(continuous: yamame.Run) -> None:
    """Critics of the default agent see states of other weights than those that act."""
    policy, rng, steps = continuous.load(num_envs=2), np.random.default_rng(0), 20
    with pytest.raises(yamame.UserError, match="call act before values"):
        policy.values()
    observations = rng.uniform(-1, 1, (steps + 1, 2, 3)).astype(np.float32)
    rewards = rng.normal(size=(steps + 1, 2)).astype(np.float32)
    starts, actions, values = rng.random((steps + 1, 2)) < 0.2, [], []
    starts[0] = True
    for time in range(steps + 1):
        policy.act(observations[time], rewards[time], starts[time])
        found = policy.values()
        actions.append(policy._previous_action)
        values.append(np.stack(list(found.values()), axis=1))
    run = load_trained_run(continuous.directory)
    algorithm = run.config.algorithm
    assert isinstance(algorithm, AMAGOConfig) and algorithm.learner.averaging_rate > 0
    assert list(found)[-1] == algorithm.agent.acting_gamma and len(found) == algorithm.num_policies(run.model)
    for row in range(2):
        trajectory = Trajectory(
            reward=rewards[1:, row],
            action=np.stack(actions)[:-1, row],
            terminated=np.zeros(steps, np.bool_),
            truncated=np.zeros(steps, np.bool_),
            episode_start=starts[:, row],
            observation={"observation": observations[:, row]},
            horizon=run.task.horizon,
        )
        expected = algorithm.analyze(run.model, trajectory).value_TG
        np.testing.assert_allclose(np.stack(values)[:, row], expected, rtol=1e-3, atol=1e-3)


def test_values_that_cannot_be_given(continuous: yamame.Run, masked: yamame.Run) -> None:
    policies = both(continuous)
    for policy in policies.values():
        policy.act(np.zeros(3))
        policy.act(np.zeros(3))
    with pytest.raises(yamame.UserError, match=r"was called at step 1 of a trial for the first time"):
        policies["run"].values()
    policies["run"].reset()
    policies["run"].act(np.zeros(3))
    assert all(isinstance(value, float) for value in policies["run"].values().values())
    with pytest.raises(yamame.UserError, match="the policy has no critics: load the run directory"):
        policies["policy.onnx"].values()


SCRIPT = """import sys

import numpy as np
import yamame

policy = yamame.load(sys.argv[1])
policy.act(np.full(3, 2.0))
for wrong in (
    lambda: yamame.load(sys.argv[1], num_envs=2.0),
    lambda: yamame.load(sys.argv[1], num_envs="3"),
    lambda: policy.act(np.zeros(3), deterministic="yes"),
    lambda: policy.act(np.zeros(3), deterministic=np.ones(3)),
):
    try:
        wrong()
    except yamame.UserError as error:
        print(error)
"""


def test_a_process_without_checks_of_types(continuous: yamame.Run, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(continuous.directory)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [
        "num_envs is 2.0: pass at least 1, or None for a single environment",
        "num_envs is '3': pass at least 1, or None for a single environment",
        "expected deterministic to be True, False or None, got 'yes'",
        "expected deterministic to be True, False or None, got array([1., 1., 1.])",
    ]
    assert f"{script}:7: UserWarning: observation 'observation' is outside of the bounds" in found.stderr


def test_the_acting_gamma_is_the_last_one_though_it_is_also_among_the_others(tmp_path: Path) -> None:
    run = yamame.train(
        "passive-tmaze",
        env={"horizon": 3},
        env_steps=96,
        num_envs=4,
        size="tiny",
        agent={"gammas": (0.9, 0.5), "acting_gamma": 0.9},
        eval={"trials": 4, "final_trials": 4, "num_envs": 4},
        run_dir=tmp_path / "run",
        quiet=True,
    )
    policy = run.load()
    policy.act(policy.observation_space.sample())
    assert list(policy.values()) == [0.5, 0.9]
