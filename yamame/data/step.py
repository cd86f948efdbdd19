"""Records that pass between E environments and the policy at one timestep (NumPy, environments first)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64, Shaped

from yamame.types import Fault


@dataclass(frozen=True, kw_only=True)
class PolicyInput:
    """Input of the policy at one timestep of E environments, each at its own time.

    `time == 0` starts a trial: the policy resets the memory of that environment, and ignores `previous_action` and
    `previous_reward` there. Actions are integers `[E]` (one choice) or `[E, C]` (C choices), or float32 `[E, A]`.
    """

    time: Int64[np.ndarray, "E"]
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]]
    previous_action: Shaped[np.ndarray, "E ..."]
    previous_reward: Float32[np.ndarray, "E"]
    episode_start: Bool[np.ndarray, "E"]


@dataclass(frozen=True, kw_only=True)
class GoalStep:
    """Instructions of the current episodes of E environments, and the goals that one transition achieved."""

    instruction: Float32[np.ndarray, "E max_goals goal"]
    """Observation leaf `DESIRED_KEY`."""
    achieved: Float32[np.ndarray, "E m goal"]
    """Observation leaf `ACHIEVED_KEY`."""
    tolerance: float
    hide_future_goals: bool


@dataclass(frozen=True, kw_only=True)
class EpisodeStep:
    """Result of one action in each of E environments. `observation` follows the action; it is never that of a reset.

    `is_transition` is false where this call only returned the first observation of the next episode (vector
    environments that reset one call late); reward is undefined there, and `terminated` and `truncated` are false.
    `failed` is true in some of those rows: the environment failed in this step or the preceding reset and was restarted
    on a new task. None: no environment failed.
    """

    reward: Float32[np.ndarray, "E"]
    terminated: Bool[np.ndarray, "E"]
    truncated: Bool[np.ndarray, "E"]
    is_transition: Bool[np.ndarray, "E"]
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]]
    success: Bool[np.ndarray, "E"] | None = None
    goals: GoalStep | None = None
    """None if the task has no instructions."""
    failed: Bool[np.ndarray, "E"] | None = None
    faults: Sequence[Fault] = ()
    """Faults since the last step; a fault of several environments appears once."""


@dataclass(frozen=True, kw_only=True)
class TrialStep:
    """Result of one action in each of E trials.

    `final_observation` follows the action (if the trial ended, the last token is bootstrapped from it); `observation`
    is the next input of the policy: the same, or the first of the next attempt or trial. `terminated` and `truncated`
    refer to the trial; `episode_start` is true where `observation` is the first of an attempt. In `failed` rows, where
    `is_transition` is false, the trial ended before this step, and `observation` starts another one.
    """

    reward: Float32[np.ndarray, "E"]
    terminated: Bool[np.ndarray, "E"]
    truncated: Bool[np.ndarray, "E"]
    episode_start: Bool[np.ndarray, "E"]
    is_transition: Bool[np.ndarray, "E"]
    final_observation: Mapping[str, Shaped[np.ndarray, "E ..."]]
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]]
    success: Bool[np.ndarray, "E"] | None = None
    goals: GoalStep | None = None
    """None if the task has no instructions."""
    failed: Bool[np.ndarray, "E"] | None = None
    faults: Sequence[Fault] = ()
    """Faults since the last step; a fault of several environments appears once."""
