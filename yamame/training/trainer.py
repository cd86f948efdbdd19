"""`Trainer`: the training loop. Build, then collect, store, sample, update, evaluate, save a checkpoint.

    environments ── collect ──> trajectories ── store ──> replay ── sample ──> batches ── update ──> weights
         ^                                                                                              │
         └────────────────────────────────── load weights into the policy ──────────────────────────────┘

One iteration collects one trial per environment (or `env_steps_per_iteration`), then makes the updates that
`updates_per_env_step` allows. It can be interrupted after any vector step or update, and resumed.
"""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from yamame.collect.background import BackgroundThread, ShouldStop
from yamame.collect.statistics import summarize_trial
from yamame.config.serialization import flatten_config
from yamame.data.trajectory import Trajectory
from yamame.distributed.ray.connection import connect_ranks
from yamame.distributed.sharding import shard_config
from yamame.distributed.signals import StopSignal
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import UserError
from yamame.metrics.logger import MetricLogger
from yamame.metrics.progress import ProgressBar
from yamame.metrics.registry import ENV_STEPS_PER_SECOND, UPDATES_PER_SECOND
from yamame.run_config import RunConfig
from yamame.runs.checkpoint import Checkpoint, copy_checkpoint, load_latest_checkpoint, save_checkpoint
from yamame.runs.directory import BEST, CHECKPOINTS, MILESTONES, replay_dir
from yamame.training.callbacks import Callback, RunProgress
from yamame.training.components import build_components
from yamame.training.evaluate import EVALUATION_SEED, SELECTION_SEED, EvalReport, evaluate_model, evaluate_random_policy
from yamame.training.state import (
    IterationState,
    TrainState,
    changed_fields,
    checkpoint_mismatch_error,
    collect_state,
    load_initial_weights,
    restore_state,
    restore_train_state,
)


