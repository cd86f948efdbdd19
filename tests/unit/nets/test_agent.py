from dataclasses import replace

import pytest
import torch
from tiny_agents import (
    CONTINUOUS,
    DISCRETE,
    SEVERAL,
    TINY_AGENT,
    TINY_TRANSFORMER,
    ActionSpace,
    double_batch,
    every_action_space,
    gradients,
    random_windows,
    shake,
    tiny_agent,
)

from yamame.algorithms.amago.agent import PAPER_CONTINUOUS, PAPER_DISCRETE, AgentConfig
from yamame.data.batch import Predictions
from yamame.errors import UserError
from yamame.nets.heads.actor import PolicyDistribution
from yamame.nets.heads.distributions import FactoredPolicy
from yamame.nets.heads.popart import PopArtConfig
from yamame.nets.sequence.feedforward import FeedForwardConfig
from yamame.nets.sequence.gru import GRUConfig
from yamame.nets.sequence.transformer import TransformerConfig

TOKENS, MEMBERS, DISCOUNTS = 13, 4, 3


def predictions_of(agent: torch.nn.Module, action_space: ActionSpace) -> Predictions:
    batch = double_batch(random_windows(0, (4, 6), action_space), token_multiple=TOKENS)
    state_ND = agent.encode(agent.features(batch), batch)
    target_NG = torch.zeros(TOKENS, DISCOUNTS, dtype=torch.float64)
    noise = agent.actor.sample_noise(state_ND, torch.Generator().manual_seed(0))
    return agent.predict(state_ND, batch, target_NG, noise)


def parts_with_gradient(agent: torch.nn.Module, value: torch.Tensor) -> set[str]:
    """Children of the agent in which some parameter gets a gradient other than zero."""
    agent.zero_grad()
    value.sum().backward(retain_graph=True)
    return {
        name
        for name, part in agent.named_children()
        if any(parameter.grad is not None and parameter.grad.any() for parameter in part.parameters())
    }


@every_action_space
def test_who_learns_from_what(action_space: ActionSpace) -> None:
    agent = tiny_agent(action_space=action_space)
    shake(agent)
    predictions = predictions_of(agent, action_space)
    encoders = {"timestep_encoder", "trajectory_encoder"}
    assert parts_with_gradient(agent, predictions.q_data_NKG) == {*encoders, "critic"}
    assert parts_with_gradient(agent, predictions.q_policy_NKG) == {*encoders, "actor"}
    assert parts_with_gradient(agent, predictions.log_prob_NG) == {*encoders, "actor"}
    for name in ("td_target_NG", "q_scale_G", "q_shift_G"):
        assert not getattr(predictions, name).requires_grad


@every_action_space
def test_every_parameter_learns(action_space: ActionSpace) -> None:
    """Nothing trainable is left out of the graph; every part of it gets a gradient from some prediction."""
    agent = tiny_agent(action_space=action_space)
    shake(agent)
    predictions = predictions_of(agent, action_space)
    (predictions.q_data_NKG.square().sum() + predictions.q_policy_NKG.square().sum()).backward()
    without = {name for name, gradient in gradients(agent).items() if not gradient.any()}
    assert not without


@every_action_space
def test_slow_heads_are_not_trained_and_follow_by_their_share(action_space: ActionSpace) -> None:
    agent = tiny_agent(action_space=action_space)
    slow = {name: value.clone() for name, value in agent.named_parameters() if name.startswith("target_")}
    assert slow and not any(agent.get_parameter(name).requires_grad for name in slow)
    for name, value in slow.items():
        assert torch.equal(value, agent.get_parameter(name.removeprefix("target_"))), "equal at the start"
    for head in (agent.actor, agent.critic):
        shake(head)
    agent.targets().update(torch.tensor(0.25))
    for name, before in slow.items():
        online = agent.get_parameter(name.removeprefix("target_"))
        expected = 0.75 * before + 0.25 * online
        torch.testing.assert_close(agent.get_parameter(name), expected, rtol=0, atol=1e-14)


