"""`PPOValues`: values of the states while a policy acts."""

import numpy as np
import torch
from jaxtyping import Float32
from typing_extensions import override

from yamame.algorithms.analysis import ValueFunction
from yamame.algorithms.base import model_device
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.algorithms.ppo.agent import PPOAgent
from yamame.data.step import PolicyInput
from yamame.nets.torch_defaults import with_torch_defaults


class PPOValues(ValueFunction):
    """Values of E environments, with a memory of their own.

    Args:
        agent: Networks, which are left in evaluation mode.
        num_envs: E.
    """

    def __init__(self, agent: PPOAgent, *, num_envs: int) -> None:
        self.gammas = (agent.gamma,)
        self._agent = agent.eval()
        generator = torch.Generator(model_device(agent))
        self._encoders = NetworkPolicy(agent, num_envs=num_envs, generator=generator, clips=False)

    @with_torch_defaults
    @torch.inference_mode()
    @override
    def step(self, step: PolicyInput) -> Float32[np.ndarray, "E G"]:
        value_E = self._agent.value_of(self._agent.normalized_value(self._encoders.state(step)))
        value_EG: Float32[np.ndarray, "E G"] = value_E[:, None].float().cpu().numpy()
        return value_EG
