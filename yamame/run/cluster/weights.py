"""The part of an agent's weights that acting needs."""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Shaped

from yamame.model.agent import Agent

_ACTING = ("timestep_encoder.", "trajectory_encoder.", "actor.")


def actor_state(agent: Agent) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Copies of encoders and actor, by name; neither critics nor slow copies."""
    return {
        name: tensor.detach().cpu().numpy().copy()
        for name, tensor in agent.state_dict().items()
        if name.startswith(_ACTING)
    }


def load_actor_state(agent: Agent, tensors: Mapping[str, Shaped[np.ndarray, "..."]]) -> None:
    """Let an agent act as the one whose `actor_state` these are. Raises `ValueError` for another network's."""
    expected = {name for name in agent.state_dict() if name.startswith(_ACTING)}
    if expected != set(tensors):
        raise ValueError(f"not the weights of this network: {sorted(expected ^ set(tensors))}")
    try:
        agent.load_state_dict({name: torch.tensor(value) for name, value in tensors.items()}, strict=False)
    except RuntimeError as problem:
        raise ValueError(f"not the weights of this network: {problem}") from problem
