import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from yamame.data.actions import PolicyActionSpace
from yamame.nets.blocks import EnsembleLinear
from yamame.nets.heads.actor import Actor, ActorConfig
from yamame.nets.heads.critic import ActionInputCritic, CriticConfig, DiscreteCritic
from yamame.nets.heads.distributions import CategoricalPolicy, DiscreteComponents, FactoredPolicy
from yamame.nets.heads.tanh_gaussian import TanhGaussianPolicy

STATE, ACTIONS, MEMBERS = 5, 2, 3
DISCOUNTS = torch.tensor([0.1, 0.9, 0.99], dtype=torch.float64)
CONFIG = CriticConfig(num_critics=MEMBERS, hidden_sizes=(8, 6))
CODE = CONFIG.value_code.build(3, normalize=True).double()


def continuous() -> ActionInputCritic:
    torch.manual_seed(0)
    space = spaces.Box(-1.0, 1.0, (ACTIONS,))
    critic = CONFIG.build(input_size=STATE, action_space=space, gammas_G=DISCOUNTS)
    assert isinstance(critic, ActionInputCritic)
    return critic.double()


def discrete() -> DiscreteCritic:
    torch.manual_seed(0)
    critic = CONFIG.build(input_size=STATE, action_space=spaces.Discrete(4), gammas_G=DISCOUNTS)
    assert isinstance(critic, DiscreteCritic)
    return critic.double()


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_concatenation(critic: ActionInputCritic, state_ND: Tensor, action_NGA: Tensor) -> Tensor:
    """One ordinary network a critic, on [state, clamped action, log(1 + 1 / (1 - gamma))]."""
    return unclamped(critic, state_ND, action_NGA.clamp(-0.999, 0.999))


def unclamped(critic: ActionInputCritic, state_ND: Tensor, action_NGA: Tensor) -> Tensor:
    result = torch.empty(len(state_ND), MEMBERS, len(DISCOUNTS), dtype=torch.float64)
    for g, discount in enumerate(DISCOUNTS):
        feature = torch.log(1 + 1 / (1 - discount)).expand(len(state_ND), 1)
        x = torch.cat([state_ND, action_NGA[:, g], feature], dim=1)
        for k in range(MEMBERS):
            h = x
            for index, layer in enumerate(critic.layers):
                h = h @ layer.weight[k] + layer.bias[k]
                if index < len(critic.layers) - 1:
                    h = torch.nn.functional.leaky_relu(h, 0.01)
            result[:, k, g] = h[:, 0]
    return result


def test_the_factorised_first_layer_is_a_linear_layer_on_the_concatenation() -> None:
    critic, state_ND, action_NGA = continuous(), random(7, STATE), random(7, 3, ACTIONS, seed=1).tanh()
    action_NGA[0] = 1.0
    expected = by_concatenation(critic, state_ND, action_NGA)
    torch.testing.assert_close(critic(state_ND, action_NGA).squeeze(-1), expected, rtol=0, atol=1e-12)
    shared = action_NGA[:, :1]
    expected = by_concatenation(critic, state_ND, shared.expand(-1, 3, -1))
    torch.testing.assert_close(critic(state_ND, shared).squeeze(-1), expected, rtol=0, atol=1e-12)


def test_frozen_critics_pass_gradients_to_actions_only() -> None:
    critic, action_NGA = continuous(), random(7, 3, ACTIONS).tanh().requires_grad_()
    frozen = critic(random(7, STATE), action_NGA, detach_weights=True)
    torch.testing.assert_close(frozen, critic(random(7, STATE), action_NGA))
    (gradient,) = torch.autograd.grad(frozen.sum(), action_NGA, retain_graph=True)
    frozen.sum().backward()
    assert (gradient != 0).any(dim=2).all()
    assert all(parameter.grad is None for parameter in critic.parameters())


def test_continuous_values_are_of_the_data_and_of_one_sample() -> None:
    critic, raw = continuous(), random(7, 3, 2 * ACTIONS, seed=2).requires_grad_()
    state_ND, action_NA = random(7, STATE).requires_grad_(), random(7, ACTIONS, seed=3).tanh()
    policy = TanhGaussianPolicy.from_outputs(raw)
    noise = random(7, 3, ACTIONS, seed=5)
    q_data, q_policy = critic.q_values(state_ND, action_NA, policy, noise, CODE)
    q_data = CODE.decode(q_data)
    sample = policy.action_vector(noise)
    torch.testing.assert_close(q_data, by_concatenation(critic, state_ND, action_NA[:, None].expand(-1, 3, -1)))
    torch.testing.assert_close(q_policy, by_concatenation(critic, state_ND, sample))
    q_policy.sum().backward(retain_graph=True)
    assert state_ND.grad is None and all(parameter.grad is None for parameter in critic.parameters())
    assert raw.grad is not None and raw.grad.any()
    q_data.sum().backward()
    assert state_ND.grad is not None and state_ND.grad.any()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in critic.parameters())
    value = critic.policy_q(state_ND, policy, noise, CODE)
    torch.testing.assert_close(value, q_policy)


