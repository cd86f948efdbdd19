"""`Recording`: one trial of a run's agent, as it looked and as the agent saw it.

T transitions, T + 1 moments: at moment t action t is chosen; moment T is where the last one led.
G discounts (the acting one stands last), A actions, L layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from yamame.model.trajectory_encoders.explanation import AttentionWeights
from yamame.records.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True)
class ActionDistributions:
    """What the policy of the acting discount might do at every moment."""

    choices: tuple[int, ...] = ()
    """How many there are of each component of a discrete action, which lie side by side in A; none if continuous."""
    probability_TA: Float32[np.ndarray, "moments A"] | None = None
    """Of each choice, as it acts: clipped, and 0 where a mask forbids it. None for continuous actions."""
    mean_TA: Float32[np.ndarray, "moments A"] | None = None
    """Of the Gaussian whose tanh is a continuous action. None for discrete ones."""
    std_TA: Float32[np.ndarray, "moments A"] | None = None
    """Its standard deviation."""


@dataclass(frozen=True, kw_only=True)
class AgentAnalysis:
    """What the agent made of a trial, by one forward over all of it."""

    gammas_G: Float32[np.ndarray, "G"]
    q_TG: Float32[np.ndarray, "T G"]
    """Value of the action taken, the mean over the critics, in units of the task's reward."""
    value_TG: Float32[np.ndarray, "moments G"]
    """Value of each discount's own policy: the expectation over a discrete action, or that of the most likely one."""
    action_distributions: ActionDistributions
    attention: AttentionWeights | None
    """None where the sequence model has none. Its tokens are moments."""
    max_abs_LPT: Float32[np.ndarray, "L P moments"] | None
    """The largest absolute number at each of `PLACES` of each layer (paper, figure 14); None like `attention`."""


@dataclass(frozen=True, kw_only=True)
class TrialRecording:
    """One trial as a checkpoint of a run played it."""

    task: str
    checkpoint: str
    """Name of its folder."""
    updates: int
    """Of the checkpoint."""
    seed: int
    instruction: str
    """What the agent was told, if it was not what the task drew."""
    deterministic: bool
    """Whether it took the most likely action, and not a sample."""
    truncated: bool
    """Whether the trial would have gone on, but is longer than may be recorded."""
    trajectory: Trajectory
    """What happened: observations of T + 1 moments, T actions, rewards, successes, goals."""
    frames: tuple[bytes | None, ...]
    """A PNG of each of the T + 1 moments; None where the environment has no pictures."""
    attempt_end_frames: Mapping[int, bytes]
    """Transition that ended an attempt after which another began -> a PNG of where it had led."""
    observation_texts: tuple[str, ...]
    """What the agent saw at each moment, in a few words."""
    action_names: tuple[str, ...]
    """Of the A choices, or dimensions."""
    sub_goals: tuple[str, ...]
    """The instruction for people to read; empty where there is none."""
    goals_completed: Int64[np.ndarray, "moments"]
    """Sub-goals completed at each moment."""
    insight: AgentAnalysis

    def __len__(self) -> int:
        """T."""
        return len(self.trajectory)

    @property
    def attempt(self) -> Int64[np.ndarray, "moments"]:
        """Number of the attempt that each moment belongs to, from 1."""
        return np.cumsum(self.trajectory.episode_start)
