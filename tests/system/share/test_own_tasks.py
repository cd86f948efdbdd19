"""Policies of tasks that have no recipe: averaged weights, and an environment that a function makes."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from tiny import TINY_RUN

import yamame
from yamame.errors import UserError
from yamame.tools.share.pack import pack_policy
from yamame.tools.trial_recording import record_trial
from yamame.training.trained_run import load_trained_run

pytestmark = pytest.mark.slow


def test_averaged_weights_act(tmp_path: Path) -> None:
    """Of an agent with averaged weights these are the ones that act; its other networks are not shared."""
    run = yamame.train("CartPole-v1", run_dir=tmp_path / "run", env_steps=400, **TINY_RUN)
    assert run.config.algorithm.learner.averaging_rate > 0
    policy = tmp_path / "policy"
    pack_policy(load_trained_run(run.directory), policy, acting_only=True, trials=2)
    trained = (load_trained_run(each) for each in (run.directory, policy))
    ours, theirs = (record_trial(each, seed=3, deterministic=True) for each in trained)
    assert (ours.trajectory.action == theirs.trajectory.action).all()
    assert theirs.analysis is not None and theirs.analysis.q_TG is None
    shown = theirs.analysis.action_distributions.probability_TA
    assert shown is not None and (shown[:-1].argmax(1) == theirs.trajectory.action.ravel()).all()
    policies = [yamame.load(each) for each in (run.directory, policy)]
    rows = np.random.default_rng(0).normal(0.0, 0.1, (20, 4)).astype(np.float32)
    assert len({tuple(int(each.act(row, deterministic=True)) for row in rows) for each in policies}) == 1


def test_a_function_s_environment_is_passed_again(tmp_path: Path) -> None:
    """The policy is evaluated before it is shared, which needs the environment; to act needs none."""
    run = yamame.train(
        lambda: gymnasium.make("CartPole-v1"), horizon=20, run_dir=tmp_path / "run", env_steps=200, **TINY_RUN
    )
    with pytest.raises(UserError, match="--env module:function"):
        pack_policy(load_trained_run(run.directory), tmp_path / "policy", trials=2)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    pack_policy(load_trained_run(run.directory, config=run.config), tmp_path / "policy", trials=2)
    yamame.load(tmp_path / "policy").act(np.zeros(4, np.float32))
