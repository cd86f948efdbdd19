"""Records exchanged between E environments and the policy at one time step (NumPy, environments first)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64, Shaped

from yamame.types import Fault

MAX_ABS_REWARD = 1e15
"""Rewards of this size and larger are refused: sums of squares of returns may be infinite in float32."""


@dataclass(frozen=True, kw_only=True)
class PolicyInput:
    """Everything the policy sees of one timestep of E environments, which may all be at different times.

    A trial starts where `time == 0`: the policy clears the memory of that environment, and `previous_action` and
    `previous_reward` are ignored. Actions are integers `[E]` (one choice) or `[E, C]` (several choices), or float32
    `[E, A]` (continuous).
    """

    time: Int64[np.ndarray, "E"]
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]]
    previous_action: Shaped[np.ndarray, "E ..."]
    previous_reward: Float32[np.ndarray, "E"]
    episode_start: Bool[np.ndarray, "E"]
    is_repeated: Bool[np.ndarray, "E"] | None = None
    """Where the environment has made no transition since the input before, so that this is the same timestep, perhaps
    with another observation; None: nowhere."""


@dataclass(frozen=True, kw_only=True)
class GoalStep:
    """Instructions of the current episodes of E environments, and the goals that one transition achieved."""

    instruction: Float32[np.ndarray, "E slots goal"]
    """Sub-goals in order, as the environments return them under `DESIRED_KEY`."""
    achieved: Float32[np.ndarray, "E m goal"]
    """Goals achieved by this transition, as the environments return them under `ACHIEVED_KEY`."""
    tolerance: float
    """Maximum difference, in each number of a goal, at which it counts as reached."""
    hide_future_goals: bool
    """Whether the observation shows no sub-goal after the active one."""


@dataclass(frozen=True, kw_only=True)
class VectorStep:
    """Result of stepping E environments with one action each, at one of two levels.

    Episodes (`EpisodeVectorEnv`): environments never reset on their own, so `observation` and `final_observation` are
    the same. Trials (`TrialVectorEnv`): the next attempt or trial has already started where one ended.
    """

    reward: Float[np.ndarray, "E"]
    """Float64, if the environments return it. Trajectories and the policy have float32."""
    terminated: Bool[np.ndarray, "E"]
    """Whether the episode (trial level: the trial) terminated."""
    truncated: Bool[np.ndarray, "E"]
    """Whether the episode (trial level: the trial) was truncated."""
    is_transition: Bool[np.ndarray, "E"]
    """False where this call only delivered the first observation of the next episode, because the environment resets
    one call late or has failed. Reward and flags are meaningless there; `terminated` and `truncated` are False."""
    final_observation: Mapping[str, Shaped[np.ndarray, "E ..."]]
    """Observation that the action led to, never that of a reset; bootstrapped from where a trial was truncated."""
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]]
    """Observation to act on next. Trial level: where an attempt or trial ended, the first observation of the next."""
    episode_start: Bool[np.ndarray, "E"]
    """Whether `observation` is the first of an episode. Episode level: exactly where `is_transition` is False."""
    success: Bool[np.ndarray, "E"] | None = None
    """Whether this transition solved the task; None if the environments do not report success."""
    goals: GoalStep | None = None
    """None if the task has no instructions."""
    failed: Bool[np.ndarray, "E"] | None = None
    """Where the environment failed, in this step or the reset before it, and was restarted on a new task: its episode
    and trial are lost, and `is_transition` is False. None: no environment failed."""
    faults: Sequence[Fault] = ()
    """Failures since the last step; one that failed several environments is listed once."""
