"""The actor of TD3 at the bounds of the actions."""

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from yamame.algorithms.recurrent_sac.deterministic_actor import MAX_MEAN, DeterministicActor
from yamame.nets.heads.actor import ActorConfig


def saturated_actor(bias: float) -> DeterministicActor:
    """Return an actor whose outputs are near a bias, for any state."""
    torch.manual_seed(0)
    actor = DeterministicActor(ActorConfig(hidden_sizes=(8,)), input_size=4, action_space=spaces.Box(-1.0, 1.0, (2,)))
    *_, last = (layer for layer in actor.modules() if isinstance(layer, torch.nn.Linear))
    with torch.no_grad():
        last.bias.fill_(bias)
    return actor


def action_of(actor: DeterministicActor) -> Tensor:
    return actor(torch.ones(3, 4)).mode()


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_actions_of_a_saturated_actor_are_limited(side: float) -> None:
    action = action_of(saturated_actor(50.0 * side))

    torch.testing.assert_close(action, torch.full_like(action, side * torch.tensor(MAX_MEAN).tanh().item()))


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_gradients_beyond_the_limit_only_lead_back(side: float) -> None:
    actor = saturated_actor(50.0 * side)

    (-side * action_of(actor)).sum().backward()
    assert all(not parameter.grad.any() for parameter in actor.parameters() if parameter.grad is not None)

    (side * action_of(actor)).sum().backward()
    assert any(parameter.grad.any() for parameter in actor.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_a_saturated_actor_finds_an_action_within_the_bounds(side: float) -> None:
    actor = saturated_actor(20.0 * side)
    optimizer = torch.optim.Adam(actor.parameters(), lr=0.01)

    for _ in range(1_000):
        optimizer.zero_grad()
        (action_of(actor) - 0.25).square().sum().backward()
        optimizer.step()

    torch.testing.assert_close(action_of(actor), torch.full((3, 1, 2), 0.25), atol=0.02, rtol=0.0)
