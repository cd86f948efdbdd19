"""Evaluations of a run: a function of weights and seed alone, whatever happened before."""

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from yamame.environments.config import EnvConfig
from yamame.model.agent import Agent
from yamame.model.policy import Policy
from yamame.rollout.evaluate import EvalResult, evaluate
from yamame.rollout.random_policy import RandomPolicy
from yamame.run.config import RunConfig
from yamame.run.metrics import EVAL, EVAL_TRAIN_TASKS

EVALUATION_SEED = 1_000_000
"""Seed of every evaluation of a run, during training, at its end and by `yamame eval` unless told otherwise.

So environment i of as many always begins with the same task. Its later trials are the same ones too, as far as the
environment draws at random only when it is reset; one that also draws while it is stepped goes on from where it stands.
"""


@dataclass(frozen=True, kw_only=True)
class EvalReport:
    """How good an agent is on what its task says that agents are judged on."""

    test: EvalResult
    """On the test tasks, where the benchmark keeps some apart."""
    train_tasks: EvalResult | None
    """On the tasks that the agent was trained on, where these are others."""

    def to_json(self) -> dict[str, Any]:
        """The keys of `yamame eval --json` that come from acting."""
        return {
            **self.test.to_json(),
            "train_tasks": self.train_tasks.to_json() if self.train_tasks else None,
        }

    def metrics(self) -> dict[str, float]:
        """`eval/...`, and `eval_train_tasks/...` where those are others."""
        metrics = _metrics(EVAL, self.test)
        return metrics | (_metrics(EVAL_TRAIN_TASKS, self.train_tasks) if self.train_tasks else {})


def evaluate_agent(config: RunConfig, agent: Agent, *, trials: int, seed: int = EVALUATION_SEED) -> EvalReport:
    """The agent without exploration noise, on `trials` trials of fresh environments, and as many of training ones."""
    test_tasks = config.env.eval_config()
    evaluation = _evaluate_agent(config, test_tasks, agent, trials=trials, seed=seed)
    differ = test_tasks != config.env
    training_tasks = _evaluate_agent(config, config.env, agent, trials=trials, seed=seed) if differ else None
    return EvalReport(test=evaluation, train_tasks=training_tasks)


def evaluate_random_policy(config: RunConfig, *, trials: int, seed: int = EVALUATION_SEED) -> EvalResult:
    """Uniformly random actions on what agents are judged on."""
    env = config.env.eval_config()
    with closing(env.build(_num_envs(config, env, trials), seed)) as environments:
        policy = RandomPolicy(environments.action_space, np.random.default_rng(seed))
        return evaluate(policy, environments, trials=trials, deterministic=False, faults=config.fault_tolerance)


def _evaluate_agent(config: RunConfig, env: EnvConfig, agent: Agent, *, trials: int, seed: int) -> EvalResult:
    num_envs = _num_envs(config, env, trials)
    with closing(env.build(num_envs, seed)) as environments:
        generator = torch.Generator(agent.gammas_G.device).manual_seed(seed)
        policy = Policy(agent, num_envs=num_envs, generator=generator)
        return evaluate(
            policy, environments, trials=trials, deterministic=config.deterministic_actions, faults=config.fault_tolerance
        )


def _num_envs(config: RunConfig, env: EnvConfig, trials: int) -> int:
    return env.required_num_envs or min(trials, config.eval.num_envs)


def _metrics(group: str, evaluation: EvalResult) -> dict[str, float]:
    low, high = evaluation.return_ci95
    metrics = {
        f"{group}/return_mean": evaluation.return_mean,
        f"{group}/return_ci95_low": low,
        f"{group}/return_ci95_high": high,
    }
    return metrics if evaluation.success_rate is None else metrics | {f"{group}/success_rate": evaluation.success_rate}
