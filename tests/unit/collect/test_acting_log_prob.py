"""The recorded probabilities of executed actions are the frequencies with which policy and noise together take them."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from yamame.collect.exploration import EpsilonGreedy, Explorer
from yamame.nets.heads.distributions import CategoricalPolicy, DiscreteComponents, FactoredPolicy

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
