"""`GoalEnvConfig`: what the configs of tasks with instructions have in common."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from yamame.environments.config import EnvConfig
from yamame.records.errors import UserError
from yamame.records.limits import check_range


@dataclass(frozen=True, kw_only=True)
class GoalEnvConfig(EnvConfig):
    """A task whose agents follow instructions: sequences of sub-goals."""

    max_goals: int
    """Sub-goals of the longest instruction; 1: the ablation "w/o multi-goal"."""
    hide_future_goals: bool = False
    """Show no sub-goal after the active one: the ablation "w/o full instruction"."""

    def __post_init__(self) -> None:
        check_range(self, "max_goals", ge=1)

    def with_instruction(self, text: str) -> "GoalEnvConfig":
        """The task with this instruction in every trial. Raises `UserError` where it cannot be had."""
        raise UserError(f"instructions belong to the tasks that {self.task_name} draws: leave --instruction out")

    def goal_text(self, goal: Float32[np.ndarray, "goal"]) -> str:
        """A sub-goal for people to read."""
        return "(" + ", ".join(f"{number:g}" for number in goal) + ")"


def apply_instruction(env: EnvConfig, instruction: str) -> EnvConfig:
    """The task with this instruction in every trial, as it is if that is empty. Raises `UserError` as above."""
    if not instruction:
        return env
    if not isinstance(env, GoalEnvConfig):
        raise UserError(f"{env.task_name} has no instructions: leave --instruction out")
    return env.with_instruction(instruction)
