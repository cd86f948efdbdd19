"""`TaskSpec`: what must be known of a task to tell whether data is of it."""

from dataclasses import dataclass
from typing import Any

from gymnasium import spaces

from yamame.environments.adapters.action_masks import strip_action_mask
from yamame.environments.adapters.actions import policy_action_space
from yamame.records.action_spaces import NativeActionSpace
from yamame.replay.form import TrajectorySchema


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task as its environments announce it."""

    observation_space: spaces.Space[Any]
    """What the agent sees; an action mask included, where that is a leaf."""
    action_space: NativeActionSpace
    """As the environment declares it."""
    horizon: int
    """Largest number of transitions of a trial."""
    action_mask_key: str
    """Name of the action mask: of a leaf of the observation, or of an entry of info."""

    @property
    def schema(self) -> TrajectorySchema:
        """What the task's trajectories look like."""
        return TrajectorySchema.from_spaces(
            strip_action_mask(self.observation_space, self.action_mask_key), policy_action_space(self.action_space)
        )
