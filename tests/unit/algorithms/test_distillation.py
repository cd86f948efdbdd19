"""Distillation against slow loops, and that acting, export and resumed updates are those of training."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tiny_agents import (
    CONTINUOUS,
    DISCRETE,
    HORIZON,
    OBSERVATIONS,
    SEVERAL,
    TINY_TRANSFORMER,
    ActionSpace,
    double_batch,
    every_action_space,
    random_actions,
    random_trajectory,
    random_windows,
    shake,
)

from yamame.algorithms.distillation.agent import DistillationAgent, DistillationAgentConfig
from yamame.algorithms.distillation.config import DistillationConfig
from yamame.algorithms.distillation.learner import Distillation, DistillationLearnerConfig
from yamame.algorithms.distillation.losses import imitation_loss
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.collect.exploration import NoExploration
from yamame.data.batch import Window
from yamame.data.schema import TaskSpec
from yamame.data.step import PolicyInput
from yamame.errors import UserError
from yamame.nets.heads.actor import Actor, ActorConfig
from yamame.nets.sequence.gru import GRUConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig
from yamame.recipes import config_from_flags, load_recipe, with_algorithm
from yamame.training.run_files import RunMetadata
from yamame.training.start import train_run

TINY_ROTARY = replace(TINY_TRANSFORMER, position_embedding="rotary")
TINY_DISTILLATION = DistillationAgentConfig(
    timestep_encoder=TimestepEncoderConfig(hidden_sizes=(16,), output_size=12, observe_time=False),
    trajectory_encoder=TINY_ROTARY,
    actor=ActorConfig(hidden_sizes=(16,)),
)


def tiny_agent(
    action_space: ActionSpace = DISCRETE, *, encoder: Any = TINY_ROTARY, context_length: int = 12
) -> DistillationAgent:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        agent = DistillationAgent(
            replace(TINY_DISTILLATION, trajectory_encoder=encoder),
            observation_space=OBSERVATIONS,
            action_space=action_space,
            context_length=context_length,
            horizon=HORIZON,
        )
    return agent.double()


def tiny_learner(action_space: ActionSpace = DISCRETE, encoder: Any = TINY_ROTARY, **fields: Any) -> Distillation:
    config = DistillationLearnerConfig(**{"lr_warmup_updates": 0, "learning_rate": 1e-2, **fields})
    return Distillation(tiny_agent(action_space, encoder=encoder), config, generator=torch.Generator().manual_seed(0))


def policy_of(action_space: ActionSpace, mask: torch.Tensor | None = None, *, embeds: bool = False) -> Any:
    torch.manual_seed(0)
    actor = Actor(ActorConfig(), input_size=4, action_space=action_space, num_gammas=1, embeds=embeds).double()
    actor.clip = (1e-8, 1.0)
    return actor(3.0 * torch.randn(6, 4, dtype=torch.float64), mask), actor


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("embeds", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("action_space", [DISCRETE, SEVERAL], ids=["discrete", "several"])
def test_the_loss_is_that_of_a_slow_loop(action_space: Any, masked: bool, embeds: bool, smoothing: float) -> None:
    rng = np.random.default_rng(1)
    sizes = [3] if action_space is DISCRETE else [3, 2]
    action = random_actions(rng, 6, action_space).reshape(6, -1)
    allowed = np.ones((6, sum(sizes)), bool)
    if masked:
        allowed[:3, 0] = False
        action[:3, 0] = np.maximum(action[:3, 0], 1)
    policy, _ = policy_of(action_space, torch.from_numpy(allowed) if masked else None, embeds=embeds)
    found = imitation_loss(policy, torch.from_numpy(action).reshape(6, *action_space.shape), smoothing)
    probability = policy.probability_NGA[:, 0].detach().numpy()
    for token in range(6):
        expected, first = 0.0, 0
        for component, size in enumerate(sizes):
            of_component = [first + choice for choice in range(size) if allowed[token, first + choice]]
            for index in of_component:
                label = smoothing / len(of_component) + (1 - smoothing) * (index - first == action[token, component])
                expected -= label * np.log(probability[token, index])
            first += size
        assert float(found[token].detach()) == pytest.approx(expected, abs=1e-6)


def test_the_loss_of_a_box_is_the_negative_log_density() -> None:
    policy, _ = policy_of(CONTINUOUS)
    action = torch.from_numpy(random_actions(np.random.default_rng(0), 6, CONTINUOUS)).double()
    mean, std = policy.mean_NGA[:, 0], policy.log_std_NGA[:, 0].exp()
    before = action.clamp(-0.99, 0.99).atanh()
    density = torch.distributions.Normal(mean, std).log_prob(before) - torch.log1p(-(action.clamp(-0.99, 0.99) ** 2))
    torch.testing.assert_close(imitation_loss(policy, action, 0.0), -density.sum(1))


def test_a_forbidden_action_gets_no_gradient_from_smoothing() -> None:
    mask = torch.tensor([[False, True, True]] * 6)
    policy, actor = policy_of(DISCRETE, mask)
    imitation_loss(policy, torch.ones(6, dtype=torch.int64), 0.2).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in actor.parameters())
    assert float(actor.mlp.output.weight.grad[0].abs().max()) == 0.0


@every_action_space
def test_an_update_averages_over_the_steps_of_all_windows(action_space: ActionSpace) -> None:
    learner = tiny_learner(action_space)
    windows = random_windows(0, (5, 9, 1), action_space)
    twin = copy.deepcopy(learner.agent)
    found = learner.update(double_batch(windows, token_multiple=16))
    losses = []
    batch = double_batch(windows, token_multiple=16)
    features = twin.features(batch)
    twin.update_statistics(features, batch)
    for window in windows:
        alone = double_batch([window])
        policy = twin.actor(twin.encode(twin.features(alone), alone))
        losses += imitation_loss(policy, alone.action, 0.0)[: window.length].tolist()
    assert len(losses) == 15 and float(found["loss/imitation"]) == pytest.approx(np.mean(losses), abs=1e-9)


@every_action_space
def test_it_learns_a_batch_by_heart(action_space: ActionSpace) -> None:
    learner, batch = tiny_learner(action_space), double_batch(random_windows(0, (6, 8), action_space))
    losses = [float(learner.update(batch)["loss/imitation"]) for _ in range(60)]
    assert losses[-1] < losses[0] - 0.5


def test_a_non_finite_update_changes_nothing_but_its_counter() -> None:
    learner, batch = tiny_learner(max_nonfinite_updates=2), double_batch(random_windows(0, (6, 8)))
    learner.update(batch)
    before = copy.deepcopy(learner.agent.state_dict())
    broken = replace(batch, previous_reward=torch.full_like(batch.previous_reward, torch.inf))
    learner.update(broken)
    learner.raise_if_diverged()
    learner.update(broken)
    assert all(torch.equal(value, before[name]) for name, value in learner.agent.state_dict().items())
    with pytest.raises(UserError, match="2 consecutive updates had a non-finite loss"):
        learner.raise_if_diverged()


@pytest.mark.parametrize(
    "encoder", [TINY_ROTARY, replace(TINY_ROTARY, dropout=0.1), GRUConfig(d_model=16, num_layers=1)]
)
def test_it_goes_on_between_two_updates_to_the_bit(encoder: Any) -> None:
    one, other = tiny_learner(encoder=encoder), tiny_learner(encoder=encoder)
    batches = [double_batch(random_windows(seed, (6, 8))) for seed in range(6)]
    for batch in batches[:3]:
        one.update(batch)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    for batch in batches[3:]:
        one.update(batch)
        other.update(batch)
    same = zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in same) and one.num_updates == other.num_updates == 6


@every_action_space
@torch.no_grad()
def test_acting_step_by_step_is_the_forward_of_training(action_space: ActionSpace) -> None:
    agent = tiny_agent(action_space, context_length=11).eval()
    shake(agent)
    trial = random_trajectory(np.random.default_rng(0), 10, action_space)
    batch = double_batch([Window(trajectory=trial, start=0, length=10)])
    expected_ND = agent.encode(agent.features(batch), batch)
    policy = NetworkPolicy(agent, num_envs=1, generator=torch.Generator(), clips=False)
    for time in range(11):
        torch.testing.assert_close(policy.state(_step(trial, time))[0], expected_ND[time], rtol=0, atol=1e-9)


@torch.no_grad()
def test_a_window_looks_the_same_wherever_it_is_in_its_history() -> None:
    """Neither time nor positions tell how old a history is; but the first step of a trial has no previous action."""
    agent = tiny_agent(context_length=12).eval()
    shake(agent)
    batch = double_batch([Window(trajectory=random_trajectory(np.random.default_rng(0), 20), start=3, length=8)])
    later = replace(batch, time=batch.time + 5_000)
    states = (agent.encode(agent.features(each), each) for each in (batch, later))
    torch.testing.assert_close(next(states), next(states), rtol=0, atol=1e-9)


@every_action_space
@torch.no_grad()
def test_an_exported_step_is_the_policys(action_space: ActionSpace) -> None:
    config = DistillationConfig(agent=TINY_DISTILLATION)
    agent, step = tiny_agent(action_space), _step(random_trajectory(np.random.default_rng(0), 4, action_space), 0)
    functional = config.functional_policy(agent)
    names = ("time", "previous_action", "previous_reward", "episode_start")
    results = functional(
        {
            **{name: torch.from_numpy(getattr(step, name)) for name in names},
            **{f"observation/{name}": torch.from_numpy(leaf) for name, leaf in step.observation.items()},
            **{f"memory/{name}": tensor for name, tensor in functional.empty_memory(1).items()},
            "deterministic": torch.ones(1, dtype=torch.bool),
            "seed": torch.zeros(1, dtype=torch.int64),
        }
    )
    policy = config.build_policy(agent, num_envs=1, generator=torch.Generator())
    np.testing.assert_allclose(results["policy_action"], policy.act(step, deterministic=True), atol=1e-9)


def test_its_settings_hide_the_time_and_keep_the_networks() -> None:
    recipe = with_algorithm(load_recipe("dark-key-to-door"), "distillation")
    flags = ["--learner.label-smoothing", "0.1", "--offline.data", "histories", "--offline.total-updates", "7"]
    config = config_from_flags(recipe, [], flags, size="tiny")
    algorithm = config.algorithm
    assert isinstance(algorithm, DistillationConfig) and algorithm.learner.label_smoothing == 0.1
    assert not algorithm.agent.timestep_encoder.observe_time and algorithm.agent.timestep_encoder.output_size == 32
    assert algorithm.agent.trajectory_encoder.position_embedding == "rotary"
    assert config.exploration == NoExploration() and config.offline.is_offline_only
    gru = config_from_flags(recipe, [], flags, model="gru").algorithm
    assert isinstance(gru, DistillationConfig) and isinstance(gru.agent.trajectory_encoder, GRUConfig)


@pytest.mark.parametrize("flags", [[], ["--offline.data", "histories", "--offline.batch-fraction", "0.5"]])
def test_without_stored_histories_alone_it_is_refused_in_a_line(flags: list[str], tmp_path: Any) -> None:
    recipe = with_algorithm(load_recipe("dark-key-to-door"), "distillation")
    with pytest.raises(UserError, match=r"learns from stored data alone: pass --offline\.data"):
        train_run(
            config_from_flags(recipe, [], flags),
            RunMetadata(recipe="dark-key-to-door"),
            run_dir=tmp_path / "run",
            quiet=True,
        )
    assert not (tmp_path / "run").exists()


def test_label_smoothing_of_a_box_is_refused() -> None:
    config = DistillationConfig(agent=TINY_DISTILLATION, learner=DistillationLearnerConfig(label_smoothing=0.1))
    box = spaces.Box(-1.0, 1.0, (2,), np.float32)
    task = TaskSpec(observation_space=OBSERVATIONS, action_space=box, horizon=4, action_mask_key="")
    with pytest.raises(UserError, match="for discrete actions"):
        config.build_model(task, context_length=4)


def test_learned_positions_are_refused() -> None:
    task = TaskSpec(observation_space=OBSERVATIONS, action_space=DISCRETE, horizon=4, action_mask_key="")
    learned = replace(TINY_DISTILLATION, trajectory_encoder=replace(TINY_ROTARY, position_embedding="learned"))
    with pytest.raises(UserError, match="learned positions end at the horizon"):
        DistillationConfig(agent=learned).build_model(task, context_length=4)


def test_the_learning_rate_rises_and_decays() -> None:
    config = DistillationLearnerConfig(learning_rate=1.0, lr_warmup_updates=2, lr_decay_updates=10)
    assert [round(config.lr_at(each), 3) for each in (1, 5, 10, 20)] == [0.455, 0.55, 0.1, 0.1]


def _step(trial: Any, time: int) -> PolicyInput:
    return PolicyInput(
        time=np.array([time]),
        observation={name: leaf[time : time + 1].copy() for name, leaf in trial.observation.items()},
        previous_action=trial.action[max(0, time - 1)][None].copy(),
        previous_reward=trial.reward[max(0, time - 1)][None].copy(),
        episode_start=trial.episode_start[time : time + 1].copy(),
    )
