"""A run in one process: collect, store, sample, update, refresh, repeat."""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from yamame.learning.checkpoint import flatten_tensors, load_checkpoint, save_checkpoint, unflatten_tensors
from yamame.records.errors import UserError
from yamame.records.trajectory import Trajectory
from yamame.run.build import build
from yamame.run.config import RunConfig
from yamame.run.judge import Judgement, judge_agent, judge_random
from yamame.run.metrics import ENV_STEPS_PER_SECOND, UPDATES_PER_SECOND, MetricWriter
from yamame.run.overlap import Beside, Stopped
from yamame.run.progress import Progress
from yamame.run.run_directory import CHECKPOINTS, CONFIG, REPLAY
from yamame.run.signals import StopSignal


@dataclass
class Standing:
    """How far a run has come, beside what its parts know themselves. JSON-able."""

    train_seconds: float = 0.0
    """Spent collecting and updating, in all processes of the run."""
    wall_seconds: float = 0.0
    """Spent in all, evaluations and checkpoints included."""
    restarts: int = 0
    """Processes before this one."""
    random_actions: dict[str, Any] | None = None
    """An evaluation of uniformly random actions."""
    next_evaluation: int = 0
    """Environment steps at which the next evaluation is due."""
    solved_in_a_row: int = 0
    """Evaluations in a row that reached the config's `solved_return`."""


@dataclass(frozen=True)
class Collected:
    """What a round of acting gave."""

    trajectories: list[Trajectory]
    """The trials that ended, in their order."""
    seconds: float
    """Spent acting."""


