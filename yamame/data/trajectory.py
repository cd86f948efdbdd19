"""`Trajectory`: one trial of one environment, as it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float32, Shaped

from yamame.data.goals import Goals

Observation = Mapping[str, Shaped[np.ndarray, "..."]]
"""Leaf name -> array. A bare observation is one leaf called `observation`; nested ones are joined by `/`."""


@runtime_checkable
class LazyArray(Protocol):
    """An array over time that is decompressed on access."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """Data type of the elements."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, compressed."""
        ...

    def read(self, begin: int, end: int) -> Shaped[np.ndarray, "rows ..."]:
        """Return rows `begin` to `end` (exclusive), read-only."""
        ...


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """T transitions of one trial and the T + 1 observations around them, time first.

    Transition t takes `observation[t]` and `action[t]` to `reward[t]`, `terminated[t]`, `truncated[t]` and
    `observation[t + 1]`. The previous action and reward, the reset flag and the time that the network sees are derived
    when a batch is packed.

    `terminated` and `truncated` refer to the *trial*. The end of an attempt within it (a soft reset) appears only as
    `episode_start[t + 1]`, and `observation[t + 1]` is then the first of the next attempt. Actions are integers `[T]`
    (one choice) or `[T, C]` (C choices), or float32 `[T, A]` in [-1, 1].
    """

    reward: Float32[np.ndarray, "T"]
    action: Shaped[np.ndarray, "T ..."]
    terminated: Bool[np.ndarray, "T"]
    truncated: Bool[np.ndarray, "T"]
    episode_start: Bool[np.ndarray, "T+1"]
    observation: Mapping[str, Shaped[np.ndarray, "T+1 ..."]]
    success: Bool[np.ndarray, "T"] | None = None
    """`info["success"]` of every transition; None if the task has no success signal."""
    goals: Goals | None = None
    """None if the task has no instructions."""
    task: str = ""
    horizon: int
    """Maximum number of transitions of a trial of this task: the unit of the time input."""
    policy_version: int = 0
    """Number of updates of the weights that chose the first action."""
    noise_scale: float = 0.0
    """Scale of the exploration noise of this trial (the multiplier u of the schedule; 0: none)."""
    extras: Mapping[str, Shaped[np.ndarray, "T ..."]] = field(default_factory=dict)
    """What the policy records of its own actions for learning (log-probability, value, ...), by name."""

    lazy_observation: Mapping[str, LazyArray] = field(default_factory=dict)
    """Further leaves of the observation, decompressed on access."""

    def __len__(self) -> int:
        return len(self.reward)

    def read_observation(self, name: str, begin: int, end: int) -> Shaped[np.ndarray, "rows ..."]:
        """Return observations `begin` to `end` (exclusive) of a leaf, lazy or not."""
        leaf = self.lazy_observation.get(name)
        return self.observation[name][begin:end] if leaf is None else leaf.read(begin, end)

    def return_per_attempt(self) -> Float32[np.ndarray, "attempts"]:
        """Sum of rewards of each attempt; the last one may be unfinished."""
        starts = np.flatnonzero(self.episode_start[:-1])
        return np.add.reduceat(self.reward, starts).astype(np.float32)

    def success_per_attempt(self) -> Bool[np.ndarray, "attempts"] | None:
        """Whether any step of each attempt signaled success; None if the task has no success signal."""
        if self.success is None:
            return None
        return np.logical_or.reduceat(self.success, np.flatnonzero(self.episode_start[:-1]))
