"""`Trainer`: the training loop. Build, then collect, store, sample, update, evaluate, save a checkpoint.

One iteration collects one trial per environment (or `env_steps_per_iteration`), then makes the updates that
`updates_per_env_step` allows. It can be interrupted after any vector step or update, and resumed.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from yamame.collect.background import BackgroundThread, ShouldStop
from yamame.collect.statistics import TrialSummary, summarize_trial
from yamame.data.trajectory import Trajectory
from yamame.distributed.ray.connection import connect_ranks
from yamame.distributed.sharding import shard_config
from yamame.distributed.signals import StopSignal
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.metrics.logger import MetricLogger
from yamame.metrics.progress import ProgressBar
from yamame.nets.torch_defaults import check_shared_defaults, torch_defaults, with_torch_defaults
from yamame.run_config import RunConfig
from yamame.runs.directory import absolute_if_exists, replay_dir
from yamame.training.callbacks import Callback, RunProgress, call_back
from yamame.training.checkpointing import RunCheckpoints, load_run_checkpoint
from yamame.training.components import build_components
from yamame.training.decision import Decision, decide
from yamame.training.evaluate import SELECTION_SEED
from yamame.training.run_evaluations import RunEvaluations
from yamame.training.state import (
    IterationState,
    TrainState,
    checkpoint_mismatch_error,
    load_initial_weights,
    restore_train_state,
)


class Trainer:
    """Trains until `env_steps` are made, the task is solved or a signal arrives.

    Resume is exact: after a kill, a run has bitwise the same result as without it, on a CPU with the same number of
    threads and if its environments can be restored (else there are `resume_warnings`). With `async_collection`, an
    interrupted iteration ends at the interruption.

    Each of several ranks has a shard of environments, replay and batches. All make the same calls in the same order.
    The main rank alone writes the run's files (except the replay of each rank), evaluates and logs.

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
        checkpoint = load_run_checkpoint(directory, distributed) if resume else None
        self.state = TrainState()
        self.saved_config: Mapping[str, Any] = {}
        """Flattened config of the checkpoint."""
        if checkpoint:
            if not isinstance(saved_config := checkpoint.state.get("config"), dict):
                raise checkpoint_mismatch_error(directory)
            self.saved_config = saved_config
            self.state = restore_train_state(checkpoint, directory).resumed_with(config, saved=self.saved_config)
        self.state.restarts += bool(checkpoint)
        self.skipped_corrupted = checkpoint.skipped_corrupted if checkpoint else ()
        """Newer checkpoints that are corrupted."""
        initial_weights = absolute_if_exists(config.init_from)  # environments may change the working directory
        with distributed.propagate_failure():
            connection = connect_ranks(config, distributed) if config.ray.address else None
            self.components = build_components(
                shard_config(config),
                directory / replay_dir(distributed.rank),
                restarts=self.state.restarts,
                distributed=distributed,
                connection=connection,
            )
        self.algorithm, self.experience = self.components.algorithm, self.components.experience
        self.iteration = IterationState()
        self._background: BackgroundThread | None = None
        self._is_stopping, self._last_update_seconds = False, 0.0
        self.logger: MetricLogger | None = None
        self.resume_warnings: list[str] = []
        """What could not be restored, one sentence each."""
        try:
            if config.init_from and not checkpoint:
                load_initial_weights(self.algorithm.model, initial_weights)
            with torch_defaults():
                self.algorithm.broadcast_parameters()
            if config.async_collection or config.ray.address:
                device = self.algorithm.compute.device
                self._background = BackgroundThread(computes=not config.ray.address, device=device)
            self.logger = MetricLogger(directory) if distributed.is_main else None
            self.checkpoints = RunCheckpoints(directory, config, self.components, distributed, self.logger)
            self.evaluations = RunEvaluations(config, self.algorithm.model, self.experience, distributed)
            if checkpoint:
                self.iteration, self.resume_warnings = self.checkpoints.restore(checkpoint)
            self.decision = self._decide((), "")
            # a run may be resumed with shorter intervals
            self.state = self.state.with_intervals_of(config, env_steps=self.env_steps)
        except BaseException:
            self.close()
            raise

    @property
    def env_steps(self) -> int:
        """Environment steps of all ranks whose trajectories are stored."""
        return self.decision.env_steps

    def train(self, progress: ProgressBar) -> str:
        """Train; return the name of the signal that stopped the run, or "". A checkpoint is saved in either case."""
        start, seconds_before = time.perf_counter(), self.state.wall_seconds
        self.state = self.state.acting_as_in_training()
        with StopSignal() as stop, ExitStack() as at_end:
            self.state = self.evaluations.random_policy(self.state, stop)
            self._is_stopping = stop.sync(self.distributed)
            self._call_back("on_start")
            at_end.callback(self._call_back, "on_end")
            while not self.is_finished() and not self._is_stopping:
                if self.iteration.phase != "done":
                    self._run_iteration(progress, stop)
                improved = self._evaluate_if_due(stop)
                self.state.wall_seconds = seconds_before + time.perf_counter() - start
                if self.iteration.phase == "done" and not self._is_stopping:
                    self._call_back("on_iteration")
                    self._log(progress)
                    self.iteration = IterationState()
                self.checkpoints.save_if_due(self.state, self.iteration, self.decision, is_best=improved)
            if not stop.sync(self.distributed):
                self.state = self.evaluations.choose_policy(self.state, stop)
            self.state.wall_seconds = seconds_before + time.perf_counter() - start
            self.save_checkpoint()
        return stop.requested

    def is_finished(self) -> bool:
        """Return whether the run has made all its steps and updates, solved its task or was ended by a callback."""
        if self.iteration.phase != "start":
            return False
        if self.state.end_reason:
            return True
        return not self.decision.vector_steps and self.algorithm.num_updates >= self.decision.num_updates

    def train_past_end(self) -> None:
        """Continue a run that has ended early: if it had solved its task, `eval.stop_return` no longer ends it."""
        self.state.end_reason = ""
        if self.state.consecutive_solved >= 2:
            self.state.consecutive_solved = 0
            self.config = replace(self.config, eval=replace(self.config.eval, stop_return=None))
            self.checkpoints.config = self.evaluations.config = self.config

    def _run_iteration(self, progress: ProgressBar, stop: StopSignal) -> None:
        """Collect, store, decide and update, until the iteration is done or a signal arrives."""
        started, env_steps, updates = time.perf_counter(), self.env_steps, self.algorithm.num_updates
        # 1. collect, and store what has completed
        if self.iteration.phase == "start":
            # with what callbacks have logged at the start of the run
            self.iteration.phase, self.iteration.vector_steps_left = "collect", self.decision.vector_steps
        if self.iteration.phase == "collect":
            self.experience.load_weights(self.algorithm.model, version=self.algorithm.num_updates)
            if self._background and self.decision.vector_steps:
                # beside the updates that the last decision allowed: the policy lags one iteration
                if not self.config.ray.address:
                    check_shared_defaults()
                running = self._background.run(self._collect, lambda: self._is_stopping or stop.is_requested())
                with running as (collecting, should_stop):
                    self._update(progress, should_stop)
                self._store_and_decide(*collecting.result(), signal=stop.requested)
                self.iteration.phase, self.iteration.vector_steps_left = "done", 0
            else:
                self._store_and_decide(*self._collect(stop.is_requested), signal=stop.requested)
                self.iteration.phase = "update" if self.decision.is_collected else "collect"
        # 2. update as often as the new env steps allow
        self._is_stopping |= bool(self.decision.signal)
        if self.iteration.phase == "update" and not self._is_stopping:
            self._update(progress, stop.is_requested)
            if self.algorithm.num_updates >= self.decision.num_updates:
                self.iteration.phase = "done"
        seconds = time.perf_counter() - started
        self.state.train_seconds += seconds
        self.iteration.add_speeds(seconds, self.env_steps - env_steps, self.algorithm.num_updates - updates)

    def _collect(self, should_stop: ShouldStop) -> tuple[list[Trajectory], float]:
        """Make the remaining vector steps; return the completed trials and the seconds taken."""
        started = time.perf_counter()
        trajectories, left = self.experience.collect(self.iteration.vector_steps_left, should_stop)
        self.iteration.vector_steps_left = left
        return trajectories, time.perf_counter() - started

    def _store_and_decide(self, trajectories: list[Trajectory], collect_seconds: float, *, signal: str) -> None:
        """Append trajectories to the replay and decide what follows."""
        self.components.replay.store.extend(trajectories)
        self.decision = self._decide([summarize_trial(each) for each in trajectories], signal)
        self.iteration.metrics |= {
            **self.components.statistics.metrics(),
            **self.experience.metrics(),
            **self.decision.counts,
            "time/collect_seconds": collect_seconds,
            **self.components.policy_age(),
        }

    def _decide(self, trials: Sequence[TrialSummary], signal: str) -> Decision:
        """Exchange what all ranks need in an iteration, besides gradients, evaluations and checkpoints."""
        report = self.components.report(trials, self.iteration.vector_steps_left, signal)
        reports = self.distributed.gather_object(report)
        self.components.statistics.extend([trial for each in reports for trial in each.trials])
        decided = decide(
            reports,
            self.config,
            num_updates=self.algorithm.num_updates,
            next_eval_step=self.state.next_eval_step,
            # a checkpoint is saved after the updates, which take about as long as the last ones
            must_save=self.checkpoints.is_overdue(self._last_update_seconds),
        )
        decision = self.distributed.broadcast_object(decided)
        self.experience.remote_env_steps = decision.env_steps - self.experience.env_steps
        self.experience.until_trial_end = decision.until_trial_end
        return decision

    @with_torch_defaults
    def _update(self, progress: ProgressBar, should_stop: ShouldStop) -> None:
        """Make the updates that are decided, or those until a signal arrives."""
        algorithm, replay = self.algorithm, self.components.replay
        started, waited = time.perf_counter(), replay.sampler.wait_seconds
        replay.sampler.env_steps = self.env_steps
        self._is_stopping = self.distributed.any_rank(should_stop())
        updates = 0 if self._is_stopping else self.decision.num_updates - algorithm.num_updates
        for batch in algorithm.batches(replay, updates):
            self.state.has_action_masks |= batch.action_mask is not None
            for key, value in algorithm.update(batch).items():
                self.iteration.update_metrics.setdefault(key, []).append(value)
            progress.update(env_steps=self.env_steps, updates=algorithm.num_updates)
            # the ranks stop after the same update
            self._is_stopping = self.distributed.any_rank(should_stop())
            if self._is_stopping:
                break
        algorithm.raise_if_diverged()
        self._last_update_seconds = seconds = time.perf_counter() - started
        self.iteration.metrics |= {
            "time/update_seconds": seconds,
            "time/learner_wait_fraction": (replay.sampler.wait_seconds - waited) / seconds,
            **replay.sampler.goal_statistics.metrics(),
            **algorithm.metrics(),
        }

    def _evaluate_if_due(self, stop: StopSignal) -> bool:
        """Evaluate if it is due; return whether the return on the training tasks is the highest so far."""
        if self.iteration.phase != "done" or self._is_stopping or not self.decision.evaluate:
            return False
        report = self.evaluations.evaluate(self.state, stop, trials=self.config.eval.trials, seed=SELECTION_SEED)
        improved = False
        if report is not None:
            improved = self.state.record_evaluation(report.selection_return, self.config.eval, env_steps=self.env_steps)
            self.iteration.metrics |= report.metrics()
            self.run_progress.evaluation = report.test
            self._call_back("on_evaluation")
        outcome = improved, self.state, stop.is_requested()
        improved, self.state, self._is_stopping = self.distributed.broadcast_object(outcome)
        return improved

    def _call_back(self, method: str) -> None:
        """Call a method of all callbacks, on the main rank; after an iteration, end the run if one asked for it."""
        if not self.callbacks:
            return
        run = self.run_progress
        if self.distributed.is_main:
            run.env_steps, run.updates = self.env_steps, self.algorithm.num_updates
            run.metrics = dict(self.iteration.metrics)
            self.iteration.metrics |= call_back(self.callbacks, method, run)
        if method == "on_iteration":
            self.state.end_reason = self.distributed.broadcast_object(self.state.end_reason or run.stop_reason)

    def save_checkpoint(self) -> None:
        """Save the state of all ranks, which must call this together."""
        self.checkpoints.save(self.state, self.iteration, self.env_steps)

    def _log(self, progress: ProgressBar) -> None:
        """Write the metrics of the iteration."""
        counts = {"env_steps": self.env_steps, "updates": self.algorithm.num_updates}
        if self.logger:
            self.logger.write(**counts, wall_seconds=self.state.wall_seconds, values=self.iteration.metrics)
        progress.update(**counts, values=self.iteration.metrics)

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
        if self._background:
            self._background.close()
        self.components.close()
