"""Checkpoints of a run: the latest, the best by evaluation, and milestones."""

import time
from pathlib import Path
from typing import Any

from yamame.config.differences import flatten_config
from yamame.distributed_context import DistributedContext
from yamame.metrics.logger import MetricLogger
from yamame.nets.torch_defaults import with_torch_defaults
from yamame.run_config import RunConfig
from yamame.runs.checkpoint import MANIFEST, Checkpoint, copy_checkpoint, load_latest_checkpoint, save_checkpoint
from yamame.runs.directory import BEST, CHECKPOINTS, MILESTONES
from yamame.training.components import TrainingComponents
from yamame.training.decision import Decision
from yamame.training.state import (
    IterationState,
    TrainState,
    changed_fields,
    checkpoint_mismatch_error,
    collect_state,
    restore_state,
)


class RunCheckpoints:
    """Saves and restores the state of all ranks, which must make the same calls. The main rank writes the files.

    Args:
        directory: Run directory.
        config: Config of the whole run.
        components: Components of this rank.
        distributed: This process among the learners.
        logger: Metrics of the run, which end where the checkpoint was saved; None on all but the main rank.
    """

    def __init__(
        self,
        directory: Path,
        config: RunConfig,
        components: TrainingComponents,
        distributed: DistributedContext,
        logger: MetricLogger | None,
    ) -> None:
        self.directory, self.config, self.components = directory, config, components
        self.distributed, self.logger = distributed, logger
        self._last_save = time.monotonic()
        self._last_step: int | None = None

    def is_overdue(self, seconds: float) -> bool:
        """Return whether the last checkpoint of this process will be too old after `seconds`."""
        return time.monotonic() - self._last_save + seconds > self.config.checkpoint.interval_seconds

    def save_if_due(self, state: TrainState, iteration: IterationState, decision: Decision, *, is_best: bool) -> None:
        """Save a checkpoint if it was decided, is the best by evaluation, or a milestone."""
        interval = self.config.checkpoint.milestone_interval_env_steps
        is_milestone = bool(interval) and decision.env_steps >= state.next_milestone_step
        if is_milestone:
            state.next_milestone_step = decision.env_steps + interval
        if is_best or is_milestone or decision.save:
            self.save(state, iteration, decision.env_steps, is_best=is_best, is_milestone=is_milestone)

    @with_torch_defaults
    def save(
        self,
        state: TrainState,
        iteration: IterationState,
        env_steps: int,
        *,
        is_best: bool = False,
        is_milestone: bool = False,
    ) -> None:
        """Save a checkpoint, and a copy of it if it is the best one or a milestone.

        Args:
            state: Counters of the run.
            iteration: Progress of this rank's iteration.
            env_steps: Environment steps of all ranks.
            is_best: Whether the return of the last evaluation is the highest so far.
            is_milestone: Whether a copy is kept for ever.
        """
        self._last_save = time.monotonic()
        rank_state: dict[str, Any] = {"iteration": iteration.state_dict()}
        if self.logger:
            self.logger.flush()
        self.components.replay.store.mark_checkpoint()
        if self.logger:
            rank_state |= {"metrics_bytes": self.logger.num_bytes, "metrics_iterations": self.logger.num_iterations}
        tensors, state_json = collect_state(self.components, self.distributed, rank_state)
        if not self.distributed.is_main:
            return
        path = save_checkpoint(
            self.directory / CHECKPOINTS,
            step=self.components.algorithm.num_updates,
            tensors=tensors,
            state={
                **state_json,
                "train_state": vars(state),
                "env_steps": env_steps,
                "config": flatten_config(self.config),
                "is_best": is_best,
                "is_milestone": is_milestone,
            },
            keep=self.config.checkpoint.keep_latest_k,
            previous_step=self._last_step,
        )
        self._last_step = self.components.algorithm.num_updates
        self._copy(path, is_best=is_best, is_milestone=is_milestone)

    @with_torch_defaults
    def restore(self, checkpoint: Checkpoint) -> tuple[IterationState, list[str]]:
        """Restore the components and the metrics; return the iteration, and a sentence for each thing that is lost.

        Raises `UserError` if the checkpoint does not match the config.
        """
        try:
            rank_state, warnings = restore_state(checkpoint, self.components, self.distributed)
            iteration = IterationState.from_state_dict(
                rank_state["iteration"], self.components.algorithm.compute.device
            )
        except (RuntimeError, KeyError, TypeError, ValueError) as error:
            raise checkpoint_mismatch_error(self.directory) from error
        if changed := changed_fields(checkpoint.state["config"], self.config):
            warnings.append(f"the config differs from that of the checkpoint: {changed}")
        if self.logger:
            warnings += self.logger.truncate(rank_state["metrics_bytes"])
            self.logger.num_iterations = rank_state["metrics_iterations"]
        self._last_step = checkpoint.step
        if self.distributed.is_main:  # a kill may have come between the checkpoint and its copies
            is_best, is_milestone = (bool(checkpoint.state.get(key)) for key in ("is_best", "is_milestone"))
            self._copy(checkpoint.path, is_best=is_best, is_milestone=is_milestone)
        return iteration, warnings

    def _copy(self, path: Path, *, is_best: bool, is_milestone: bool) -> None:
        """Make the copies of a checkpoint that do not exist."""
        if is_best and not _is_copied(path, self.directory / BEST):
            copy_checkpoint(path, self.directory / BEST, keep=1)
        if is_milestone and not _is_copied(path, self.directory / MILESTONES):
            copy_checkpoint(path, self.directory / MILESTONES)


def _is_copied(path: Path, directory: Path) -> bool:
    """Return whether a directory has a copy of a checkpoint, rather than an older checkpoint of the same name."""
    copy = directory / path.name / MANIFEST
    return copy.is_file() and copy.read_bytes() == (path / MANIFEST).read_bytes()


def load_run_checkpoint(directory: Path, distributed: DistributedContext) -> Checkpoint:
    """Return the latest intact checkpoint of a run, which the main rank reads for all."""
    latest = load_latest_checkpoint(directory / CHECKPOINTS) if distributed.is_main else None
    checkpoint = distributed.broadcast_object(latest)
    assert checkpoint is not None
    return checkpoint
