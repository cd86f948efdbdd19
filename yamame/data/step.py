"""What passes between E environments and the policy at one instant (numpy, environments first)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int64, Shaped

from yamame.types import Fault


@dataclass(frozen=True, kw_only=True)
class PolicyInput:
    """Everything the policy sees of one timestep of E environments, which may all be at different times.

    `time == 0` begins a trial: the policy forgets what came before in that row, and `previous_action` and
    `previous_reward` there are ignored. Actions are integers `[E]` (one choice) or `[E, C]` (several), or float32
    `[E, A]` (continuous).
    """

    time: Int64[np.ndarray, "E"]
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]]
    previous_action: Shaped[np.ndarray, "E ..."]
    previous_reward: Float32[np.ndarray, "E"]
    episode_start: Bool[np.ndarray, "E"]


@dataclass(frozen=True, kw_only=True)
class GoalStep:
    """What E environments were asked to do in the episodes that they are in, and what one transition achieved."""

    instruction: Float32[np.ndarray, "E slots goal"]
    """As environments announce it (`DESIRED_KEY`)."""
    achieved: Float32[np.ndarray, "E m goal"]
    """As environments announce it (`ACHIEVED_KEY`)."""
    tolerance: float
    hide_future_goals: bool


@dataclass(frozen=True, kw_only=True)
class EpisodeStep:
    """Answer of E environments to one action each. `observation` is what the action led to, never a reset's.

    `live` is False where this call was no transition at all but only delivered the first observation of the next
    episode (vector environments that reset one call late): reward and flags mean nothing there, `terminated` and
    `truncated` are false. `failed` rows are some of those: the environment failed, in this step or in the reset before
    it, and was made anew; the episode that it delivers is on a new task. None: no row has failed.
    """

    reward: Float32[np.ndarray, "E"]
    terminated: Bool[np.ndarray, "E"]
    truncated: Bool[np.ndarray, "E"]
    is_transition: Bool[np.ndarray, "E"]
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]]
    success: Bool[np.ndarray, "E"] | None = None
    goals: GoalStep | None = None
    """None where the task has no instructions."""
    failed: Bool[np.ndarray, "E"] | None = None
    faults: Sequence[Fault] = ()
    """What went wrong since the last step, each fault once, however many rows have failed by it."""


@dataclass(frozen=True, kw_only=True)
class TrialStep:
    """Answer of E trials to one action each.

    `final_observation` is what the action led to (the token that is bootstrapped from where the trial ended);
    `observation` is what the policy sees next: the same, or the first of the next attempt or trial.
    `terminated` and `truncated` are the trial's; `episode_start` marks that `observation` begins an attempt.
    In `failed` rows, which are not `live`, the trial broke off before this step, and `observation` begins another.
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
    """None where the task has no instructions."""
    failed: Bool[np.ndarray, "E"] | None = None
    faults: Sequence[Fault] = ()
    """See `EpisodeStep`."""
