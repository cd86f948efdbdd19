from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tiny_agents import (
    CONTINUOUS,
    DISCRETE,
    HORIZON,
    SEVERAL,
    TINY_AGENT,
    ActionSpace,
    every_action_space,
    random_step,
    shake,
    tiny_agent,
)

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.errors import UserError
from yamame.nets.blocks import SigmaLinear

ENVS = 5
step_at = partial(random_step, num_envs=ENVS)


def policy_of(agent: torch.nn.Module, *, records_log_prob: bool = False) -> NetworkPolicy:
    generator = torch.Generator().manual_seed(0)
    return NetworkPolicy(agent, num_envs=ENVS, generator=generator, records_log_prob=records_log_prob)


@every_action_space
def test_actions_are_of_the_acting_discount(action_space: ActionSpace) -> None:
    agent = tiny_agent(action_space=action_space)
    shake(agent, scale=0.5)
    policy, twin = policy_of(agent), policy_of(agent)
    for time in range(4):
        action = policy.act(step_at(time, action_space), deterministic=True)
        mode_EG = agent.actor(twin.state(step_at(time, action_space)).clone()).mode()
        np.testing.assert_allclose(action, mode_EG[:, -1].detach().numpy(), atol=1e-12)
        assert not np.allclose(action, mode_EG[:, 0].detach().numpy())


@every_action_space
def test_actions_have_the_form_of_the_space(action_space: ActionSpace) -> None:
    policy = policy_of(tiny_agent(action_space=action_space, dtype=torch.float32))
    for deterministic in (True, False):
        action = policy.act(step_at(0, action_space), deterministic=deterministic)
        assert action.dtype == action_space.dtype
        assert action.shape == (ENVS, *action_space.shape)
        assert all(action_space.contains(one) for one in action)


def test_a_policy_changes_only_when_it_is_refreshed() -> None:
    agent = tiny_agent()
    policy = policy_of(agent)
    before = policy.state(step_at(0)).clone()
    shake(agent)
    agent.timestep_encoder.normalizer.mean.fill_(0.5)
    assert torch.equal(policy.state(step_at(0)), before)
    policy.load_weights(agent, version=7)
    assert policy.version == 7
    assert not torch.allclose(policy.state(step_at(0)), before)


def test_a_policy_leaves_the_agent_alone() -> None:
    agent = tiny_agent().train()
    before = {name: value.clone() for name, value in agent.state_dict().items()}
    policy = policy_of(agent)
    policy.act(step_at(0))
    assert any(isinstance(part, SigmaLinear) for part in agent.modules())
    assert all(part.training for part in agent.modules())
    assert all(parameter.requires_grad for parameter in agent.trajectory_encoder.parameters())
    assert all(torch.equal(before[name], value) for name, value in agent.state_dict().items())


def test_memory_outlives_load_weights_but_not_a_reset() -> None:
    agent = tiny_agent()
    shake(agent)
    kept, refreshed, reset = policy_of(agent), policy_of(agent), policy_of(agent)
    for policy in (kept, refreshed, reset):
        policy.state(step_at(0))
    refreshed.load_weights(agent, version=1)
    reset.reset()
    expected = kept.state(step_at(1))
    assert torch.equal(refreshed.state(step_at(1)), expected)
    assert not torch.allclose(reset.state(step_at(1)), expected)


def test_time_enters_as_a_fraction_of_the_horizon() -> None:
    agent = tiny_agent()
    features = agent.timestep_encoder.features(
        observation={"vector": torch.zeros(1, 3), "cell": torch.zeros(1, dtype=torch.int64)},
        previous_action=torch.zeros(1, dtype=torch.int64),
        previous_reward=torch.zeros(1),
        episode_start=torch.zeros(1, dtype=torch.bool),
        time=torch.tensor([HORIZON // 4]),
        horizon=torch.tensor([float(HORIZON)]),
    )
    assert (features == 0.25).sum() == 1


def test_a_repeated_action_was_certain() -> None:
    """In a Box what is recorded is the density of the policy, whatever the noise."""
    for action_space, certain in ((DISCRETE, True), (SEVERAL, True), (CONTINUOUS, False)):
        policy = policy_of(tiny_agent(action_space=action_space), records_log_prob=True)
        action = policy.act(step_at(0, action_space))
        repeated_E = np.arange(ENVS) % 2 == 0
        noise = np.full(ENVS, 0.3)
        plain, found = (policy.extras(action, noise, each)["acting_log_prob"] for each in (repeated_E < 0, repeated_E))
        np.testing.assert_array_equal(found, np.where(repeated_E & certain, 0.0, plain))
        assert (plain != 0.0).all()


CLIPPED = 0.99 / (0.99 + 2 * 0.001)
"""Largest probability of three actions."""


@pytest.mark.parametrize(
    ("collects", "clip_evaluation", "expected"), [(True, False, CLIPPED), (False, True, CLIPPED), (False, False, 1.0)]
)
def test_evaluations_may_act_without_the_clip(collects: bool, clip_evaluation: bool, expected: float) -> None:
    agent = tiny_agent()
    with torch.no_grad():
        agent.actor.mlp.output.weight.zero_()
        agent.actor.mlp.output.bias.copy_(torch.tensor([40.0, 0.0, 0.0]).repeat(3))
    actor = replace(TINY_AGENT.actor, clip_evaluation=clip_evaluation)
    config = AMAGOConfig(agent=replace(TINY_AGENT, actor=actor))
    policy = config.build_policy(agent, num_envs=5, generator=torch.Generator().manual_seed(0), collects=collects)
    policy.load_weights(agent, version=1)
    most_likely = policy.distribution(step_at(0)).probability_NGA.max(-1).values
    torch.testing.assert_close(most_likely, torch.full_like(most_likely, expected), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("collects", "index", "expected"), [(True, 0, 2), (False, 0, 0), (False, -1, 2)])
def test_evaluations_may_act_with_the_policy_of_another_gamma(collects: bool, index: int, expected: int) -> None:
    agent = tiny_agent()
    with torch.no_grad():
        agent.actor.mlp.output.weight.zero_()
        agent.actor.mlp.output.bias.copy_(40.0 * torch.eye(3).flatten())  # gamma g chooses action g
    config = AMAGOConfig(agent=TINY_AGENT)
    assert config.num_policies(agent) == 3
    config = config.with_policy(index)
    policy = config.build_policy(agent, num_envs=5, generator=torch.Generator().manual_seed(0), collects=collects)
    for version in (0, 1):
        assert policy.act(step_at(version), deterministic=True).tolist() == [expected] * 5
        policy.load_weights(agent, version=version)


def test_an_index_beyond_the_gammas_is_refused() -> None:
    with pytest.raises(UserError, match="evaluation_gamma_index is 3: there are 3 gammas"):
        tiny_agent(replace(TINY_AGENT, evaluation_gamma_index=3))