def test_values_of_several_choices_are_of_one_hots_side_by_side() -> None:
    torch.manual_seed(0)
    critic = CONFIG.build(input_size=STATE, action_space=spaces.MultiDiscrete([3, 2]), gammas_G=DISCOUNTS).double()
    assert isinstance(critic, ActionInputCritic)
    logits, mask = random(7, 3, 5, seed=2).requires_grad_(), torch.tensor([[1, 0, 1, 1, 1]] * 7).bool()
    policy = FactoredPolicy.from_logits(logits, DiscreteComponents((3, 2)), (0.001, 0.99), mask)
    state_ND, action_NC = random(7, STATE).requires_grad_(), torch.tensor([[0, 1], [2, 0], [1, 1]] * 2 + [[2, 1]])
    noise = 5.0 * random(7, 3, 5, seed=3)
    q_data, q_policy = critic.q_values(state_ND, action_NC, policy, noise, CODE)
    q_data = CODE.decode(q_data)
    assert q_data.shape == q_policy.shape == (7, MEMBERS, 3)
    one_hots = torch.zeros(7, 5, dtype=torch.float64)
    for n, (first, second) in enumerate(action_NC.tolist()):
        one_hots[n, [first, 3 + second]] = 1.0
    torch.testing.assert_close(q_data, unclamped(critic, state_ND, one_hots[:, None].expand(-1, 3, -1)))
    torch.testing.assert_close(q_policy, unclamped(critic, state_ND, policy.action_vector(noise)))
    torch.testing.assert_close(critic.policy_q(state_ND, policy, noise, CODE), q_policy)
    q_policy.sum().backward(retain_graph=True)
    assert state_ND.grad is None and all(parameter.grad is None for parameter in critic.parameters())
    assert logits.grad is not None and logits.grad[..., [0, 2, 3, 4]].any() and not logits.grad[..., 1].any()
    q_data.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in critic.parameters())


def test_discrete_values_are_the_datas_action_and_the_exact_expectation() -> None:
    critic, logits = discrete(), random(6, 3, 4, seed=2).requires_grad_()
    state_ND, action_N = random(6, STATE).requires_grad_(), torch.tensor([0, 1, 2, 3, 0, 1])
    policy = CategoricalPolicy.from_logits(logits, (0.001, 0.99))
    q_NKGA = critic(state_ND).squeeze(-1)
    assert q_NKGA.shape == (6, MEMBERS, 3, 4)
    q_data, q_policy = critic.q_values(state_ND, action_N, policy, None, CODE)
    q_data = CODE.decode(q_data)
    for n in range(6):
        torch.testing.assert_close(q_data[n], q_NKGA[n, :, :, action_N[n]])
    expected = torch.einsum("nkga,nga->nkg", q_NKGA, policy.probability_NGA)
    torch.testing.assert_close(q_policy, expected)
    torch.testing.assert_close(critic.policy_q(state_ND, policy, None, CODE), expected)
    q_policy.sum().backward(retain_graph=True)
    assert state_ND.grad is None and all(parameter.grad is None for parameter in critic.parameters())
    assert logits.grad is not None and logits.grad.any()
    q_data.sum().backward()
    assert state_ND.grad is not None and state_ND.grad.any()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in critic.parameters())


def test_discrete_members_are_ordinary_networks() -> None:
    critic, state_ND = discrete(), random(6, STATE)
    for k in range(MEMBERS):
        h = state_ND
        for index, layer in enumerate(critic.layers):
            h = h @ layer.weight[k] + layer.bias[k]
            h = torch.nn.functional.leaky_relu(h) if index < len(critic.layers) - 1 else h
        torch.testing.assert_close(critic(state_ND)[:, k, ..., 0], h.view(6, 3, 4), rtol=0, atol=1e-12)


def test_ensemble_layers_start_as_wide_as_promised() -> None:
    layer = EnsembleLinear(4, 100, 50)
    assert layer.weight.abs().max().item() == pytest.approx((3 / 100) ** 0.5, rel=0.01)
    assert layer.bias.abs().max().item() == pytest.approx((1 / 100) ** 0.5, rel=0.05)
    assert not torch.equal(layer.weight[0], layer.weight[1])


@pytest.mark.parametrize("action_space", [spaces.Discrete(2), spaces.Box(-1, 1, (2,))], ids=["discrete", "continuous"])
def test_values_and_policies_of_half_precision_are_not_rounded_to_it(action_space: PolicyActionSpace) -> None:
    """One step of delay at gamma 0.999 is 0.1 % of a value; neighboring bfloat16 numbers differ by 0.4 to 0.8 %."""
    gammas_G = torch.tensor([0.999])
    critic = CriticConfig(hidden_sizes=(8,)).build(input_size=3, action_space=action_space, gammas_G=gammas_G)
    actor = Actor(ActorConfig(hidden_sizes=(8,)), input_size=3, action_space=action_space, num_gammas=1)
    state_ND = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        raw = actor.mlp(state_ND)
        if isinstance(critic, DiscreteCritic):
            critic.layers[-1].weight[..., 1] = critic.layers[-1].weight[..., 0]
            critic.layers[-1].bias[..., 0], critic.layers[-1].bias[..., 1] = 1.5, 1.4985
            gap_NK = critic(state_ND)[:, :, 0, 0, 0] - critic(state_ND)[:, :, 0, 1, 0]
            torch.testing.assert_close(gap_NK, torch.full_like(gap_NK, 0.0015), rtol=0.01, atol=0)
            outputs = critic(state_ND)
        else:
            outputs = critic(state_ND, torch.zeros(200, 1, 2))
    for values in (outputs, raw):
        assert values.dtype == torch.float32 and (values != values.bfloat16()).float().mean() > 0.9
