"""The recorded probabilities of executed actions are the frequencies with which policy and noise together take them."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from yamame.collect.exploration import EpsilonGreedy, Explorer
from yamame.nets.heads.distributions import CategoricalPolicy, DiscreteComponents, FactoredPolicy
from yamame.nets.heads.tanh_gaussian import BOUND, TanhGaussianPolicy

COUNT, EPSILON = 40_000, 0.4


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("mask", [None, [True, False, True]])
def test_frequencies_of_discrete_actions(mask: list[bool] | None, deterministic: bool) -> None:
    allowed = None if mask is None else torch.tensor(mask).expand(COUNT, 1, -1)
    policy = CategoricalPolicy.from_logits(torch.tensor([0.3, 0.0, 1.0]).expand(COUNT, 1, -1), (0.01, 0.99), allowed)
    executed_N = execute(policy, spaces.Discrete(3), mask, deterministic=deterministic)
    frequency = torch.bincount(executed_N, minlength=3) / COUNT
    for action in range(3):
        log_prob = policy.acting_log_prob(
            torch.full((COUNT,), action), torch.full((COUNT,), EPSILON), deterministic=deterministic
        )
        if mask is None or mask[action]:
            assert log_prob.exp()[0, 0].item() == pytest.approx(frequency[action].item(), abs=0.01)
        else:
            assert frequency[action] == 0


def test_frequencies_of_several_choices() -> None:
    components = DiscreteComponents((2, 3))
    policy = FactoredPolicy.from_logits(
        torch.tensor([0.5, 0.0, 1.0, 0.0, -1.0]).expand(COUNT, 1, -1), components, (0.01, 0.99)
    )
    executed_NC = execute(policy, spaces.MultiDiscrete([2, 3]), None, deterministic=False)
    for first in range(2):
        for second in range(3):
            action = torch.tensor([first, second])
            frequency = (executed_NC == action).all(1).float().mean().item()
            log_prob = policy.acting_log_prob(
                action.expand(COUNT, -1), torch.full((COUNT,), EPSILON), deterministic=False
            )
            assert log_prob.exp()[0, 0].item() == pytest.approx(frequency, abs=0.01)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.1, 0.3, 1.0])
@pytest.mark.parametrize(
    ("mean", "std"),
    [(0.0, 0.5), (1.0, 0.14), (3.0, 1.0), (0.0, 2.7), (5.0, 0.14), (-5.0, 0.14), (0.0, 0.02), (0.0, 7.4)],
)
def test_frequencies_of_actions_in_a_box(mean: float, std: float, epsilon: float) -> None:
    """In 99 bins within the bound, and beyond it on either side."""
    count = 200_000
    policy = gaussian(mean, std, count)
    executed_N = execute_in_box(policy, epsilon)
    frequency = torch.histogram(executed_N, torch.linspace(-BOUND, BOUND, 100)).hist / count
    action_BK = torch.linspace(-BOUND, BOUND, 100)[:-1, None] + torch.linspace(0.0, 2 * BOUND / 99, 21)
    density_BK = probability(mean, std, action_BK.flatten().clamp(-BOUND + 1e-6, BOUND - 1e-6), epsilon)
    probability_B = torch.trapezoid(density_BK.view_as(action_BK), action_BK)
    assert (probability_B - frequency).abs().sum().item() / 2 < 0.02
    upper, lower = probability(mean, std, torch.tensor([1.0, -1.0]), epsilon).tolist()
    assert upper == pytest.approx((executed_N >= BOUND).float().mean().item(), abs=0.008)
    assert lower == pytest.approx((executed_N <= -BOUND).float().mean().item(), abs=0.008)


def test_traces_fall_with_the_noise() -> None:
    """The mean trace is the probability that policy and noisy policy share."""
    traces = []
    for epsilon in (0.0, 0.1, 0.3, 1.0):
        policy = gaussian(1.0, 0.14, 20_000)
        executed_N = execute_in_box(policy, epsilon)
        ratio = probability(1.0, 0.14, executed_N, 0.0) / probability(1.0, 0.14, executed_N, epsilon)
        traces.append(ratio.clamp(max=1.0).mean().item())
    np.testing.assert_allclose(traces, [1.0, 0.665, 0.333, 0.125], atol=0.01)


def gaussian(mean: float, std: float, count: int) -> TanhGaussianPolicy:
    return TanhGaussianPolicy(
        mean_NGA=torch.full((count, 1, 1), mean), log_std_NGA=torch.full((count, 1, 1), std).log()
    )


def probability(mean: float, std: float, action_N: Tensor, epsilon: float) -> Tensor:
    policy, epsilon_N = gaussian(mean, std, len(action_N)), torch.full((len(action_N),), epsilon)
    return policy.acting_log_prob(action_N[:, None], epsilon_N, deterministic=False)[:, 0].exp()


def execute_in_box(policy: TanhGaussianPolicy, epsilon: float) -> Tensor:
    action_NA = policy.sample(torch.Generator().manual_seed(0))[:, 0]
    config = EpsilonGreedy(anneal_env_steps=1, initial_eps=epsilon, final_eps=epsilon)
    explorer = Explorer(config, spaces.Box(-1, 1, (1,)), len(action_NA), np.random.default_rng(0))
    return torch.from_numpy(explorer.add_noise(action_NA.numpy(), np.zeros(len(action_NA), np.int64), 10, 0))[:, 0]


def execute(
    policy: CategoricalPolicy | FactoredPolicy,
    space: spaces.Discrete | spaces.MultiDiscrete,
    mask: list[bool] | None,
    *,
    deterministic: bool,
) -> Tensor:
    action = policy.mode() if deterministic else policy.sample(torch.Generator().manual_seed(0))
    explorer = Explorer(
        EpsilonGreedy(anneal_env_steps=1, initial_eps=EPSILON, final_eps=EPSILON),
        space,
        COUNT,
        np.random.default_rng(0),
    )
    mask_EA = None if mask is None else np.tile(mask, (COUNT, 1))
    noisy = explorer.add_noise(action[:, 0].numpy(), np.zeros(COUNT, np.int64), 10, 0, mask_EA)
    assert np.allclose(explorer.epsilon_E, EPSILON)
    return torch.from_numpy(noisy)