class Trainer:
    """Trains until `env_steps` are made, the task is solved or a signal arrives.

    Resume is exact: after a kill, a run has bitwise the same result as without it, on a CPU with the same number of
    threads and if its environments can be restored (else there are `resume_warnings`). With `async_collection`, an
    interrupted iteration ends at the interruption.

    Each of several ranks has a shard of the environments, the replay and the batches, and all make the same calls in
    the same order. The main rank alone writes the run's files (except the replay of each rank), evaluates and logs.

    Args:
        config: Config of the whole run.
        directory: Run directory.
        resume: Continue from the latest intact checkpoint.
        distributed: This process among the learners.
        callbacks: Called at the start, after iterations and evaluations, and at the end.

    Raises:
        UserError: If the run cannot be built or the checkpoint does not match the config.
    """

    def __init__(
        self,
        config: RunConfig,
        directory: Path,
        *,
        resume: bool = False,
        distributed: DistributedContext = SINGLE_PROCESS,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.config, self.directory, self.distributed = config, directory, distributed
        self.callbacks = tuple(callbacks)
        self.run_progress = RunProgress(directory=directory, config=config)
        checkpoint = self._load_checkpoint() if resume else None
        self.state = restore_train_state(checkpoint, directory) if checkpoint else TrainState()
        self.state.restarts += bool(checkpoint)
        self.skipped_corrupted = checkpoint.skipped_corrupted if checkpoint else ()
        """Newer checkpoints that are corrupted."""
        with distributed.propagate_failure():
            connection = connect_ranks(config, distributed) if config.ray.address else None
            self.components = build_components(
                shard_config(config),
                directory / replay_dir(distributed.rank),
                restarts=self.state.restarts,
                distributed=distributed,
                connection=connection,
            )
        self.algorithm = self.components.algorithm
        if config.init_from and not checkpoint:
            load_initial_weights(self.algorithm.model, config.init_from)
        self.algorithm.broadcast_parameters()
        self.iteration = IterationState()
        self.env_steps = 0
        """Environment steps of all ranks whose trajectories are stored."""
        self._count_env_steps()
        self._background = BackgroundThread(computes=not config.ray.address, device=self.algorithm.compute.device)
        self._stopping = False
        self.logger = MetricLogger(directory) if distributed.is_main else None
        self.resume_warnings: list[str] = []
        """What could not be restored, one sentence each."""
        if checkpoint:
            try:
                self._restore(checkpoint)
            except (RuntimeError, KeyError, TypeError, ValueError) as error:
                self.close()
                raise checkpoint_mismatch_error(directory) from error
            except UserError:
                self.close()
                raise

    def train(self, progress: ProgressBar) -> str:
        """Train; return the name of the signal that stopped the run, or "". A checkpoint is saved in either case."""
        start = last_save = time.monotonic()
        seconds_before = self.state.wall_seconds
        self.state = self.state.of_training()
        with StopSignal() as stop, ExitStack() as at_end:
            self._evaluate_random_policy(stop)
            self._call_back("on_start")
            at_end.callback(self._call_back, "on_end")
            while not self.is_finished() and not stop.sync(self.distributed):
                if self.iteration.phase != "done":
                    self._run_iteration(progress, stop)
                improved = self.iteration.phase == "done" and self._evaluate_if_due(stop)
                self.state.wall_seconds = seconds_before + time.monotonic() - start
                if not stop.sync(self.distributed):
                    self._call_back("on_iteration")
                    self._log(progress)
                    self.iteration = IterationState()
                if self._save_best_or_milestone(best=improved) or self._save_if_due(time.monotonic() - last_save):
                    last_save = time.monotonic()
            self._choose_policy(stop)
            self.state.wall_seconds = seconds_before + time.monotonic() - start
            self.save_checkpoint()
        return stop.requested

    def is_finished(self) -> bool:
        """Return whether the run has made all its steps, solved its task or was ended by a callback.

        All ranks must call this together.
        """
        if self.iteration.phase != "start":
            return False
        if self.state.end_reason:
            return True
        return not self._num_vector_steps() and not self._num_updates_due()

    def train_past_end(self) -> None:
        """Continue a run that has ended early: if it had solved its task, `eval.stop_return` no longer ends it."""
        self.state.end_reason = ""
        if self.state.consecutive_solved >= 2:
            self.state.consecutive_solved = 0
            self.config = replace(self.config, eval=replace(self.config.eval, stop_return=None))

    def _call_back(self, method: str) -> None:
        """Call a method of all callbacks, on the main rank; after an iteration, end the run if one asked for it."""
        if not self.callbacks:
            return
        run = self.run_progress
        if self.distributed.is_main:
            run.env_steps, run.updates = self.env_steps, self.algorithm.num_updates
            run.metrics = dict(self.iteration.metrics)
            for callback in self.callbacks:
                getattr(callback, method)(run)
            self.iteration.metrics |= run.logged
            run.logged = {}
        if method == "on_iteration":
            self.state.end_reason = self.distributed.broadcast_object(self.state.end_reason or run.stop_reason)

    def _run_iteration(self, progress: ProgressBar, stop: StopSignal) -> None:
        """Collect, store and update until the iteration is done or a signal arrives."""
        started, env_steps, updates = time.monotonic(), self.env_steps, self.algorithm.num_updates
        if self.iteration.phase == "start":
            self.iteration = IterationState(phase="collect", vector_steps_left=self._num_vector_steps())
        if self._collects_in_background():
            self._collect_and_update(progress, stop)
        else:
            if self.iteration.phase == "collect":
                self._load_weights()
                self._store(*self._collect(stop.is_requested))
                if not self.distributed.any_rank(self.iteration.vector_steps_left > 0):
                    self.iteration.phase = "update"
            if self.iteration.phase == "update":
                self._update(progress, stop.is_requested)
                if not self._num_updates_due():
                    self.iteration.phase = "done"
        self._add_speeds(time.monotonic() - started, env_steps, updates)

    def _load_weights(self) -> None:
        self.components.policy.load_weights(self.algorithm.model, version=self.algorithm.num_updates)

    def _collect(self, should_stop: ShouldStop) -> tuple[list[Trajectory], float]:
        """Make the remaining vector steps; return the finished trials and the seconds taken."""
        started = time.monotonic()
        trajectories: list[Trajectory] = []
        while self.iteration.vector_steps_left and not should_stop():
            finished = self.components.collect_step(deterministic=self.config.deterministic_actions)
            if finished is None:  # collectors in other processes have not made this step yet
                continue
            trajectories += [trajectory for _, trajectory in finished]
            self.iteration.vector_steps_left -= 1
        return trajectories, time.monotonic() - started

    def _store(self, trajectories: list[Trajectory], collect_seconds: float) -> None:
        """Append trajectories to the replay."""
        components, store = self.components, self.components.replay.store
        store.extend(trajectories)
        for summaries in self.distributed.gather_object([summarize_trial(each) for each in trajectories]):
            components.statistics.extend(summaries)
        self._count_env_steps()
        counts = {
            **components.collector.counts(),
            "replay/trajectories": float(len(store)),
            "replay/num_corrupted": float(store.num_corrupted),
        }
        self.iteration.metrics |= {
            **components.statistics.metrics(),
            **components.collector.metrics(),
            **self.distributed.gather_sums(counts),
            "time/collect_seconds": collect_seconds,
            **self.components.policy_age(),
        }

    def _update(self, progress: ProgressBar, should_stop: ShouldStop) -> None:
        """Make the updates that are due."""
        algorithm, replay = self.algorithm, self.components.replay
        started, waited = time.monotonic(), replay.sampler.wait_seconds
        for batch in algorithm.batches(replay, 0 if self._must_stop(should_stop) else self._num_updates_due()):
            self.state.has_action_masks |= batch.action_mask is not None
            for key, value in algorithm.update(batch).items():
                self.iteration.update_metrics.setdefault(key, []).append(value)
            progress.update(env_steps=self.env_steps, updates=algorithm.num_updates)
            if self._must_stop(should_stop):
                break
        algorithm.raise_if_diverged()
        seconds = time.monotonic() - started
        self.iteration.metrics |= {
            "time/update_seconds": seconds,
            "time/learner_wait_fraction": (replay.sampler.wait_seconds - waited) / seconds,
            **replay.sampler.goal_statistics.metrics(),
            **algorithm.metrics(),
        }

    def _collect_and_update(self, progress: ProgressBar, stop: StopSignal) -> None:
        """Collect in a second thread while updating from earlier trajectories: the policy lags one iteration."""
        self._load_weights()
        self._stopping = False
        running = self._background.run(self._collect, lambda: self._stopping or stop.is_requested())
        with running as (collecting, should_stop):
            self._update(progress, should_stop)
        self._store(*collecting.result())
        self.iteration.phase, self.iteration.vector_steps_left = "done", 0

    def _collects_in_background(self) -> bool:
        in_background = self.config.async_collection or bool(self.config.ray.address)
        return in_background and self.distributed.any_rank(self.iteration.vector_steps_left > 0)

    def _num_vector_steps(self) -> int:
        """Return the vector steps of an iteration that starts now."""
        config = self.config
        env_steps = min(config.resolved_env_steps_per_iteration, config.env_steps - self.env_steps)
        return max(0, -(-env_steps // config.num_envs))

    def _num_updates_due(self) -> int:
        """Return the updates that are due, the same number on all ranks, which must call this together."""
        if self.distributed.any_rank(not self.components.replay.sampler.is_ready):
            return 0
        return self.config.updates_due(env_steps=self.env_steps, updates=self.algorithm.num_updates)

    def _must_stop(self, should_stop: ShouldStop) -> bool:
        self._stopping = self.distributed.any_rank(should_stop())
        return self._stopping

    def _count_env_steps(self) -> None:
        collector = self.components.collector
        self.env_steps = self.distributed.all_reduce_sum(collector.env_steps)
        collector.remote_env_steps = self.env_steps - collector.env_steps

    def evaluate(self, stop: StopSignal, *, trials: int, seed: int = EVALUATION_SEED) -> EvalReport | None:
        """Evaluate on the tasks of a seed; return None if a signal arrives, and on all but the main rank."""
        report: EvalReport | None = None
        if self.distributed.is_main:
            with stop.interruptible():
                report = evaluate_model(
                    self.state.trained_config(self.config), self.algorithm.model, trials=trials, seed=seed
                )
        return report

    def _evaluate_random_policy(self, stop: StopSignal) -> None:
        """Evaluate uniformly random actions, once per run."""
        if self.state.random_baseline is not None:
            return
        if self.distributed.is_main:
            with stop.interruptible():
                baseline = evaluate_random_policy(self.config, trials=self.config.eval.final_trials)
                self.state.random_baseline = baseline.to_json()
        self.state = self.distributed.broadcast_object(self.state)

    def _evaluate_if_due(self, stop: StopSignal) -> bool:
        """Evaluate if it is due; return whether the return on the training tasks is the highest so far."""
        if not self.config.eval.interval_env_steps or self.env_steps < self.state.next_eval_step:
            return False
        report = self.evaluate(stop, trials=self.config.eval.trials, seed=SELECTION_SEED)
        improved = False
        if report is not None:
            improved = self.state.record_evaluation(report.selection_return, self.config.eval, env_steps=self.env_steps)
            self.iteration.metrics |= report.metrics()
            self.run_progress.evaluation = report.test
            self._call_back("on_evaluation")
        improved, self.state = self.distributed.broadcast_object((improved, self.state))
        return improved

    def _choose_policy(self, stop: StopSignal) -> None:
        """Choose at the end of a run how the trained policy acts, by returns on the training tasks."""
        config = self.config
        if not config.eval.choose_policy or stop.sync(self.distributed):
            return
        changes: list[dict[str, Any]] = [{}]
        changes += [{"policy_index": i} for i in range(config.algorithm.num_policies(self.algorithm.model) - 1)]
        changes += [] if config.deterministic_actions else [{"mode_is_better": True}]
        best, best_return = self.state, -math.inf
        for change in changes:
            self.state = replace(best, **change)
            report = self.evaluate(stop, trials=config.eval.trials, seed=SELECTION_SEED)
            if report is None:
                best = self.state.of_training()
                break
            if report.selection_return > best_return:
                best, best_return = self.state, report.selection_return
        self.state = self.distributed.broadcast_object(best)

    def save_checkpoint(self) -> Path | None:
        """Save the state of all ranks; return the checkpoint's folder, on the main rank."""
        if self.logger:
            self.logger.flush()
        self.components.replay.store.mark_checkpoint()
        rank_state: dict[str, Any] = {"iteration": self.iteration.state_dict()}
        if self.logger:
            rank_state |= {"metrics_bytes": self.logger.num_bytes, "metrics_iterations": self.logger.num_iterations}
        tensors, state = collect_state(self.components, self.distributed, rank_state)
        if not self.distributed.is_main:
            return None
        return save_checkpoint(
            self.directory / CHECKPOINTS,
            step=self.algorithm.num_updates,
            tensors=tensors,
            state={
                **state,
                "train_state": vars(self.state),
                "env_steps": self.env_steps,
                "config": flatten_config(self.config),
            },
            keep=self.config.checkpoint.keep_latest_k,
        )

    def _load_checkpoint(self) -> Checkpoint:
        """Return the latest intact checkpoint, which the main rank reads for all."""
        latest = load_latest_checkpoint(self.directory / CHECKPOINTS) if self.distributed.is_main else None
        checkpoint = self.distributed.broadcast_object(latest)
        assert checkpoint is not None
        return checkpoint

    def _restore(self, checkpoint: Checkpoint) -> None:
        rank_state, self.resume_warnings = restore_state(checkpoint, self.components, self.distributed)
        self.iteration = IterationState.from_state_dict(rank_state["iteration"])
        self._count_env_steps()
        if changed := changed_fields(checkpoint.state["config"], flatten_config(self.config)):
            self.resume_warnings.append(f"the config differs from that of the checkpoint: {changed}")
        if self.logger:
            self.resume_warnings += self.logger.truncate(rank_state["metrics_bytes"])
            self.logger.num_iterations = rank_state["metrics_iterations"]

    def _save_best_or_milestone(self, *, best: bool) -> bool:
        """Save and keep a checkpoint if it is the best so far or a milestone."""
        interval = self.config.checkpoint.milestone_interval_env_steps
        milestone = bool(interval) and self.env_steps >= self.state.next_milestone_step
        if milestone:
            self.state.next_milestone_step = self.env_steps + interval
        if not (best or milestone):
            return False
        checkpoint = self.save_checkpoint()
        if checkpoint and best:
            copy_checkpoint(checkpoint, self.directory / BEST, keep=1)
        if checkpoint and milestone:
            copy_checkpoint(checkpoint, self.directory / MILESTONES)
        return True

    def _save_if_due(self, seconds: float) -> bool:
        """Save if the last checkpoint is too old, or before trajectories that it needs are deleted."""
        due = seconds > self.config.checkpoint.interval_seconds or self.components.replay.store.needs_checkpoint
        due = self.distributed.any_rank(due)
        if due:
            self.save_checkpoint()
        return due

    def _add_speeds(self, seconds: float, env_steps: int, updates: int) -> None:
        """Add the speeds since the given counts and the means of the update metrics."""
        self.state.train_seconds += seconds
        self.iteration.metrics |= {
            **{key: float(torch.stack(values).mean()) for key, values in self.iteration.update_metrics.items()},
            ENV_STEPS_PER_SECOND: (self.env_steps - env_steps) / seconds,
            UPDATES_PER_SECOND: (self.algorithm.num_updates - updates) / seconds,
        }

    def _log(self, progress: ProgressBar) -> None:
        """Write the metrics of the iteration."""
        counters = {"env_steps": self.env_steps, "updates": self.algorithm.num_updates}
        metrics = self.iteration.metrics
        if self.logger:
            self.logger.write(**counters, wall_seconds=self.state.wall_seconds, values=metrics)
        progress.update(**counters, values=metrics)

    def shutdown(self) -> None:
        """Close after a run without failures: the main rank last, since it owns the cluster that others may use."""
        if not self.distributed.is_main:
            self.close()
        self.distributed.any_rank(False)
        if self.distributed.is_main:
            self.close()

    def close(self) -> None:
        """Close environments, store and files."""
        if self.logger:
            self.logger.close()
        self._background.close()
        self.components.close()