class LocalRun:
    """One run in one process. `train` goes on until the config's end, a solved task or a signal."""

    def __init__(self, config: RunConfig, directory: Path, *, resume: bool = False) -> None:
        self.config, self.directory = config, directory
        checkpoint = load_checkpoint(directory / CHECKPOINTS) if resume else None
        self.standing = Standing(**checkpoint.state["standing"]) if checkpoint else Standing()
        self.standing.restarts += bool(checkpoint)
        self.fallback_from = checkpoint.fallback_from if checkpoint else ()
        self.parts = build(config, directory / REPLAY, restarts=self.standing.restarts)
        self.beside = Beside()
        if checkpoint:
            self._restore(checkpoint.tensors, checkpoint.state)
        self.env_steps_stored = self.parts.collector.env_steps

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end, by length or by solving its task."""
        return (self._all_collected and not self._updates_due) or self.standing.solved_in_a_row >= 2

    def train(self, progress: Progress) -> str:
        """Train; the name of the signal that stopped it, or nothing. Leaves a checkpoint behind in either case."""
        started = saved = time.monotonic()
        before = self.standing.wall_seconds
        with ExitStack() as stack:
            stop = stack.enter_context(StopSignal())
            metrics = stack.enter_context(MetricWriter(self.directory))
            metrics.truncate_after(self.parts.learner.updates)
            if self.standing.random_actions is None:
                with stop.cutting_short():
                    self.standing.random_actions = self._judge_random()
            while not self.finished and not stop.requested:
                values = self._round(progress, stop)
                if not stop.requested:
                    values |= self._evaluate_if_due(stop)
                self.standing.wall_seconds = before + time.monotonic() - started
                self._report(progress, metrics, values)
                if time.monotonic() - saved > self.config.checkpoint_every_seconds:
                    self.save()
                    saved = time.monotonic()
            self.standing.wall_seconds = before + time.monotonic() - started
            self.save()
        return stop.requested

    def close(self) -> None:
        """Close environments and store."""
        self.beside.close()
        self.parts.close()

    def _round(self, progress: Progress, stop: StopSignal) -> dict[str, float]:
        """Collect, store, learn: in turn, or with `overlap` the first and the last at once; what there is to log.

        What is learned from is what was stored before, so at once a policy is a round older; the pace is the same.
        """
        parts = self.parts
        began, env_steps, updates = time.monotonic(), parts.collector.env_steps, parts.learner.updates
        parts.policy.refresh(parts.learner.agent, version=updates)

        def stopped() -> bool:
            return bool(stop.requested)

        if self.config.overlap and not self._all_collected:
            with self.beside.running(self._collect, stopped) as (collecting, stopped_or_failed):
                learned = self._learn(progress, stopped_or_failed)
            collected = self._store(collecting.result())
        else:
            collected = self._store(self._collect(stopped))
            learned = self._learn(progress, stopped)
        seconds = time.monotonic() - began
        self.standing.train_seconds += seconds
        speed = {
            ENV_STEPS_PER_SECOND: (parts.collector.env_steps - env_steps) / seconds,
            UPDATES_PER_SECOND: (parts.learner.updates - updates) / seconds,
        }
        return {**collected, **learned, **speed}

    def _collect(self, stopped: Stopped) -> Collected:
        """A round of acting."""
        began, config, parts = time.monotonic(), self.config, self.parts
        steps = min(config.round_env_steps, config.env_steps - parts.collector.env_steps)
        trajectories: list[Trajectory] = []
        for _ in range(-(-steps // config.num_envs)):
            finished = parts.collector.step(parts.policy, deterministic=config.deterministic_actions)
            trajectories += [trajectory for _, trajectory in finished]
            if stopped():
                break
        return Collected(trajectories, time.monotonic() - began)

    def _store(self, collected: Collected) -> dict[str, float]:
        """Put what was collected where the next updates find it."""
        parts = self.parts
        parts.store.append_all(collected.trajectories)
        for trajectory in collected.trajectories:
            parts.statistics.add(trajectory)
        self.env_steps_stored = parts.collector.env_steps
        return {
            **parts.statistics.metrics(),
            "speed/collect_seconds": collected.seconds,
            "replay/trajectories": float(len(parts.store)),
            "replay/damaged": float(parts.store.damaged),
        }

    def _learn(self, progress: Progress, stopped: Stopped) -> dict[str, float]:
        """The updates that are due."""
        parts, learner = self.parts, self.parts.learner
        began, waited = time.monotonic(), parts.sampler.wait_seconds
        measured: list[Mapping[str, Tensor]] = []
        for batch in parts.sampler.batches(0 if stopped() else self._updates_due):
            measured.append(learner.update(batch))
            progress.update(env_steps=parts.collector.env_steps, updates=learner.updates)
            if stopped():
                break
        learner.check()
        means = _means(measured)
        seconds = time.monotonic() - began
        return {
            **means,
            "loss/skipped_updates": float(learner.skipped),
            "speed/update_seconds": seconds,
            "replay/wait_fraction": (parts.sampler.wait_seconds - waited) / seconds,
            **parts.sampler.goal_statistics.metrics(),
        }

    @property
    def _all_collected(self) -> bool:
        return self.parts.collector.env_steps >= self.config.env_steps

    @property
    def _updates_due(self) -> int:
        """Updates that what is stored allows."""
        parts = self.parts
        if not parts.sampler.is_ready:
            return 0
        return self.config.pace.updates_due(env_steps=self.env_steps_stored, updates=parts.learner.updates)

    def _judge_random(self) -> dict[str, Any]:
        return judge_random(self.config, trials=self.config.evaluation.final_trials).to_json()

    def _evaluate_if_due(self, stop: StopSignal) -> dict[str, float]:
        evaluation, env_steps = self.config.evaluation, self.parts.collector.env_steps
        if not evaluation.every_env_steps or env_steps < self.standing.next_evaluation:
            return {}
        judgement: Judgement | None = None
        with stop.cutting_short():
            judgement = self.judge(trials=evaluation.trials)
        if judgement is None:
            return {}
        return_mean = judgement.evaluation.return_mean
        self.standing.next_evaluation = env_steps + evaluation.every_env_steps
        solved = evaluation.solved_return is not None and return_mean >= evaluation.solved_return
        self.standing.solved_in_a_row = self.standing.solved_in_a_row + 1 if solved else 0
        return judgement.metrics()

    def judge(self, *, trials: int) -> Judgement:
        """Judge the present weights, always on the same tasks (`EVALUATION_SEED`)."""
        return judge_agent(self.config, self.parts.learner.agent, trials=trials)

    def _report(self, progress: Progress, metrics: MetricWriter, values: Mapping[str, float]) -> None:
        env_steps, updates = self.parts.collector.env_steps, self.parts.learner.updates
        wall_seconds = self.standing.wall_seconds
        metrics.write(env_steps=env_steps, updates=updates, wall_seconds=wall_seconds, values=values)
        progress.update(env_steps=env_steps, updates=updates, values=values)

    def save(self) -> None:
        """A checkpoint: everything that the rest of the run depends on. Trials in flight are not kept."""
        parts = self.parts
        parts.store.sync()
        tensors, learner = flatten_tensors(parts.learner.state_dict())
        state = {
            "learner": learner,
            "standing": asdict(self.standing),
            "env_steps": parts.collector.env_steps,
            "trajectories": parts.store.total_appended,
            "statistics": parts.statistics.state_dict(),
            "sampler": parts.sampler.state_dict(),
            "exploration": parts.rng.bit_generator.state,
        }
        tensors["acting_generator"] = parts.generator.get_state()
        save_checkpoint(self.directory / CHECKPOINTS, step=parts.learner.updates, tensors=tensors, state=state)

    def _restore(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        parts = self.parts
        try:
            parts.learner.load_state_dict(unflatten_tensors(tensors, state["learner"]))
        except RuntimeError as error:
            parts.close()
            raise misfit(self.directory) from error
        parts.collector.env_steps = state["env_steps"]
        parts.store.discard_after(state["trajectories"] - 1)
        parts.statistics.load_state_dict(state["statistics"])
        parts.sampler.load_state_dict(state["sampler"])
        parts.rng.bit_generator.state = state["exploration"]
        parts.generator.set_state(tensors["acting_generator"])


def misfit(directory: Path) -> UserError:
    """What to say where a network does not take the weights of its own run's checkpoint."""
    return UserError(f"{directory / CONFIG} does not fit the run's checkpoint: was it edited? put back what it was")


def _means(measured: list[Mapping[str, Tensor]]) -> dict[str, float]:
    if not measured:
        return {}
    return {key: float(torch.stack([values[key] for values in measured]).mean()) for key in measured[0]}
