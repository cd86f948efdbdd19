"""A run in this process, or in this and others that learn with it: rounds, evaluations and checkpoints, to its end."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from yamame.algorithms.amago.goal_statistics import GoalStatistics
from yamame.checkpoint import (
    Checkpoint,
    copy_checkpoint,
    flatten_tensors,
    load_latest_checkpoint,
    save_checkpoint,
    unflatten_tensors,
)
from yamame.components import TrainingComponents, build_components
from yamame.config import RunConfig
from yamame.distributed.ray.connection import connect_ranks
from yamame.distributed.sharding import shard_config
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import UserError
from yamame.evaluate import EvalReport, evaluate_agent, evaluate_random_policy
from yamame.iteration import TrainingIteration
from yamame.metrics import MetricLogger
from yamame.nets.ops import load_generator_state
from yamame.progress import ProgressBar
from yamame.run_dir import BEST, CHECKPOINTS, CONFIG, MILESTONES, replay_dir
from yamame.signals import StopSignal


@dataclass
class TrainState:
    """A record that JSON can hold."""

    train_seconds: float = 0.0
    """Spent collecting and updating, in all processes of the run."""
    wall_seconds: float = 0.0
    """Spent in all, evaluations and checkpoints included."""
    restarts: int = 0
    """Processes before this one."""
    random_baseline: dict[str, Any] | None = None
    """An evaluation of uniformly random actions."""
    next_eval_step: int = 0
    """Environment steps at which the next evaluation is due."""
    consecutive_solved: int = 0
    """Evaluations in a row that reached the config's `stop_return`."""
    best_eval_return: float | None = None
    """The highest mean return of an evaluation."""
    next_milestone_step: int = 0
    """Environment steps at which the next checkpoint is due that is kept for good."""


_NO_FAULTS = {"counts": {}, "excess": 0, "has_worked": True}


