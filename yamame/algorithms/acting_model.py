"""`ActingModel`: what a policy with a timestep encoder, a trajectory encoder and an actor copies of a model."""

from abc import ABC, abstractmethod
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from yamame.data.batch import Batch

ACTING_MODULES = ("timestep_encoder", "trajectory_encoder", "actor")
"""Modules that a policy needs."""


class ActingModel(nn.Module, ABC):
    """Networks of an algorithm, in which these three modules act."""

    horizon: int
    """Maximum number of steps of a trial."""
    actor: Any

    @abstractmethod
    def acting_module(self, name: str) -> Any:
        """Return one of `ACTING_MODULES`, with the weights that act."""

    def actor_of_gamma(self, gamma_index: int, *, averaged: bool = True) -> Any:
        """Return a copy of the actor with the policy of one gamma (-1: the acting one).

        Without `averaged`, with the present weights instead of those that act.
        """
        actor = self.acting_module("actor") if averaged else self.actor
        return actor.for_gamma(gamma_index)


def batch_features(timestep_encoder: Any, batch: Batch) -> Float[Tensor, "N F"]:
    """Return the vector part of a timestep encoder's input for all tokens of a batch, before normalization."""
    features_NF: Tensor = timestep_encoder.features(
        observation=batch.observation,
        previous_action=batch.previous_action,
        previous_reward=batch.previous_reward,
        episode_start=batch.episode_start,
        time=batch.time,
        horizon=batch.horizon,
    )
    return features_NF
