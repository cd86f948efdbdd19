"""Analysis of a trajectory by an AMAGO agent."""

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor

from yamame.algorithms.acting_model import ACTING_MODULES
from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.analysis import AgentAnalysis, action_distributions
from yamame.data.batch import Batch, Window, pack
from yamame.data.trajectory import Trajectory
from yamame.nets.heads.actor import PolicyDistribution
from yamame.nets.introspection import SupportsExplain
from yamame.nets.torch_defaults import with_torch_defaults


@with_torch_defaults
@torch.no_grad()
def analyze_trajectory(
    agent: Agent,
    trajectory: Trajectory,
    *,
    reward_scale: float | None,
    gamma_index: int = -1,
    keep: int | None = None,
) -> AgentAnalysis:
    """Return action distributions, values and attention along a trajectory, equal to those while acting.

    The agent is left in evaluation mode. Division by `reward_scale`, that of the learner, gives values in units of the
    task's reward; None: the agent has its acting weights only, and there are no values. The action
    distributions are those of the gamma at `gamma_index`. `keep` is that of `SupportsAnalysis.analyze`.
    """
    agent.eval()
    window = Window(trajectory=trajectory, start=0, length=len(trajectory))
    batch = pack([window], pad_tokens_to_multiple_of=1).to(agent.gammas_G.device)
    timestep_encoder, encoder, actor = (
        agent.acting_module(name) if reward_scale is None else getattr(agent, name) for name in ACTING_MODULES
    )
    timestep_ND = timestep_encoder(agent.features(batch), batch.observation)
    trace = encoder.explain(timestep_ND, batch, keep=keep) if isinstance(encoder, SupportsExplain) else None
    state_ND = trace.state_TD if trace else encoder(timestep_ND, batch)
    policy = actor(state_ND, batch.action_mask)
    q_TG, value_TG = (None, None) if reward_scale is None else _values(agent, state_ND, batch, policy, reward_scale)
    return AgentAnalysis(
        gammas_G=agent.gammas_G.float().cpu().numpy(),
        q_TG=q_TG,
        value_TG=value_TG,
        action_distributions=action_distributions(policy, gamma_index),
        attention=trace.attention if trace else None,
        max_abs_LPT=trace.max_abs_LPT if trace else None,
    )


def _values(
    agent: Agent, state_ND: Float[Tensor, "N D"], batch: Batch, policy: PolicyDistribution, reward_scale: float
) -> tuple[Float32[np.ndarray, "T G"], Float32[np.ndarray, "N G"]]:
    """Return the values of the actions taken, and those of the policy of each gamma."""
    code, noise = agent.value_code, _zero_noise(agent, state_ND)
    output_NKGZ, value_NKG = agent.critic.q_values(state_ND, batch.action, policy, noise, code)
    q_TG = _in_rewards(agent, code.decode(output_NKGZ), reward_scale)[:-1]
    return q_TG, _in_rewards(agent, value_NKG, reward_scale)


def policy_values(
    agent: Agent, state_ND: Float[Tensor, "N D"], policy: PolicyDistribution, reward_scale: float
) -> Float32[np.ndarray, "N G"]:
    """Return the value of the policy of each gamma: mean over the critics, in units of the task's reward.

    It is the expectation over a discrete action, or the value of the mode.
    """
    value_NKG = agent.critic.policy_q(state_ND, policy, _zero_noise(agent, state_ND), agent.value_code)
    return _in_rewards(agent, value_NKG, reward_scale)


def _in_rewards(agent: Agent, raw_NKG: Float[Tensor, "N K G"], reward_scale: float) -> Float32[np.ndarray, "N G"]:
    return (agent.value_code.denormalize(raw_NKG).mean(1) / reward_scale).float().cpu().numpy()


def _zero_noise(agent: Agent, state_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N G A"] | None:
    """Noise with which the sampled action is the mode; None if no noise is needed for that."""
    if agent.actor.discrete or agent.actor.samples_choices:
        return None
    return state_ND.new_zeros(len(state_ND), len(agent.gammas_G), agent.actor.action_size)
