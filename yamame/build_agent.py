"""From a config and the spaces of a task to an agent that has learned nothing yet."""

import torch
from gymnasium import spaces

from yamame.algorithms.amago.agent import Agent
from yamame.config import RunConfig
from yamame.data.actions import PolicyActionSpace
from yamame.envs.vector.action_masks import strip_action_mask


def build_agent(
    config: RunConfig,
    observation_space: spaces.Space,
    action_space: PolicyActionSpace,
    horizon: int,
    *,
    seed: int,
) -> Agent:
    """The agent that a config and a task's spaces ask for, its weights drawn from `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Agent(
            config.agent,
            observation_space=strip_action_mask(observation_space, config.env.action_mask_key),
            action_space=action_space,
            context_length=config.resolved_context_length,
            horizon=horizon,
            world_model=config.learner.world_model.weight > 0,
        )
