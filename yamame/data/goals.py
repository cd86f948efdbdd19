"""Instructions and achieved goals of a trial, and the rewards and observations that follow from them.

Live episodes and relabeled trajectories share this code, so that they cannot disagree.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int, Shaped

ACHIEVED_KEY = "achieved_goal"
"""Observation leaf with achieved goals: `[m, goal]`, where rows of `NO_GOAL` are unused; or `[goal]`."""
DESIRED_KEY = "desired_goal"
"""Observation leaf with the instruction: `[max_goals, goal]`, with rows of `NO_GOAL` after the last sub-goal."""
INSTRUCTION_KEY = "instruction"
"""Leaf that the agent observes in place of these two: `[max_goals, goal]`, see `instruction_observations`."""
NO_GOAL = -1.0
COMPLETED = -3.0
TOLERANCE = 1e-3
"""Maximum difference in any coordinate at which a goal counts as achieved."""


@dataclass(frozen=True, kw_only=True)
class Goals:
    """Instruction of a trial and the goals that it achieved (sparse: M achievements over T steps).

    `achieved_step[m]` is the transition t (0-based) that achieved `achieved_goal[m]`; steps are in ascending order.
    """

    instruction: Shaped[np.ndarray, "k goal"]
    achieved_step: Int[np.ndarray, "M"]
    achieved_goal: Shaped[np.ndarray, "M goal"]
    tolerance: float = TOLERANCE
    """Maximum difference in any coordinate at which a goal counts as achieved."""
    hide_future_goals: bool = False
    """Hide sub-goals after the active one from the agent (the paper's ablation "w/o full instruction")."""

    @staticmethod
    def from_steps(
        instruction: Float32[np.ndarray, "max_goals goal"],
        achieved: Float32[np.ndarray, "T m goal"],
        *,
        tolerance: float,
        hide_future_goals: bool,
    ) -> "Goals":
        """Make goals from the two leaves of the environment, `achieved` after each of T transitions."""
        step, row = np.nonzero(is_goal(achieved))
        return Goals(
            instruction=instruction[: num_sub_goals(instruction)].copy(),
            achieved_step=step,
            achieved_goal=achieved[step, row],
            tolerance=tolerance,
            hide_future_goals=hide_future_goals,
        )

    def completion_steps(self) -> list[int]:
        """Transitions that completed sub-goals 1, 2, ..., as far as they were completed.

        A sub-goal is completed by the first transition after its predecessor's that achieves it: at most one a step.
        """
        if not len(self.achieved_step):
            return []
        hits = is_reached(self.achieved_goal[:, None], self.instruction, self.tolerance)
        completed: list[int] = []
        start = 0
        for sub_goal in range(len(self.instruction)):
            later = hits[start:, sub_goal]
            first = start + int(later.argmax()) if len(later) else len(hits)
            if first == len(hits) or not hits[first, sub_goal]:
                break
            completed.append(int(self.achieved_step[first]))
            start = int(np.searchsorted(self.achieved_step, completed[-1], side="right"))
        return completed


def is_goal(goal: Shaped[np.ndarray, "*some goal"]) -> Bool[np.ndarray, "*some"]:
    """Return False for rows of `NO_GOAL`."""
    return (goal != NO_GOAL).any(axis=-1)


def num_sub_goals(instruction: Shaped[np.ndarray, "*some max_goals goal"]) -> Int[np.ndarray, "*some"]:
    """k: number of rows of instructions that are sub-goals."""
    return np.asarray(is_goal(instruction).sum(axis=-1))


def is_reached(
    achieved: Shaped[np.ndarray, "*some goal"], sub_goal: Shaped[np.ndarray, "*other goal"], tolerance: float
) -> Bool[np.ndarray, "*broadcast"]:
    """Whether achieved goals equal the sub-goals within the tolerance, in every coordinate."""
    return (np.abs(achieved - sub_goal) <= tolerance).all(axis=-1)


def instruction_observations(
    instruction: Shaped[np.ndarray, "k goal"], *, slots: int, hide_future_goals: bool
) -> Float32[np.ndarray, "k+1 {slots} goal"]:
    """Return what the agent observes of an instruction after 0, 1, ... k completed sub-goals.

    Completed sub-goals are rows of `COMPLETED`; the active one and those after it appear as they are, and unused rows
    in front are `NO_GOAL`. With `hide_future_goals`, sub-goals after the active one are left out.

    Differs from the paper: in the authors' code a completed sub-goal appears as such one step later.
    """
    k, goal = instruction.shape
    shown = np.full((k + 1, slots, goal), NO_GOAL, np.float32)
    for completed in range(k + 1):
        visible = min(completed + 1, k) if hide_future_goals else k
        rows = shown[completed, slots - visible :]
        rows[:] = instruction[:visible]
        rows[:completed] = COMPLETED
    return shown
