"""One round of a run, which it makes again and again: collect, store, learn. It can be left anywhere and taken up."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from yamame.algorithms.amago.value_metrics import value_metrics_by_gamma
from yamame.collect.background import BackgroundThread, ShouldStop
from yamame.collect.statistics import summarize_trial
from yamame.components import TrainingComponents
from yamame.config import RunConfig
from yamame.data.codec import CorruptedRecordError
from yamame.data.trajectory import Trajectory
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.metrics import ENV_STEPS_PER_SECOND, UPDATES_PER_SECOND
from yamame.progress import ProgressBar
from yamame.types import State

Phase = Literal["start", "collect", "update", "done"]


@dataclass
class IterationState:
    """Where a round stands."""

    phase: Phase = "start"
    vector_steps_left: int = 0
    """Steps of all environments that are still to be collected."""
    update_metrics: dict[str, list[Tensor]] = field(default_factory=dict)
    """What the updates of the round measured, by key."""
    metrics: dict[str, float] = field(default_factory=dict)
    """What else there is to log."""


@dataclass(frozen=True)
class CollectedTrials:
    """What acting gave."""

    trajectories: list[Trajectory]
    """The trials that ended, in their order."""
    seconds: float
    """Spent acting."""


class TrainingIteration:
    """A round of collecting, then of the updates that this allows; or, with `overlap` or a cluster, of both at once.

    At once, what is learned from is what was stored before, so a policy is a round older; the pace is the same. A round
    in turn that is left and gone on with, in this process or in another, is the round that it would have been; one at
    once ends where it is left.

    With several `ranks` each has such a round with parts of its own, and what is done is agreed on: they collect as
    many vector steps, make the same updates, and stop together. `config` is that of the whole run.
    """

    def __init__(
        self, config: RunConfig, components: TrainingComponents, ranks: DistributedContext = SINGLE_PROCESS
    ) -> None:
        self.config, self.components, self.ranks = config, components, ranks
        self.state = IterationState()
        self.env_steps = 0
        """Environment steps of all ranks when they last stored what they had collected."""
        self._beside = BackgroundThread(computes=not config.ray.address)
        self._stopping = False
        self._agree_on_env_steps()

    @property
    def finished(self) -> bool:
        """Whether nothing is left to collect and to learn in the whole run; all ranks ask together."""
        return self.state.phase == "start" and not self._vector_steps() and not self._updates_due()

    def run(self, progress: ProgressBar, stopped: ShouldStop) -> float:
        """To the end of the round (`state.phase` is then "done") or until `stopped`; the seconds that it took.

        It is enough that one rank is `stopped`.
        """
        if self.state.phase == "done":
            return 0.0
        parts, self._stopping = self.components, False
        began, env_steps, updates = time.monotonic(), self.env_steps, parts.learner.num_updates
        if self.state.phase == "start":
            self.state = IterationState(phase="collect", vector_steps_left=self._vector_steps())
        at_once = self.config.async_collection or bool(self.config.ray.address)
        if at_once and self.ranks.any_rank(self.state.vector_steps_left > 0):
            self._run_async(progress, stopped)
        else:
            self._run_sequential(progress, stopped)
        seconds = time.monotonic() - began
        self.state.metrics |= {
            **_means(self.state.update_metrics),
            ENV_STEPS_PER_SECOND: (self.env_steps - env_steps) / seconds,
            UPDATES_PER_SECOND: (parts.learner.num_updates - updates) / seconds,
        }
        return seconds

    def reset(self) -> None:
        """Let the next round begin where this one is done."""
        self.state = IterationState()

    def close(self) -> None:
        """End the second thread."""
        self._beside.close()

    def state_dict(self) -> State:
        """Where the round stands; see `Resumable`."""
        measured = {key: torch.stack(values).cpu() for key, values in self.state.update_metrics.items()}
        return {**vars(self.state), "metrics": dict(self.state.metrics), "update_metrics": measured}

    def load_state_dict(self, state: State) -> None:
        """Go on where `state_dict` was taken, all that was collected being stored."""
        measured = {key: list(values) for key, values in state["update_metrics"].items()}
        self.state = IterationState(**{**state, "update_metrics": measured})
        self._agree_on_env_steps()

    def _run_sequential(self, progress: ProgressBar, stopped: ShouldStop) -> None:
        if self.state.phase == "collect":
            self._refresh()
            self._store(self._collect(stopped))
            if not self.ranks.any_rank(self.state.vector_steps_left > 0):
                self.state.phase = "update"
        if self.state.phase == "update":
            self._update(progress, stopped)
            if not self._updates_due():
                self.state.phase = "done"

    def _run_async(self, progress: ProgressBar, stopped: ShouldStop) -> None:
        self._refresh()
        stopping = self._beside.run(self._collect, lambda: self._stopping or stopped())
        with stopping as (collecting, stopped_or_failed):
            self._update(progress, stopped_or_failed)
        self._store(collecting.result())
        self.state.phase, self.state.vector_steps_left = "done", 0

    def _refresh(self) -> None:
        learner = self.components.learner
        self.components.policy.load_weights(learner.agent, version=learner.num_updates)

    def _collect(self, stopped: ShouldStop) -> CollectedTrials:
        """The vector steps that are left."""
        began, parts = time.monotonic(), self.components
        trajectories: list[Trajectory] = []
        while self.state.vector_steps_left and not stopped():
            finished = parts.collect_step(deterministic=self.config.deterministic_actions)
            if finished is None:  # collectors elsewhere are still at it
                continue
            trajectories += [trajectory for _, trajectory in finished]
            self.state.vector_steps_left -= 1
        return CollectedTrials(trajectories, time.monotonic() - began)

    def _store(self, collected: CollectedTrials) -> None:
        """Put what was collected where the next updates find it."""
        parts = self.components
        parts.store.extend(collected.trajectories)
        for trials in self.ranks.gather_object([summarize_trial(trajectory) for trajectory in collected.trajectories]):
            parts.statistics.extend(trials)
        self._agree_on_env_steps()
        self.state.metrics |= {
            **parts.statistics.metrics(),
            **parts.collector.metrics(),
            **self._summed(
                {
                    **parts.collector.counts(),
                    "replay/trajectories": float(len(parts.store)),
                    "replay/num_corrupted": float(parts.store.num_corrupted),
                }
            ),
            "time/collect_seconds": collected.seconds,
            **self._age(),
        }

    def _update(self, progress: ProgressBar, stopped: ShouldStop) -> None:
        """The updates that are due."""
        parts, learner = self.components, self.components.learner
        began, waited = time.monotonic(), parts.sampler.wait_seconds
        for batch in parts.sampler.iter_batches(0 if self._is_agreed(stopped) else self._updates_due()):
            self._note(learner.update(batch))
            progress.update(env_steps=self.env_steps, updates=learner.num_updates)
            if self._is_agreed(stopped):
                break
        learner.raise_if_diverged()
        seconds = time.monotonic() - began
        self.state.metrics |= {
            "optim/nonfinite_updates": float(learner.num_nonfinite),
            "time/update_seconds": seconds,
            "time/learner_wait_fraction": (parts.sampler.wait_seconds - waited) / seconds,
            **parts.sampler.goal_statistics.metrics(),
            **value_metrics_by_gamma(learner.agent, learner.config.td.reward_scale),
        }

    def _age(self) -> dict[str, float]:
        """How many updates ago the policy acted that collected the stored trajectory in the middle."""
        ids = self.components.store.ids()
        if not ids:
            return {}
        try:
            middle = self.components.store.get(ids[len(ids) // 2], lazy=True)
        except (CorruptedRecordError, KeyError):
            return {}
        return {"replay/median_age_updates": float(self.components.learner.num_updates - middle.policy_version)}

    def _is_agreed(self, stopped: ShouldStop) -> bool:
        self._stopping = self.ranks.any_rank(stopped())
        return self._stopping

    def _agree_on_env_steps(self) -> None:
        collector = self.components.collector
        self.env_steps = self.ranks.all_reduce_sum(collector.env_steps)
        collector.remote_env_steps = self.env_steps - collector.env_steps

    def _summed(self, values: dict[str, float]) -> dict[str, float]:
        """On the first rank the sums of all ranks' values; a rank may lack some."""
        sums: dict[str, float] = {}
        for of_rank in self.ranks.gather_object(values):
            sums |= {key: sums.get(key, 0.0) + value for key, value in of_rank.items()}
        return sums

    def _note(self, measured: Mapping[str, Tensor]) -> None:
        for key, value in measured.items():
            self.state.update_metrics.setdefault(key, []).append(value)

    def _vector_steps(self) -> int:
        """Of a round that begins now."""
        config = self.config
        steps = min(config.resolved_env_steps_per_iteration, config.env_steps - self.env_steps)
        return max(0, -(-steps // config.num_envs))

    def _updates_due(self) -> int:
        """Updates that what is stored allows: the same on all ranks, which ask together."""
        parts = self.components
        if self.ranks.any_rank(not parts.sampler.is_ready):
            return 0
        return self.config.updates_due(env_steps=self.env_steps, updates=parts.learner.num_updates)


def _means(measured: Mapping[str, list[Tensor]]) -> dict[str, float]:
    return {key: float(torch.stack(values).mean()) for key, values in measured.items()}
