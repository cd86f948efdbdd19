"""`GoalEnvironmentConfig`: what the configs of tasks with instructions have in common."""

from dataclasses import dataclass

from yamame.environments.config import EnvironmentConfig
from yamame.records.limits import check_limits


@dataclass(frozen=True, kw_only=True)
class GoalEnvironmentConfig(EnvironmentConfig):
    """A task whose agents follow instructions: sequences of sub-goals."""

    max_goals: int
    """Sub-goals of the longest instruction; 1: the ablation "w/o multi-goal"."""
    hide_plan: bool = False
    """Show no sub-goal after the active one: the ablation "w/o full instruction"."""

    def __post_init__(self) -> None:
        check_limits(self, "max_goals", at_least=1)
