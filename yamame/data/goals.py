"""Goals: what a trial was asked to do, what it happened to achieve, and all that follows from these two.

Rewards, the active sub-goal and what the agent is shown are computed here and nowhere else, so that live episodes and
relabeled trajectories cannot disagree.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int, Shaped

ACHIEVED_KEY = "achieved_goal"
"""The observation leaf by which environments announce goals: `[m, goal]`, rows of `NO_GOAL` unused; or `[goal]`."""
DESIRED_KEY = "desired_goal"
"""The leaf by which they announce the instruction: `[slots, goal]`, rows of `NO_GOAL` behind the last sub-goal."""
INSTRUCTION_KEY = "instruction"
"""The leaf that the agent sees in place of these two: `[slots, goal]`, as `displays` says."""
NO_GOAL = -1.0
COMPLETED = -3.0
TOLERANCE = 1e-3
"""Difference in any coordinate up to which a goal counts as reached."""


@dataclass(frozen=True, kw_only=True)
class Goals:
    """What a trial was asked to do and what it happened to achieve (sparse: M achievements over T steps).

    `achieved_step[m]` is the transition t (0-based) during which `achieved_goal[m]` was reached; steps never fall.
    """

    instruction: Shaped[np.ndarray, "k goal"]
    achieved_step: Int[np.ndarray, "M"]
    achieved_goal: Shaped[np.ndarray, "M goal"]
    tolerance: float = TOLERANCE
    """Difference in any coordinate up to which a goal counts as reached."""
    hide_future_goals: bool = False
    """Whether sub-goals after the active one are kept from the agent (the paper's ablation "w/o full instruction")."""

    @staticmethod
    def from_steps(
        instruction: Float32[np.ndarray, "slots goal"],
        achieved: Float32[np.ndarray, "T m goal"],
        *,
        tolerance: float,
        hide_future_goals: bool,
    ) -> "Goals":
        """From the two leaves that the environment announced, `achieved` after each of T transitions."""
        step, row = np.nonzero(is_goal(achieved))
        return Goals(
            instruction=instruction[: num_sub_goals(instruction)].copy(),
            achieved_step=step,
            achieved_goal=achieved[step, row],
            tolerance=tolerance,
            hide_future_goals=hide_future_goals,
        )

    def completion_steps(self) -> list[int]:
        """The transitions that completed sub-goal 1, 2, ... as far as they were completed.

        Each is the first transition after that of the sub-goal before at which it was reached: at most one a step.
        """
        if not len(self.achieved_step):
            return []
        hits = is_reached(self.achieved_goal[:, None], self.instruction, self.tolerance)
        completed: list[int] = []
        begin = 0
        for sub_goal in range(len(self.instruction)):
            later = hits[begin:, sub_goal]
            first = begin + int(later.argmax()) if len(later) else len(hits)
            if first == len(hits) or not hits[first, sub_goal]:
                break
            completed.append(int(self.achieved_step[first]))
            begin = int(np.searchsorted(self.achieved_step, completed[-1], side="right"))
        return completed


def is_goal(goal: Shaped[np.ndarray, "*some goal"]) -> Bool[np.ndarray, "*some"]:
    """False for rows of `NO_GOAL`."""
    return (goal != NO_GOAL).any(axis=-1)


def num_sub_goals(instruction: Shaped[np.ndarray, "*some slots goal"]) -> Int[np.ndarray, "*some"]:
    """k: the rows of announced instructions that are sub-goals."""
    return np.asarray(is_goal(instruction).sum(axis=-1))


def is_reached(
    achieved: Shaped[np.ndarray, "*some goal"], sub_goal: Shaped[np.ndarray, "*other goal"], tolerance: float
) -> Bool[np.ndarray, "*broadcast"]:
    """Whether achieved goals are the sub-goals, in every coordinate."""
    return (np.abs(achieved - sub_goal) <= tolerance).all(axis=-1)


def instruction_observations(
    instruction: Shaped[np.ndarray, "k goal"], *, slots: int, hide_future_goals: bool
) -> Float32[np.ndarray, "k+1 {slots} goal"]:
    """What the agent is shown when 0, 1, ... k sub-goals are completed.

    Completed sub-goals are rows of `COMPLETED`, the active one and those after it are shown as they are, and unused
    slots in front are rows of `NO_GOAL`. With `hide_future_goals` what comes after the active one is left out.

    Differs from the authors' code: at the observation by which a sub-goal was completed it is already shown as such,
    instead of one step later.
    """
    k, goal = instruction.shape
    shown = np.full((k + 1, slots, goal), NO_GOAL, np.float32)
    for completed in range(k + 1):
        visible = min(completed + 1, k) if hide_future_goals else k
        rows = shown[completed, slots - visible :]
        rows[:] = instruction[:visible]
        rows[:completed] = COMPLETED
    return shown
