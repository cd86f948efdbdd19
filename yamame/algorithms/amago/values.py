"""`AMAGOValues`: values of the critics while a policy acts."""

import numpy as np
import torch
from jaxtyping import Float32
from typing_extensions import override

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.analysis import policy_values
from yamame.algorithms.analysis import ValueFunction
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.step import PolicyInput
from yamame.nets.torch_defaults import with_torch_defaults


class AMAGOValues(ValueFunction):
    """Values of E environments. They have a memory of their own: critics see states of encoders without averages.

    Args:
        agent: Networks, which are left in evaluation mode.
        num_envs: E.
        reward_scale: That of the learner.
    """

    def __init__(self, agent: Agent, *, num_envs: int, reward_scale: float) -> None:
        self.gammas = agent.policy_gammas
        self._agent, self._reward_scale = agent.eval(), reward_scale
        generator = torch.Generator(agent.gammas_G.device)
        self._encoders = NetworkPolicy(agent, num_envs=num_envs, generator=generator, averaged=False)

    @with_torch_defaults
    @torch.inference_mode()
    @override
    def step(self, step: PolicyInput) -> Float32[np.ndarray, "E G"]:
        state_ED = self._encoders.state(step)
        mask = step.observation.get(ACTION_MASK_KEY)
        mask_EA = None if mask is None else torch.from_numpy(mask).to(state_ED.device)
        return policy_values(self._agent, state_ED, mask_EA, self._reward_scale)
