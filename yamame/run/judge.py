"""Evaluations of a run: a function of weights and seed alone, whatever happened before."""

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from yamame.environments.config import EnvironmentConfig
from yamame.model.agent import Agent
from yamame.model.policy import Policy
from yamame.rollout.evaluate import Evaluation, evaluate
from yamame.rollout.random_policy import RandomPolicy
from yamame.run.config import RunConfig
from yamame.run.metrics import EVALUATION, EVALUATION_TRAINING_TASKS

EVALUATION_SEED = 1_000_000
"""Seed of every evaluation of a run, during training, at its end and by `yamame eval` unless told otherwise.

So environment i of as many always begins with the same task. Its later trials are the same ones too, as far as the
environment draws at random only when it is reset; one that also draws while it is stepped goes on from where it stands.
"""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """How good an agent is on what its task says that agents are judged on."""

    evaluation: Evaluation
    """On the test tasks, where the benchmark keeps some apart."""
    training_tasks: Evaluation | None
    """On the tasks that the agent was trained on, where these are others."""

    def to_json(self) -> dict[str, Any]:
        """The keys of `yamame eval --json` that come from acting."""
        return {
            **self.evaluation.to_json(),
            "training_tasks": self.training_tasks.to_json() if self.training_tasks else None,
        }

    def metrics(self) -> dict[str, float]:
        """`evaluate/...`, and `evaluate_training_tasks/...` where those are others."""
        metrics = _metrics(EVALUATION, self.evaluation)
        return metrics | (_metrics(EVALUATION_TRAINING_TASKS, self.training_tasks) if self.training_tasks else {})


def judge_agent(config: RunConfig, agent: Agent, *, trials: int, seed: int = EVALUATION_SEED) -> Judgement:
    """The agent without exploration noise, on `trials` trials of fresh environments, and as many of training ones."""
    test_tasks = config.env.for_evaluation()
    evaluation = _evaluate_agent(config, test_tasks, agent, trials=trials, seed=seed)
    differ = test_tasks != config.env
    training_tasks = _evaluate_agent(config, config.env, agent, trials=trials, seed=seed) if differ else None
    return Judgement(evaluation=evaluation, training_tasks=training_tasks)


def judge_random(config: RunConfig, *, trials: int, seed: int = EVALUATION_SEED) -> Evaluation:
    """Uniformly random actions on what agents are judged on."""
    env = config.env.for_evaluation()
    with closing(env.build(_num_envs(config, env, trials), seed)) as environments:
        policy = RandomPolicy(environments.action_space, np.random.default_rng(seed))
        return evaluate(policy, environments, trials=trials, deterministic=False, faults=config.faults)


def _evaluate_agent(config: RunConfig, env: EnvironmentConfig, agent: Agent, *, trials: int, seed: int) -> Evaluation:
    num_envs = _num_envs(config, env, trials)
    with closing(env.build(num_envs, seed)) as environments:
        generator = torch.Generator(agent.discounts_G.device).manual_seed(seed)
        policy = Policy(agent, num_envs=num_envs, generator=generator)
        return evaluate(
            policy, environments, trials=trials, deterministic=config.deterministic_actions, faults=config.faults
        )


def _num_envs(config: RunConfig, env: EnvironmentConfig, trials: int) -> int:
    return env.fixed_num_envs or min(trials, config.evaluation.num_envs)


def _metrics(group: str, evaluation: Evaluation) -> dict[str, float]:
    low, high = evaluation.return_ci95
    metrics = {
        f"{group}/return_mean": evaluation.return_mean,
        f"{group}/return_ci95_low": low,
        f"{group}/return_ci95_high": high,
    }
    return metrics if evaluation.success_rate is None else metrics | {f"{group}/success_rate": evaluation.success_rate}
