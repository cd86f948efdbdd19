"""One round of a run, which it makes again and again: collect, store, learn. It can be left anywhere and taken up."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from yamame.records.resumable import State
from yamame.records.trajectory import Trajectory
from yamame.replay.codec import DamagedRecordError
from yamame.run.build import Parts
from yamame.run.config import RunConfig
from yamame.run.metrics import ENV_STEPS_PER_SECOND, UPDATES_PER_SECOND
from yamame.run.overlap import Beside, Stopped
from yamame.run.progress import Progress

Phase = Literal["begin", "collect", "learn", "done"]


@dataclass
class RoundState:
    """Where a round stands."""

    phase: Phase = "begin"
    vector_steps_left: int = 0
    """Steps of all environments that are still to be collected."""
    measured: dict[str, list[Tensor]] = field(default_factory=dict)
    """What the updates of the round measured, by key."""
    values: dict[str, float] = field(default_factory=dict)
    """What else there is to log."""


@dataclass(frozen=True)
class Collected:
    """What acting gave."""

    trajectories: list[Trajectory]
    """The trials that ended, in their order."""
    seconds: float
    """Spent acting."""


class Round:
    """A round of collecting, then of the updates that this allows; or, with `overlap` or a cluster, of both at once.

    At once, what is learned from is what was stored before, so a policy is a round older; the pace is the same. A round
    in turn that is left and gone on with, in this process or in another, is the round that it would have been; one at
    once ends where it is left.
    """

    def __init__(self, config: RunConfig, parts: Parts) -> None:
        self.config, self.parts = config, parts
        self.state = RoundState()
        self._beside = Beside(computes=not config.cluster)
        self._env_steps_stored = parts.collector.env_steps

    @property
    def finished(self) -> bool:
        """Whether nothing is left to collect and to learn in the whole run."""
        return self.state.phase == "begin" and not self._vector_steps() and not self._updates_due

    def go_on(self, progress: Progress, stopped: Stopped) -> float:
        """To the end of the round (`state.phase` is then "done") or until `stopped`; the seconds that it took."""
        if self.state.phase == "done":
            return 0.0
        parts = self.parts
        began, env_steps, updates = time.monotonic(), parts.collector.env_steps, parts.learner.updates
        if self.state.phase == "begin":
            self.state = RoundState(phase="collect", vector_steps_left=self._vector_steps())
        if (self.config.overlap or self.config.cluster) and self.state.vector_steps_left:
            self._both(progress, stopped)
        else:
            self._in_turn(progress, stopped)
        seconds = time.monotonic() - began
        self.state.values |= {
            **_means(self.state.measured),
            ENV_STEPS_PER_SECOND: (parts.collector.env_steps - env_steps) / seconds,
            UPDATES_PER_SECOND: (parts.learner.updates - updates) / seconds,
        }
        return seconds

    def next(self) -> None:
        """Let the next round begin where this one is done."""
        self.state = RoundState()

    def close(self) -> None:
        """End the second thread."""
        self._beside.close()

    def state_dict(self) -> State:
        """Where the round stands; see `Resumable`."""
        measured = {key: torch.stack(values).cpu() for key, values in self.state.measured.items()}
        return {**vars(self.state), "values": dict(self.state.values), "measured": measured}

    def load_state_dict(self, state: State) -> None:
        """Go on where `state_dict` was taken, all that was collected being stored."""
        measured = {key: list(values) for key, values in state["measured"].items()}
        self.state = RoundState(**{**state, "measured": measured})
        self._env_steps_stored = self.parts.collector.env_steps

    def _in_turn(self, progress: Progress, stopped: Stopped) -> None:
        if self.state.phase == "collect":
            self._refresh()
            self._store(self._collect(stopped))
            if not self.state.vector_steps_left:
                self.state.phase = "learn"
        if self.state.phase == "learn":
            self._learn(progress, stopped)
            if not self._updates_due:
                self.state.phase = "done"

    def _both(self, progress: Progress, stopped: Stopped) -> None:
        self._refresh()
        with self._beside.running(self._collect, stopped) as (collecting, stopped_or_failed):
            self._learn(progress, stopped_or_failed)
        self._store(collecting.result())
        self.state.phase, self.state.vector_steps_left = "done", 0

    def _refresh(self) -> None:
        learner = self.parts.learner
        self.parts.policy.refresh(learner.agent, version=learner.updates)

    def _collect(self, stopped: Stopped) -> Collected:
        """The vector steps that are left."""
        began, parts = time.monotonic(), self.parts
        trajectories: list[Trajectory] = []
        while self.state.vector_steps_left and not stopped():
            finished = parts.step(deterministic=self.config.deterministic_actions)
            if finished is None:  # collectors elsewhere are still at it
                continue
            trajectories += [trajectory for _, trajectory in finished]
            self.state.vector_steps_left -= 1
        return Collected(trajectories, time.monotonic() - began)

    def _store(self, collected: Collected) -> None:
        """Put what was collected where the next updates find it."""
        parts = self.parts
        parts.store.append_all(collected.trajectories)
        for trajectory in collected.trajectories:
            parts.statistics.add(trajectory)
        self._env_steps_stored = parts.collector.env_steps
        self.state.values |= {
            **parts.statistics.metrics(),
            **parts.collector.metrics(),
            "speed/collect_seconds": collected.seconds,
            "replay/trajectories": float(len(parts.store)),
            "replay/damaged": float(parts.store.damaged),
            **self._age(),
        }

    def _learn(self, progress: Progress, stopped: Stopped) -> None:
        """The updates that are due."""
        parts, learner = self.parts, self.parts.learner
        began, waited = time.monotonic(), parts.sampler.wait_seconds
        for batch in parts.sampler.batches(0 if stopped() else self._updates_due):
            self._note(learner.update(batch))
            progress.update(env_steps=parts.collector.env_steps, updates=learner.updates)
            if stopped():
                break
        learner.check()
        seconds = time.monotonic() - began
        self.state.values |= {
            "loss/skipped_updates": float(learner.skipped),
            "speed/update_seconds": seconds,
            "replay/wait_fraction": (parts.sampler.wait_seconds - waited) / seconds,
            **parts.sampler.goal_statistics.metrics(),
            **learner.values_by_discount(),
        }

    def _age(self) -> dict[str, float]:
        """How many updates ago the policy acted that collected the stored trajectory in the middle."""
        ids = self.parts.store.ids()
        if not ids:
            return {}
        try:
            middle = self.parts.store.read(ids[len(ids) // 2], on_demand=True)
        except (DamagedRecordError, KeyError):
            return {}
        return {"replay/age_updates": float(self.parts.learner.updates - middle.policy_version)}

    def _note(self, measured: Mapping[str, Tensor]) -> None:
        for key, value in measured.items():
            self.state.measured.setdefault(key, []).append(value)

    def _vector_steps(self) -> int:
        """Of a round that begins now."""
        config = self.config
        steps = min(config.round_env_steps, config.env_steps - self.parts.collector.env_steps)
        return max(0, -(-steps // config.num_envs))

    @property
    def _updates_due(self) -> int:
        """Updates that what is stored allows."""
        parts = self.parts
        if not parts.sampler.is_ready:
            return 0
        return self.config.pace.updates_due(env_steps=self._env_steps_stored, updates=parts.learner.updates)


def _means(measured: Mapping[str, list[Tensor]]) -> dict[str, float]:
    return {key: float(torch.stack(values).mean()) for key, values in measured.items()}
