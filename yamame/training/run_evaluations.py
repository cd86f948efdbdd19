"""Evaluations of a run: of random actions at its start, on its schedule, and of the ways to act at its end."""

import math
from dataclasses import replace
from typing import Any

from torch import nn

from yamame.collect.experience import Experience
from yamame.distributed.signals import StopSignal
from yamame.distributed_context import DistributedContext
from yamame.errors import UserError
from yamame.run_config import RunConfig
from yamame.training.evaluate import (
    EVALUATION_SEED,
    SELECTION_SEED,
    EvalReport,
    evaluate_model,
    evaluate_random_policy,
)
from yamame.training.state import TrainState


class RunEvaluations:
    """Evaluates on the main rank and returns the new state on all ranks, which must make the same calls.

    The training environments are closed first if the config says so.

    Args:
        config: Config of the whole run.
        model: The networks that are trained.
        experience: Training environments of this rank.
        distributed: This process among the learners.
    """

    def __init__(
        self, config: RunConfig, model: nn.Module, experience: Experience, distributed: DistributedContext
    ) -> None:
        self.config, self.model, self.distributed = config, model, distributed
        self._experience = experience

    def evaluate(
        self, state: TrainState, stop: StopSignal, *, trials: int, seed: int = EVALUATION_SEED
    ) -> EvalReport | None:
        """Evaluate on the tasks of a seed; return None if a signal arrives, and on all but the main rank."""
        report: EvalReport | None = None
        self._close_training_envs()
        if self.distributed.is_main:
            with stop.interruptible():
                report = evaluate_model(
                    state.trained_config(self.config), self.model, trials=trials, seed=seed, beside_training=True
                )
        return report

    def random_policy(self, state: TrainState, stop: StopSignal) -> TrainState:
        """Evaluate uniformly random actions, once per run."""
        if state.random_baseline is not None:
            return state
        self._close_training_envs()
        if self.distributed.is_main:
            with stop.interruptible():
                baseline = evaluate_random_policy(self.config, trials=self.config.eval.final_trials)
                state = replace(state, random_baseline=baseline.to_json())
        return self.distributed.broadcast_object(state)

    def choose_policy(self, state: TrainState, stop: StopSignal) -> TrainState:
        """Choose at the end of a run how the trained policy acts, by returns on the training tasks."""
        config = self.config
        if not config.eval.choose_policy:
            return state
        changes: list[dict[str, Any]] = [{}]
        changes += [{"policy_index": i} for i in range(config.algorithm.num_policies(self.model) - 1)]
        changes += [] if config.deterministic_actions else [{"mode_is_better": True}]
        best, best_return = state, -math.inf
        for change in changes:
            candidate = replace(best, **change)
            report = self.evaluate(candidate, stop, trials=config.eval.trials, seed=SELECTION_SEED)
            if report is None:
                best = candidate.acting_as_in_training()
                break
            if report.selection_return > best_return:
                best, best_return = candidate, report.selection_return
        return self.distributed.broadcast_object(best)

    def _close_training_envs(self) -> None:
        if self.config.closes_training_envs:
            self._experience.pause()


def check_evaluation_interval(config: RunConfig) -> None:
    """Raise `UserError` if evaluations that close several training environments would end most of their trials."""
    interval, trials = config.eval.interval_env_steps, config.num_envs * config.env.max_trial_steps
    if config.closes_training_envs and config.num_envs > 1 and 0 < interval < 2 * trials:
        raise UserError(
            f"eval.interval_env_steps is {interval}, but with eval.close_training_envs each evaluation ends the trials "
            f"of all {config.num_envs} environments: pass at least {2 * trials}, or 0 to evaluate after training only"
        )
