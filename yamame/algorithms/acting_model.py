"""`ActingModel`: what a policy with a timestep encoder, a trajectory encoder and an actor copies of a model."""

from abc import ABC, abstractmethod
from typing import Any

from torch import nn

ACTING_MODULES = ("timestep_encoder", "trajectory_encoder", "actor")
"""Modules that a policy needs."""


class ActingModel(nn.Module, ABC):
    """Networks of an algorithm, in which these three modules act."""

    horizon: int
    """Maximum number of steps of a trial."""

    @abstractmethod
    def acting_module(self, name: str) -> Any:
        """Return one of `ACTING_MODULES`, with the weights that act."""
