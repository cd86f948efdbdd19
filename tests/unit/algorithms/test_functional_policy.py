"""A step as a function of tensors is the step of the policy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_agents import TINY_AGENT, ActionSpace, every_action_space, random_actions, shake, tiny_agent
from torch import nn

from yamame.algorithms.functional_network_policy import FunctionalNetworkPolicy
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.data.step import PolicyInput
from yamame.errors import UserError
from yamame.nets.heads.tanh_gaussian import TanhGaussianPolicy
from yamame.nets.sequence.base import RecurrentEncoder

ENVS, STEPS = 3, 12


@every_action_space
@pytest.mark.parametrize("recurrent", [False, True], ids=["transformer", "lstm"])
@torch.no_grad()
def test_it_is_the_step_of_the_policy(action_space: ActionSpace, recurrent: bool) -> None:
    """Through the weights as PyTorch's own layers have them; `LSTM` has a tuple of hidden states."""
    config = replace(TINY_AGENT, timestep_encoder=replace(TINY_AGENT.timestep_encoder, output_size=16))
    agent = tiny_agent(config, action_space, context_length=5)
    if recurrent:
        agent.trajectory_encoder = RecurrentEncoder(nn.LSTM(16, 16, batch_first=True).double())
    shake(agent)
    policy = NetworkPolicy(agent, num_envs=ENVS, generator=torch.Generator(), clips=False)
    functional, rng = FunctionalNetworkPolicy(agent, clips=False), np.random.default_rng(0)
    memory = {f"memory/{name}": tensor for name, tensor in functional.empty_memory(ENVS).items()}
    for number in range(STEPS):
        step = PolicyInput(
            time=np.array([number, number % 4, max(0, number - 7)]),
            observation={"vector": rng.normal(size=(ENVS, 3)), "cell": rng.integers(0, 4, ENVS)},
            previous_action=random_actions(rng, ENVS, action_space),
            previous_reward=rng.normal(size=ENVS).astype(np.float32),
            episode_start=rng.random(ENVS) < 0.5,
        )
        given = {name: getattr(step, name) for name in ("time", "previous_action", "previous_reward", "episode_start")}
        started = replace(step, episode_start=step.episode_start | (step.time == 0))
        results = functional(
            {
                **{name: torch.from_numpy(array) for name, array in given.items()},
                **{f"observation/{name}": torch.from_numpy(leaf) for name, leaf in step.observation.items()},
                "deterministic": torch.ones(ENVS, dtype=torch.bool),
                "seed": torch.zeros(ENVS, dtype=torch.int64),
                **memory,
            }
        )
        expected = policy.distribution(started)
        if isinstance(expected, TanhGaussianPolicy):
            found = {"mean": expected.mean_NGA, "std": expected.log_std_NGA.exp()}
        else:
            found = {"probability": expected.probability_NGA}
        for name, tensor in found.items():
            torch.testing.assert_close(results[name], tensor[:, 0], rtol=0, atol=1e-9)
        torch.testing.assert_close(results["policy_action"], expected.mode()[:, 0], rtol=0, atol=1e-9)
        memory = {name: tensor for name, tensor in results.items() if name.startswith("memory/")}


def test_a_trajectory_encoder_without_a_functional_step_is_refused() -> None:
    agent = tiny_agent()
    agent.trajectory_encoder = nn.Identity()
    with pytest.raises(UserError, match="the trajectory encoder Identity cannot be exported: it lacks") as caught:
        FunctionalNetworkPolicy(agent, clips=True)
    assert "\n" not in str(caught.value)