@every_action_space
def test_target_values_come_from_the_slow_heads_in_units_of_reward(action_space: ActionSpace) -> None:
    agent = tiny_agent(action_space=action_space)
    agent.value_code.update(torch.tensor([[30.0, -2.0, 500.0]]).double(), torch.ones(1, dtype=torch.bool))
    state_ND = torch.randn(5, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = agent.actor.sample_noise(state_ND, torch.Generator().manual_seed(1))
    before = agent.target_values(state_ND, None, noise).q_policy_NKG
    raw = agent.critic.policy_q(state_ND, agent.actor(state_ND), noise, agent.value_code)
    torch.testing.assert_close(before, agent.value_code.denormalize(raw.detach()))
    shake(agent.actor)
    shake(agent.critic)
    assert torch.equal(agent.target_values(state_ND, None, noise).q_policy_NKG, before)
    assert not before.requires_grad


@every_action_space
def test_critics_absorb_the_scale_and_all_values_stay(action_space: ActionSpace) -> None:
    agent = tiny_agent(with_rescaled_critics(), action_space)
    shake(agent)
    agent.value_code.scale_G.copy_(torch.tensor([40.0, 30.0, 60.0]))
    agent.value_code.shift_G.copy_(torch.tensor([-2.0, 0.5, 1.0]))
    state_ND = torch.randn(5, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = agent.actor.sample_noise(state_ND, torch.Generator().manual_seed(1))

    def values() -> list[torch.Tensor]:
        q_target = agent.target_values(state_ND, None, noise).q_policy_NKG
        q = agent.critic.policy_q(state_ND, agent.actor(state_ND), noise, agent.value_code)
        return [q_target, agent.value_code.denormalize(q).detach()]

    before = values()
    agent.absorb_value_scale()
    for value, old in zip(values(), before, strict=True):
        torch.testing.assert_close(value, old, rtol=1e-12, atol=1e-12)
    if action_space is DISCRETE:
        assert torch.equal(agent.value_code.scale_G, torch.ones(3, dtype=torch.float64))
        assert torch.equal(agent.value_code.shift_G, torch.zeros(3, dtype=torch.float64))
    else:
        assert (agent.value_code.scale_G * 32 == torch.tensor([40, 30, 60])).all(), "one last layer for all discounts"
    weight = agent.critic.layers[-1].weight.clone()
    agent.absorb_value_scale()
    assert torch.equal(agent.critic.layers[-1].weight, weight), "once"


def with_rescaled_critics() -> AgentConfig:
    return replace(TINY_AGENT, critic=replace(TINY_AGENT.critic, value_code=PopArtConfig(rescale_critics=True)))


def test_the_acting_discount_stands_last() -> None:
    assert AgentConfig().all_gammas(DISCRETE) == (*PAPER_DISCRETE, 0.999)
    assert len(PAPER_DISCRETE) == 17
    assert AgentConfig().all_gammas(SEVERAL) == (*PAPER_DISCRETE, 0.999)
    assert AgentConfig(acting_gamma=0.99).all_gammas(CONTINUOUS) == (*PAPER_CONTINUOUS, 0.99)
    assert AgentConfig(gammas=(0.1, 0.2)).all_gammas(DISCRETE) == (0.1, 0.2, 0.999)
    assert AgentConfig(gammas=(0.1, 0.2), multi_gamma=False).all_gammas(DISCRETE) == (0.999,)


@every_action_space
def test_an_actor_for_one_discount_is_the_same_policy(action_space: ActionSpace) -> None:
    agent = tiny_agent(action_space=action_space)
    shake(agent.actor)
    state_ND = torch.randn(5, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    everything = tensors_of(agent.actor(state_ND))
    for discount in range(DISCOUNTS):
        alone = tensors_of(agent.actor.for_gamma(discount)(state_ND))
        assert alone.keys() == everything.keys() and alone
        for name, value in alone.items():
            torch.testing.assert_close(value[:, 0], everything[name][:, discount], rtol=0, atol=1e-12)


def tensors_of(policy: PolicyDistribution) -> dict[str, torch.Tensor]:
    """All that a policy has for every discount."""
    values = vars(policy.categorical if isinstance(policy, FactoredPolicy) else policy)
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor) and "G" in name}


@pytest.mark.parametrize("encoder", [TINY_TRANSFORMER, GRUConfig(d_model=16), FeedForwardConfig(d_model=16)])
def test_the_encoder_is_the_configs(encoder: TransformerConfig | GRUConfig | FeedForwardConfig) -> None:
    agent = tiny_agent(replace(TINY_AGENT, trajectory_encoder=encoder))
    assert type(agent.trajectory_encoder).__name__ == type(encoder).__name__.removesuffix("Config")


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UserError, match="multiple"):
        replace(TINY_TRANSFORMER, num_heads=3)
    with pytest.raises(UserError, match="even"):
        replace(TINY_TRANSFORMER, d_model=15, num_heads=3)
    with pytest.raises(UserError, match="even"):
        replace(TINY_TRANSFORMER, d_model=6, num_heads=2, position_embedding="rotary")
