"""Analysis of a trajectory by a recurrent SAC agent, and the values of its critics while it acts."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor
from typing_extensions import override

from yamame.algorithms.acting_model import ActingModel
from yamame.algorithms.analysis import AgentAnalysis, ValueFunction, action_distributions
from yamame.algorithms.base import model_device
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.algorithms.recurrent_sac.agent import RecurrentAgent
from yamame.data.batch import Window, pack
from yamame.data.step import PolicyInput
from yamame.data.trajectory import Trajectory
from yamame.nets.introspection import SupportsExplain
from yamame.nets.torch_defaults import with_torch_defaults


@with_torch_defaults
@torch.no_grad()
def analyze_recurrent_agent(
    agent: RecurrentAgent, trajectory: Trajectory, *, keep: int | None = None, acting_only: bool = False
) -> AgentAnalysis:
    """Return action distributions, values and the actor's attention along a trajectory, equal to those while acting.

    The agent is left in evaluation mode. The arguments are those of `SupportsAnalysis.analyze`. Values of SAC have the
    bonus of the entropy of later actions.
    """
    agent.eval()
    window = Window(trajectory=trajectory, start=0, length=len(trajectory))
    batch = pack([window], pad_tokens_to_multiple_of=1).to(model_device(agent))
    features_NF = agent.features(batch)
    encoder = agent.encoders.trajectory_encoder
    timestep_ND = agent.encoders.timestep_encoder(features_NF, batch.observation)
    trace = encoder.explain(timestep_ND, batch, keep=keep) if isinstance(encoder, SupportsExplain) else None
    policy = agent.actor(trace.state_TD if trace else encoder(timestep_ND, batch), batch.action_mask)
    q_TG = value_TG = None
    if not acting_only:
        critic_ND = agent.value_encoders(features_NF, batch)
        q_TG = _numpy(agent.action_values(critic_ND, batch.action).mean(1))[:-1]
        value_TG = _numpy(agent.mean_policy_values(critic_ND, policy))
    return AgentAnalysis(
        gammas_G=np.array([agent.config.acting_gamma], np.float32),
        q_TG=q_TG,
        value_TG=value_TG,
        action_distributions=action_distributions(policy, -1),
        attention=trace.attention if trace else None,
        max_abs_LPT=trace.max_abs_LPT if trace else None,
    )


class RecurrentSACValues(ValueFunction):
    """Values of E environments, by memories of actor and critics of their own.

    Args:
        agent: Networks, which are left in evaluation mode.
        num_envs: E.
    """

    def __init__(self, agent: RecurrentAgent, *, num_envs: int) -> None:
        self.gammas = (agent.config.acting_gamma,)
        self._agent = agent.eval()
        generator = torch.Generator(model_device(agent))
        self._actor = NetworkPolicy(agent, num_envs=num_envs, generator=generator)
        self._critics = NetworkPolicy(_CriticMemory(agent), num_envs=num_envs, generator=generator)

    @with_torch_defaults
    @torch.inference_mode()
    @override
    def step(self, step: PolicyInput) -> Float32[np.ndarray, "E G"]:
        state_ED = self._critics.state(step)
        return _numpy(self._agent.mean_policy_values(state_ED, self._actor.distribution(step)))


class _CriticMemory(ActingModel):
    """The encoders of the critics in place of the actor's."""

    def __init__(self, agent: RecurrentAgent) -> None:
        super().__init__()
        self.agent, self.horizon = agent, agent.horizon

    @override
    def acting_module(self, name: str) -> Any:
        return self.agent.actor if name == "actor" else getattr(self.agent.value_encoders, name)


def _numpy(value_N: Float[Tensor, "N"]) -> Float32[np.ndarray, "N G"]:
    array: np.ndarray = value_N[:, None].float().cpu().numpy()
    return array
