"""Recurrent SAC keeps the promises of algorithms: acting is the forward of training, for all kinds of action."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from action_environments import RepeatBits, RepeatPair, RepeatParts
from recurrent_agents import TINY_RECURRENT, recurrent_agent
from tiny_agents import (
    CONTINUOUS,
    TINY_TRANSFORMER,
    ActionSpace,
    double_batch,
    every_action_space,
    random_actions,
    random_trajectory,
    shake,
)

from yamame.algorithms.functional_network_policy import FunctionalNetworkPolicy
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.algorithms.recurrent_sac.config import RecurrentSACConfig
from yamame.algorithms.recurrent_sac.learner import RecurrentSACLearnerConfig
from yamame.collect.exploration import NoExploration
from yamame.config.named_code import caller_modules
from yamame.data.batch import Window
from yamame.data.sampler import ReplayConfig
from yamame.data.step import PolicyInput
from yamame.envs.env_fn import EnvFnConfig
from yamame.errors import UserError
from yamame.metrics.registry import METRICS, read_metrics
from yamame.nets.sequence.gru import GRUConfig
from yamame.recipes import config_from_flags, load_recipe, with_algorithm
from yamame.run_config import EvalConfig, RunConfig
from yamame.tools.trial_recording import record_trial
from yamame.training import start as runs
from yamame.training.run_files import RunMetadata
from yamame.training.trained_run import load_trained_run

TD3 = RecurrentSACLearnerConfig(method="td3")
TRIALS = ((4, 8), (9, 3), (12,))
"""Timesteps of the trials that each environment goes through."""


@every_action_space
@pytest.mark.parametrize("encoder", [TINY_RECURRENT.trajectory_encoder, TINY_TRANSFORMER], ids=["gru", "transformer"])
@pytest.mark.parametrize("shared", [False, True], ids=["separate", "shared"])
@torch.no_grad()
def test_acting_step_by_step_is_the_forward_of_training(action_space: ActionSpace, encoder: Any, shared: bool) -> None:
    config = replace(TINY_RECURRENT, trajectory_encoder=encoder, shared=shared)
    agent = recurrent_agent(config, action_space, context_length=11).eval()
    shake(agent)
    agent.encoders.timestep_encoder.normalizer.mean.uniform_(-1.0, 1.0)
    rng = np.random.default_rng(0)
    trials = [[random_trajectory(rng, length, action_space) for length in lengths] for lengths in TRIALS]
    flat = [(row, trial) for row, of_row in enumerate(trials) for trial in of_row]
    batch = double_batch([Window(trajectory=trial, start=0, length=len(trial)) for _, trial in flat])
    expected_ND = agent.encoders(agent.features(batch), batch)
    schedule = [[(trial, time) for trial in of_row for time in range(len(trial))] for of_row in trials]
    first = {id(trial): int(batch.cu_seqlens[index]) for index, (_, trial) in enumerate(flat)}
    policy = NetworkPolicy(agent, num_envs=len(trials), generator=torch.Generator())
    for now in zip(*schedule, strict=True):
        step = PolicyInput(
            time=np.array([time for _, time in now]),
            observation={name: np.stack([t.observation[name][time] for t, time in now]) for name in ("vector", "cell")},
            previous_action=np.stack([t.action[max(0, time - 1)] for t, time in now]),
            previous_reward=np.array([t.reward[max(0, time - 1)] for t, time in now]),
            episode_start=np.array([t.episode_start[time] for t, time in now]),
        )
        token_E = torch.tensor([first[id(trial)] + time for trial, time in now])
        torch.testing.assert_close(policy.state(step).clone(), expected_ND[token_E], rtol=0, atol=1e-9)


@every_action_space
@torch.no_grad()
def test_values_while_acting_are_those_of_the_analysis(action_space: ActionSpace) -> None:
    agent = recurrent_agent(action_space=action_space)
    shake(agent)
    trial = random_trajectory(np.random.default_rng(0), 6, action_space)
    config = RecurrentSACConfig(agent=TINY_RECURRENT)
    analysis = config.analyze(agent, trial)
    values = config.value_function(agent, num_envs=1)
    assert analysis.q_TG is not None and analysis.q_TG.shape == (6, 1) and analysis.value_TG is not None
    for time in range(7):
        step = PolicyInput(
            time=np.array([time]),
            observation={name: leaf[time : time + 1] for name, leaf in trial.observation.items()},
            previous_action=trial.action[max(0, time - 1)][None],
            previous_reward=trial.reward[max(0, time - 1)][None],
            episode_start=trial.episode_start[time : time + 1],
        )
        np.testing.assert_allclose(values.step(step)[0], analysis.value_TG[time], atol=1e-5)


def _step(rng: np.random.Generator, action_space: ActionSpace) -> PolicyInput:
    return PolicyInput(
        time=np.zeros(2, np.int64),
        observation={"vector": rng.normal(size=(2, 3)), "cell": rng.integers(0, 4, 2)},
        previous_action=random_actions(rng, 2, action_space),
        previous_reward=np.zeros(2, np.float32),
        episode_start=np.ones(2, np.bool_),
    )


def test_td3_explores_with_noise_and_acts_without() -> None:
    agent, rng = recurrent_agent(action_space=CONTINUOUS, learner=TD3), np.random.default_rng(0)
    config = RecurrentSACConfig(agent=TINY_RECURRENT, learner=TD3)
    step = _step(rng, CONTINUOUS)

    def act(*, collects: bool, seed: int) -> np.ndarray:
        generator = torch.Generator().manual_seed(seed)
        return config.build_policy(agent, num_envs=2, generator=generator, collects=collects).act(step)

    mode = act(collects=False, seed=0)
    np.testing.assert_array_equal(act(collects=False, seed=1), mode)
    noise = np.stack([act(collects=True, seed=seed) for seed in range(200)]) - mode
    assert abs(noise.mean()) < 0.03 and 0.085 < noise.std() < 0.115


@every_action_space
def test_evaluations_act_with_the_mode(action_space: ActionSpace) -> None:
    agent, step = recurrent_agent(action_space=action_space), _step(np.random.default_rng(0), action_space)

    def actions(config: RecurrentSACConfig, *, collects: bool) -> np.ndarray:
        built = (
            config.build_policy(agent, num_envs=2, generator=torch.Generator().manual_seed(seed), collects=collects)
            for seed in range(20)
        )
        return np.stack([policy.act(step) for policy in built])

    config = RecurrentSACConfig(agent=TINY_RECURRENT)
    assert (actions(config, collects=False) == actions(config, collects=False)[0]).all()
    for sampled in (
        actions(config, collects=True),
        actions(replace(config, mode_in_evaluations=False), collects=False),
    ):
        assert (sampled != sampled[0]).any()


@every_action_space
@torch.no_grad()
def test_an_exported_step_acts_with_the_mode(action_space: ActionSpace) -> None:
    agent, step = recurrent_agent(action_space=action_space), _step(np.random.default_rng(0), action_space)
    config = RecurrentSACConfig(agent=TINY_RECURRENT)
    functional = config.functional_policy(agent)
    assert isinstance(functional, FunctionalNetworkPolicy)
    names = ("time", "previous_action", "previous_reward", "episode_start")
    results = functional(
        {
            **{name: torch.from_numpy(getattr(step, name)) for name in names},
            **{f"observation/{name}": torch.from_numpy(leaf) for name, leaf in step.observation.items()},
            **{f"memory/{name}": tensor for name, tensor in functional.empty_memory(2).items()},
            "deterministic": torch.zeros(2, dtype=torch.bool),
            "seed": torch.zeros(2, dtype=torch.int64),
        }
    )
    policy = config.build_policy(agent, num_envs=2, generator=torch.Generator())
    np.testing.assert_allclose(results["policy_action"], policy.act(step), atol=1e-9)


@pytest.mark.parametrize("task", [RepeatPair, RepeatBits, RepeatParts])
@pytest.mark.slow
def test_a_run_with_every_kind_of_action(task: Any, tmp_path: Path) -> None:
    """Vectors of choices, bits, and a Dict with a mask: it trains, evaluates, resumes, is loaded and recorded."""
    config = RunConfig(
        env=EnvFnConfig(env_fn=task, horizon=4, num_workers=0),
        num_envs=4,
        env_steps=160,
        algorithm=RecurrentSACConfig(agent=TINY_RECURRENT),
        exploration=NoExploration(random_env_steps=16),
        replay=ReplayConfig(batch_size=4),
        updates_per_env_step=0.1,
        eval=EvalConfig(trials=4, final_trials=4, num_envs=2),
    )
    directory = tmp_path / "run"
    result = runs.train_run(config, RunMetadata(recipe="repeat"), run_dir=directory, quiet=True)
    assert result["updates"] == 16
    with caller_modules(["action_environments"]):
        assert runs.resume_run(directory, env_steps=192, quiet=True)["updates"] == 19
        recording = record_trial(load_trained_run(directory), seed=0)
    logged = {key for row in read_metrics(directory) for key in row if key.startswith(("loss", "critic", "actor"))}
    assert {"loss/critic", "loss/actor", "loss/temperature", "actor/temperature", "actor/target_entropy"} <= logged
    assert logged <= {metric.key for metric in METRICS}
    assert len(recording) == 4 and recording.analysis is not None
    assert recording.analysis.value_TG is not None and recording.analysis.value_TG.shape == (5, 1)


def test_discrete_actions_of_td3_are_an_error_in_a_line(tmp_path: Path) -> None:
    config = RunConfig(
        env=EnvFnConfig(env_fn=RepeatPair, horizon=4, num_workers=0),
        algorithm=RecurrentSACConfig(agent=TINY_RECURRENT, learner=TD3),
    )
    with pytest.raises(UserError, match=r"TD3 needs continuous actions: use --learner\.method sac"):
        runs.train_run(config, RunMetadata(recipe="repeat"), run_dir=tmp_path / "run", quiet=True)


def test_algorithm_recurrent_sac_takes_the_place_of_a_recipes() -> None:
    recipe = with_algorithm(load_recipe("wind"), "recurrent_sac")
    config = config_from_flags(recipe, [], ["--learner.method", "td3", "--agent.acting-gamma", "0.9"], size="tiny")
    assert isinstance(config.algorithm, RecurrentSACConfig)
    assert config.algorithm.learner.method == "td3" and config.algorithm.agent.acting_gamma == 0.9
    assert config.algorithm.agent.trajectory_encoder == GRUConfig(d_model=32, num_layers=1)
    assert config.algorithm.agent.critic_hidden_sizes == config.algorithm.agent.actor.hidden_sizes == (64, 64)
    assert config.algorithm.agent.actor.probability_clip == (1e-8, 1.0)
    assert config.replay.unrewarded_keep_prob == 1.0 and config.learning_starts < config.env_steps
    updates = config.env_steps * config.updates_per_env_step
    assert config.algorithm.learner.target_entropy_anneal_updates == round(updates / 2)


def test_targets_follow_as_fast_as_a_run_is_long() -> None:
    recipe = with_algorithm(load_recipe("passive-tmaze"), "recurrent_sac")

    def tau(env_steps: int) -> float:
        config = config_from_flags(recipe, [], ["--env-steps", str(env_steps)])
        assert isinstance(config.algorithm, RecurrentSACConfig)
        return config.algorithm.learner.tau

    horizon = recipe.env.max_trial_steps
    assert tau(10_000) == pytest.approx(5 * horizon / 5_000)
    assert tau(1_000) == 0.05
    assert tau(10_000_000) == RecurrentSACLearnerConfig.tau
