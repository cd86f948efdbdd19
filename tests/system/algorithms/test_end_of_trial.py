"""Values at the end of a trial: the objective is the return within the horizon, so nothing is bootstrapped there."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from yamame.algorithms.amago.agent import Agent, AgentConfig
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.data.batch import Batch, Window, pack
from yamame.data.trajectory import Trajectory
from yamame.nets.heads.actor import ActorConfig
from yamame.nets.heads.critic import CriticConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig

HORIZON, TRIALS = 10, 8
GAMMAS = (0.5, 0.9, 0.95, 0.99, 0.999)
TRUTH = np.array([(1 - gamma**HORIZON) / (1 - gamma) for gamma in GAMMAS])
"""Return of reward 1 per step from the first step to the horizon."""


def random_trials(rng: np.random.Generator) -> Batch:
    is_last = np.arange(HORIZON) == HORIZON - 1
    trials = [
        Trajectory(
            reward=np.ones(HORIZON, np.float32),
            action=rng.integers(0, 2, HORIZON),
            terminated=np.zeros(HORIZON, np.bool_),
            truncated=is_last,
            episode_start=np.arange(HORIZON + 1) == 0,
            observation={"observation": np.zeros(HORIZON + 1, np.int64)},
            horizon=HORIZON,
        )
        for _ in range(TRIALS)
    ]
    return pack([Window(trajectory=trial, start=0, length=HORIZON) for trial in trials])


@torch.no_grad()
def first_values(agent: Agent, batch: Batch, reward_scale: float) -> np.ndarray:
    """Q of the first action by gamma, mean over trials and critics, in units of reward."""
    raw_NKGA = agent.critic(agent.encode(agent.features(batch), batch))[batch.loss_mask].squeeze(-1)
    action = batch.action[batch.loss_mask][:, None, None, None].expand(-1, *raw_NKGA.shape[1:3], 1)
    q_NKG = agent.value_code.denormalize(raw_NKGA.gather(3, action).squeeze(3))
    return q_NKG.mean(1).view(TRIALS, HORIZON, -1)[:, 0].mean(0).numpy() / reward_scale


@pytest.mark.slow
def test_values_are_the_return_within_the_horizon() -> None:
    """Q of the first step is within 10 % of the truth for every gamma. Bootstrapped there, it was 3 times as much."""
    torch.manual_seed(0)
    agent = Agent(
        AgentConfig(
            timestep_encoder=TimestepEncoderConfig(hidden_sizes=(32,), output_size=16),
            trajectory_encoder=TransformerConfig(d_model=16, num_layers=1, num_heads=2, d_ff=32),
            actor=ActorConfig(hidden_sizes=(32,)),
            critic=CriticConfig(hidden_sizes=(32, 32)),
            gammas=GAMMAS[:-1],
            acting_gamma=GAMMAS[-1],
        ),
        observation_space=spaces.Discrete(2),
        action_space=spaces.Discrete(2),
        context_length=HORIZON,
        horizon=HORIZON,
    )
    config = LearnerConfig(learning_rate=3e-3, lr_warmup_updates=50, tau=0.05)
    learner, rng = Learner(agent, config, generator=torch.Generator().manual_seed(0)), np.random.default_rng(0)
    for _ in range(700):
        learner.update(random_trials(rng))
    values = first_values(agent, random_trials(rng), config.td.reward_scale)
    np.testing.assert_allclose(values, TRUTH, rtol=0.1)
