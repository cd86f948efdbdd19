"""A run in this process, or in this and others that learn with it: rounds, evaluations and checkpoints, to its end."""

import time
from pathlib import Path
from typing import Any

from yamame.learning.checkpoint import Checkpoint, copy_checkpoint, load_checkpoint, save_checkpoint
from yamame.ops.ranks import ALONE, Ranks
from yamame.records.errors import UserError
from yamame.run.build import build
from yamame.run.cluster.connect import connect_all
from yamame.run.config import RunConfig
from yamame.run.judge import Judgement, judge_agent, judge_random
from yamame.run.metrics import MetricWriter
from yamame.run.progress import Progress
from yamame.run.round import Round
from yamame.run.run_directory import BEST, CHECKPOINTS, CONFIG, MILESTONES, replay_folder
from yamame.run.shares import share_of_learner
from yamame.run.signals import StopSignal
from yamame.run.standing import Standing
from yamame.run.whole_state import restore, state_of_run


class LocalRun:
    """One run in one process. `train` goes on until the config's end, a solved task or a signal.

    Killed and resumed it becomes what it would have become, to the bit, on a CPU with as many threads, if its
    environments can be put back where they stood (`not_restored` says if not: they begin new trials). With
    `config.overlap`, a round in which a signal comes ends there.

    With several `ranks`, each has its share of environments, replay and batches, and they do everything together; the
    first one alone reads and writes the run's files (but for the replay of each), evaluates and measures.
    """

    def __init__(self, config: RunConfig, directory: Path, *, resume: bool = False, ranks: Ranks = ALONE) -> None:
        self.config, self.directory, self.ranks = config, directory, ranks
        checkpoint = self._checkpoint() if resume else None
        self.standing = _standing_of(checkpoint, directory) if checkpoint else Standing()
        self.standing.restarts += bool(checkpoint)
        self.fallback_from = checkpoint.fallback_from if checkpoint else ()
        share, replay = share_of_learner(config), directory / replay_folder(ranks.rank)
        connection = connect_all(config, ranks) if config.cluster else None
        with ranks.together():
            self.parts = build(share, replay, restarts=self.standing.restarts, ranks=ranks, connection=connection)
        self.parts.learner.follow_first()
        self.round = Round(config, self.parts, ranks)
        self.metrics = MetricWriter(directory) if ranks.is_first else None
        self.not_restored: list[str] = []
        """What does not go on where an earlier process stood, each in a sentence."""
        if checkpoint:
            try:
                self.not_restored = restore(checkpoint, self.parts, self.round, self.metrics)
            except (RuntimeError, KeyError, TypeError, ValueError) as error:
                self.close()
                raise misfit(directory) from error

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end, by length or by solving its task; all ranks ask together."""
        return self.round.finished or (self.round.state.phase == "begin" and self.standing.solved_in_a_row >= 2)

    def train(self, progress: Progress) -> str:
        """Train; the name of the signal that stopped it, or nothing. Leaves a checkpoint behind in either case."""
        began = saved = time.monotonic()
        before = self.standing.wall_seconds
        with StopSignal() as stop:
            if self.standing.random_actions is None:
                if self.ranks.is_first:
                    with stop.cutting_short():
                        self.standing.random_actions = self._judge_random()
                self.standing = self.ranks.from_first(self.standing)
            while not self.finished and not stop.agree(self.ranks):
                self.standing.train_seconds += self.round.go_on(progress, lambda: bool(stop.requested))
                improved = self.round.state.phase == "done" and self._evaluate_if_due(stop)
                self.standing.wall_seconds = before + time.monotonic() - began
                if not stop.agree(self.ranks):
                    self._report(progress)
                    self.round.next()
                if self._saved_for_good(best=improved) or self._save_is_due(time.monotonic() - saved):
                    saved = time.monotonic()
            self.standing.wall_seconds = before + time.monotonic() - began
            self.save()
        return stop.requested

    def judge_unless(self, stop: StopSignal, *, trials: int) -> Judgement | None:
        """As `judge`; None if a signal comes meanwhile, and on other ranks than the first."""
        judgement: Judgement | None = None
        if self.ranks.is_first:
            with stop.cutting_short():
                judgement = self.judge(trials=trials)
        return judgement

    def judge(self, *, trials: int) -> Judgement:
        """Judge the present weights, always on the same tasks (`EVALUATION_SEED`)."""
        return judge_agent(self.config, self.parts.learner.agent, trials=trials)

    def save(self) -> Path | None:
        """A checkpoint of all ranks, from which the run can go on; its folder, on the first of them."""
        if self.metrics:
            self.metrics.flush()
        self.parts.store.sync()
        tensors, state = state_of_run(self.parts, self.round, self.standing, self.metrics)
        if not self.ranks.is_first:
            return None
        return save_checkpoint(
            self.directory / CHECKPOINTS,
            step=self.parts.learner.updates,
            tensors=tensors,
            state=state,
            keep=self.config.keep_checkpoints,
        )

    def leave(self) -> None:
        """Close when nothing has failed: the first rank last, since others may be in a cluster that it began."""
        if not self.ranks.is_first:
            self.close()
        self.ranks.any(False)
        if self.ranks.is_first:
            self.close()

    def close(self) -> None:
        """Close environments, store and files."""
        if self.metrics:
            self.metrics.close()
        self.round.close()
        self.parts.close()

    def _checkpoint(self) -> Checkpoint:
        """The one to go on from, which the first rank reads for all."""
        newest = load_checkpoint(self.directory / CHECKPOINTS) if self.ranks.is_first else None
        checkpoint = self.ranks.from_first(newest)
        assert checkpoint is not None
        return checkpoint

    def _judge_random(self) -> dict[str, Any]:
        return judge_random(self.config, trials=self.config.evaluation.final_trials).to_json()

    def _evaluate_if_due(self, stop: StopSignal) -> bool:
        """Whether the policy was judged, and better than ever before."""
        evaluation = self.config.evaluation
        if not evaluation.every_env_steps or self.round.env_steps < self.standing.next_evaluation:
            return False
        judgement = self.judge_unless(stop, trials=evaluation.trials)
        improved = judgement is not None and self._improved(judgement)
        improved, self.standing = self.ranks.from_first((improved, self.standing))
        return improved

    def _improved(self, judgement: Judgement) -> bool:
        """Take note of an evaluation; whether it is the best so far."""
        evaluation, env_steps, standing = self.config.evaluation, self.round.env_steps, self.standing
        self.round.state.values |= judgement.metrics()
        return_mean = judgement.evaluation.return_mean
        standing.next_evaluation = env_steps + evaluation.every_env_steps
        solved = evaluation.solved_return is not None and return_mean >= evaluation.solved_return
        standing.solved_in_a_row = standing.solved_in_a_row + 1 if solved else 0
        improved = standing.best_return is None or return_mean > standing.best_return
        standing.best_return = return_mean if improved else standing.best_return
        return improved

    def _report(self, progress: Progress) -> None:
        """Log the round that is done."""
        env_steps, updates = self.round.env_steps, self.parts.learner.updates
        wall_seconds, values = self.standing.wall_seconds, self.round.state.values
        if self.metrics:
            self.metrics.write(env_steps=env_steps, updates=updates, wall_seconds=wall_seconds, values=values)
        progress.update(env_steps=env_steps, updates=updates, values=values)

    def _saved_for_good(self, *, best: bool) -> bool:
        """Save if this is the best policy so far or a milestone is reached, and keep it."""
        every, env_steps = self.config.milestone_every_env_steps, self.round.env_steps
        milestone = bool(every) and env_steps >= self.standing.next_milestone
        if milestone:
            self.standing.next_milestone = env_steps + every
        if not (best or milestone):
            return False
        checkpoint = self.save()
        if checkpoint and best:
            copy_checkpoint(checkpoint, self.directory / BEST, keep=1)
        if checkpoint and milestone:
            copy_checkpoint(checkpoint, self.directory / MILESTONES)
        return True

    def _save_is_due(self, seconds: float) -> bool:
        """Save if the last checkpoint is too long ago, or what it needs of the replay would not stay much longer."""
        due = seconds > self.config.checkpoint_every_seconds or self.parts.store.wants_sync
        due = self.ranks.any(due)
        if due:
            self.save()
        return due


def _standing_of(checkpoint: Checkpoint, directory: Path) -> Standing:
    try:
        return Standing(**checkpoint.state["standing"])
    except (KeyError, TypeError) as error:
        raise misfit(directory) from error


def misfit(directory: Path) -> UserError:
    """What to say where a network does not take the weights of its own run's checkpoint."""
    return UserError(f"{directory / CONFIG} does not fit the run's checkpoint: was it edited? put back what it was")