def collect_state(
    parts: TrainingComponents, round_: TrainingIteration, standing: TrainState, metrics: MetricLogger | None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and JSON for `save_checkpoint`: on the first rank those of all. All ranks call this together."""
    tensors, learner = flatten_tensors(parts.learner.state_dict())
    of_run, *of_others = round_.ranks.gather_object(_of_rank(parts, round_, metrics))
    others, rest = flatten_tensors({"run": of_run, **({"other_ranks": of_others} if of_others else {})})
    state = {
        "learner": learner,
        "train_state": asdict(standing),
        "env_steps": round_.env_steps,
        "rank_state": rest,
    }
    return tensors | others, state


def _of_rank(parts: TrainingComponents, round_: TrainingIteration, metrics: MetricLogger | None) -> dict[str, Any]:
    """What is not the same on all ranks."""
    of_rank = {
        "iteration": round_.state_dict(),
        "collector": parts.collector.state_dict(),
        "policy": parts.policy.state_dict(),
        "exploration_rng": parts.rng.bit_generator.state,
        "sampler": parts.sampler.state_dict(),
        "statistics": parts.statistics.state_dict(),
        "num_appended": parts.store.total_appended,
        "metrics_bytes": metrics.num_bytes if metrics else None,
    }
    return of_rank if round_.ranks.is_main else of_rank | {"learner_rng": parts.learner.generator.get_state()}


def restore_state(
    checkpoint: Checkpoint, parts: TrainingComponents, round_: TrainingIteration, metrics: MetricLogger | None
) -> list[str]:
    """Put everything back; what could not be, each in a sentence. All ranks call this together.

    Raises `RuntimeError` where the network does not take the weights, `UserError` for a checkpoint of other ranks.
    """
    state = _state_of(round_.ranks, checkpoint)
    parts.learner.load_state_dict(unflatten_tensors(checkpoint.tensors, checkpoint.state["learner"]))
    if "learner_rng" in state:
        load_generator_state(parts.learner.generator, state["learner_rng"])
    lost = state["num_appended"] - parts.store.total_appended
    parts.store.rollback(state["num_appended"] - 1)
    parts.statistics.load_state_dict(state["statistics"])
    parts.sampler.load_state_dict(state["sampler"])
    parts.rng.bit_generator.state = state["exploration_rng"]
    trials_go_on = parts.collector.load_state_dict(state["collector"])
    parts.policy.load_state_dict(state["policy"])
    round_.load_state_dict(state["iteration"])
    if metrics:
        metrics.truncate(state["metrics_bytes"])
    notes = [] if trials_go_on else ["these environments cannot be put back where they stood: new trials begin"]
    if lost > 0:
        notes.append(f"{parts.store.directory} has lost {lost} trajectories or more since the checkpoint")
    return notes


def load_goal_statistics(checkpoint: Checkpoint) -> GoalStatistics:
    """What relabeling knew of goals; nothing where the checkpoint is from before there were any."""
    sampler = _rest_of(checkpoint)["run"]["sampler"]
    return GoalStatistics.from_json(sampler["goals"]) if "goals" in sampler else GoalStatistics()


def _state_of(ranks: DistributedContext, checkpoint: Checkpoint) -> Mapping[str, Any]:
    rest = _rest_of(checkpoint)
    of_ranks = [rest["run"], *rest.get("other_ranks", [])]
    if len(of_ranks) != ranks.world_size:
        raise UserError(
            f"{checkpoint.path} is of a run with {len(of_ranks)} learners, not {ranks.world_size}: give as many, since each "
            "goes on with what it has experienced"
        )
    of_rank: Mapping[str, Any] = of_ranks[ranks.rank]
    return of_rank


def _rest_of(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """Everything but the learner's, of the first rank and of others.

    Also from before trials in flight were kept as well (2026-11-21).
    """
    state = checkpoint.state
    if "rank_state" in state:
        rest: Mapping[str, Any] = unflatten_tensors(checkpoint.tensors, state["rank_state"])
        return rest
    run = {
        "iteration": {"phase": "start", "vector_steps_left": 0, "update_metrics": {}, "metrics": {}},
        "collector": {"env_steps": state["env_steps"], "faults": _NO_FAULTS, "active_trials": None},
        "policy": {"memory": None, "generator": checkpoint.tensors["acting_generator"]},
        "metrics_bytes": None,
        **{key: state[key] for key in ("exploration_rng", "sampler", "statistics", "num_appended")},
    }
    return {"run": run}


class Trainer:
    """One run in one process. `train` goes on until the config's end, a solved task or a signal.

    Killed and resumed it becomes what it would have become, to the bit, on a CPU with as many threads, if its
    environments can be put back where they stood (`not_restored` says if not: they begin new trials). With
    `config.overlap`, a round in which a signal comes ends there.

    With several `ranks`, each has its share of environments, replay and batches, and they do everything together; the
    first one alone reads and writes the run's files (but for the replay of each), evaluates and measures.
    """

    def __init__(
        self, config: RunConfig, directory: Path, *, resume: bool = False, ranks: DistributedContext = SINGLE_PROCESS
    ) -> None:
        self.config, self.directory, self.ranks = config, directory, ranks
        checkpoint = self._checkpoint() if resume else None
        self.train_state = _standing_of(checkpoint, directory) if checkpoint else TrainState()
        self.train_state.restarts += bool(checkpoint)
        self.skipped_corrupted = checkpoint.skipped_corrupted if checkpoint else ()
        share, replay = shard_config(config), directory / replay_dir(ranks.rank)
        connection = connect_ranks(config, ranks) if config.ray.address else None
        with ranks.propagate_failure():
            self.components = build_components(
                share, replay, restarts=self.train_state.restarts, ranks=ranks, connection=connection
            )
        self.components.learner.broadcast_parameters()
        self.iteration = TrainingIteration(config, self.components, ranks)
        self.metrics = MetricLogger(directory) if ranks.is_main else None
        self.resume_warnings: list[str] = []
        """What does not go on where an earlier process stood, each in a sentence."""
        if checkpoint:
            try:
                self.resume_warnings = restore_state(checkpoint, self.components, self.iteration, self.metrics)
            except (RuntimeError, KeyError, TypeError, ValueError) as error:
                self.close()
                raise checkpoint_mismatch_error(directory) from error

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end, by length or by solving its task; all ranks ask together."""
        return self.iteration.finished or (
            self.iteration.state.phase == "start" and self.train_state.consecutive_solved >= 2
        )

    def train(self, progress: ProgressBar) -> str:
        """Train; the name of the signal that stopped it, or nothing. Leaves a checkpoint behind in either case."""
        began = saved = time.monotonic()
        before = self.train_state.wall_seconds
        with StopSignal() as stop:
            if self.train_state.random_baseline is None:
                if self.ranks.is_main:
                    with stop.interruptible():
                        self.train_state.random_baseline = self._evaluate_random()
                self.train_state = self.ranks.broadcast_object(self.train_state)
            while not self.finished and not stop.sync(self.ranks):
                self.train_state.train_seconds += self.iteration.run(progress, lambda: bool(stop.requested))
                improved = self.iteration.state.phase == "done" and self._evaluate_if_due(stop)
                self.train_state.wall_seconds = before + time.monotonic() - began
                if not stop.sync(self.ranks):
                    self._report(progress)
                    self.iteration.reset()
                if self._saved_for_good(best=improved) or self._save_is_due(time.monotonic() - saved):
                    saved = time.monotonic()
            self.train_state.wall_seconds = before + time.monotonic() - began
            self.save_checkpoint()
        return stop.requested

    def evaluate_unless_stopped(self, stop: StopSignal, *, trials: int) -> EvalReport | None:
        """As `judge`; None if a signal comes meanwhile, and on other ranks than the first."""
        judgement: EvalReport | None = None
        if self.ranks.is_main:
            with stop.interruptible():
                judgement = self.evaluate(trials=trials)
        return judgement

    def evaluate(self, *, trials: int) -> EvalReport:
        """Judge the present weights, always on the same tasks (`EVALUATION_SEED`)."""
        return evaluate_agent(self.config, self.components.learner.agent, trials=trials)

    def save_checkpoint(self) -> Path | None:
        """A checkpoint of all ranks, from which the run can go on; its folder, on the first of them."""
        if self.metrics:
            self.metrics.flush()
        self.components.store.sync()
        tensors, state = collect_state(self.components, self.iteration, self.train_state, self.metrics)
        if not self.ranks.is_main:
            return None
        return save_checkpoint(
            self.directory / CHECKPOINTS,
            step=self.components.learner.num_updates,
            tensors=tensors,
            state=state,
            keep=self.config.checkpoint.keep_latest_k,
        )

    def shutdown(self) -> None:
        """Close when nothing has failed: the first rank last, since others may be in a cluster that it began."""
        if not self.ranks.is_main:
            self.close()
        self.ranks.any_rank(False)
        if self.ranks.is_main:
            self.close()

    def close(self) -> None:
        """Close environments, store and files."""
        if self.metrics:
            self.metrics.close()
        self.iteration.close()
        self.components.close()

    def _checkpoint(self) -> Checkpoint:
        """The one to go on from, which the first rank reads for all."""
        newest = load_latest_checkpoint(self.directory / CHECKPOINTS) if self.ranks.is_main else None
        checkpoint = self.ranks.broadcast_object(newest)
        assert checkpoint is not None
        return checkpoint

    def _evaluate_random(self) -> dict[str, Any]:
        return evaluate_random_policy(self.config, trials=self.config.eval.final_trials).to_json()

    def _evaluate_if_due(self, stop: StopSignal) -> bool:
        """Whether the policy was judged, and better than ever before."""
        evaluation = self.config.eval
        if not evaluation.interval_env_steps or self.iteration.env_steps < self.train_state.next_eval_step:
            return False
        judgement = self.evaluate_unless_stopped(stop, trials=evaluation.trials)
        improved = judgement is not None and self._improved(judgement)
        improved, self.train_state = self.ranks.broadcast_object((improved, self.train_state))
        return improved

    def _improved(self, judgement: EvalReport) -> bool:
        """Take note of an evaluation; whether it is the best so far."""
        evaluation, env_steps, standing = self.config.eval, self.iteration.env_steps, self.train_state
        self.iteration.state.metrics |= judgement.metrics()
        return_mean = judgement.test.return_mean
        standing.next_eval_step = env_steps + evaluation.interval_env_steps
        solved = evaluation.stop_return is not None and return_mean >= evaluation.stop_return
        standing.consecutive_solved = standing.consecutive_solved + 1 if solved else 0
        improved = standing.best_eval_return is None or return_mean > standing.best_eval_return
        standing.best_eval_return = return_mean if improved else standing.best_eval_return
        return improved

    def _report(self, progress: ProgressBar) -> None:
        """Log the round that is done."""
        env_steps, updates = self.iteration.env_steps, self.components.learner.num_updates
        wall_seconds, values = self.train_state.wall_seconds, self.iteration.state.metrics
        if self.metrics:
            self.metrics.write(env_steps=env_steps, updates=updates, wall_seconds=wall_seconds, values=values)
        progress.update(env_steps=env_steps, updates=updates, values=values)

    def _saved_for_good(self, *, best: bool) -> bool:
        """Save if this is the best policy so far or a milestone is reached, and keep it."""
        every, env_steps = self.config.checkpoint.milestone_interval_env_steps, self.iteration.env_steps
        milestone = bool(every) and env_steps >= self.train_state.next_milestone_step
        if milestone:
            self.train_state.next_milestone_step = env_steps + every
        if not (best or milestone):
            return False
        checkpoint = self.save_checkpoint()
        if checkpoint and best:
            copy_checkpoint(checkpoint, self.directory / BEST, keep=1)
        if checkpoint and milestone:
            copy_checkpoint(checkpoint, self.directory / MILESTONES)
        return True

    def _save_is_due(self, seconds: float) -> bool:
        """Save if the last checkpoint is too long ago, or what it needs of the replay would not stay much longer."""
        due = seconds > self.config.checkpoint.interval_seconds or self.components.store.needs_checkpoint
        due = self.ranks.any_rank(due)
        if due:
            self.save_checkpoint()
        return due


def _standing_of(checkpoint: Checkpoint, directory: Path) -> TrainState:
    try:
        return TrainState(**checkpoint.state["train_state"])
    except (KeyError, TypeError) as error:
        raise checkpoint_mismatch_error(directory) from error


def checkpoint_mismatch_error(directory: Path) -> UserError:
    """What to say where a network does not take the weights of its own run's checkpoint."""
    return UserError(f"{directory / CONFIG} does not fit the run's checkpoint: was it edited? put back what it was")
