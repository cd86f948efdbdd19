"""Evaluations of a run: a function of weights and seed alone, whatever happened before."""

from contextlib import closing

import numpy as np
import torch

from yamame.model.agent import Agent
from yamame.model.policy import Policy
from yamame.rollout.evaluate import Evaluation, evaluate
from yamame.rollout.random_policy import RandomPolicy
from yamame.run.config import RunConfig

EVALUATION_SEED = 1_000_000
"""Seed of the final evaluation and of `yamame eval` unless told otherwise."""


def evaluate_agent(config: RunConfig, agent: Agent, *, trials: int, seed: int) -> Evaluation:
    """The agent without exploration noise, on `trials` trials of fresh environments."""
    num_envs = _num_envs(config, trials)
    with closing(config.env.build(num_envs, seed)) as environments:
        generator = torch.Generator(agent.discounts_G.device).manual_seed(seed)
        policy = Policy(agent, num_envs=num_envs, generator=generator)
        return evaluate(policy, environments, trials=trials, deterministic=config.deterministic_actions)


def evaluate_random(config: RunConfig, *, trials: int, seed: int) -> Evaluation:
    """Uniformly random actions on the same environments."""
    with closing(config.env.build(_num_envs(config, trials), seed)) as environments:
        policy = RandomPolicy(environments.action_space, np.random.default_rng(seed))
        return evaluate(policy, environments, trials=trials, deterministic=False)


def _num_envs(config: RunConfig, trials: int) -> int:
    return config.env.fixed_num_envs or min(trials, config.evaluation.num_envs)
