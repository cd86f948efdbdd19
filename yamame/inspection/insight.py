"""`insight`: what an agent makes of a trajectory, by one forward over the whole of it.

N tokens (the moments of the trajectory), G discounts, K critics, A actions.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from yamame.inspection.recording import AgentAnalysis, ActionDistributions
from yamame.model.agent import Agent
from yamame.model.heads.actor import PolicyDistribution
from yamame.model.heads.distributions import CategoricalPolicy, TanhGaussianPolicy
from yamame.model.heads.factored import FactoredPolicy
from yamame.model.trajectory_encoders.explanation import SupportsExplain
from yamame.records.trajectory import Trajectory
from yamame.replay.packing import Window, pack


@torch.no_grad()
def analyze_trajectory(agent: Agent, trajectory: Trajectory, *, reward_scale: float, keep: int | None = None) -> AgentAnalysis:
    """What the agent makes of the trajectory; equal to what the policy saw while acting (tests/contracts).

    `reward_scale` is the learner's, so that values are in units of the task's reward. `keep` attention weights are kept
    of each moment (None: as many as take a few megabytes). Leaves the agent in evaluation mode.
    """
    agent.eval()
    window = Window(trajectory=trajectory, start=0, length=len(trajectory))
    batch = pack([window], pad_tokens_to_multiple_of=1).to(agent.gammas_G.device)
    timestep_ND = agent.timestep_encoder(agent.features(batch), batch.observation)
    encoder = agent.trajectory_encoder
    told = encoder.explain(timestep_ND, batch, keep=keep) if isinstance(encoder, SupportsExplain) else None
    state_ND = told.state_TD if told else encoder(timestep_ND, batch)
    policy = agent.actor(state_ND, batch.action_mask)
    q_NKG, value_NKG = agent.critic.q_values(state_ND, batch.action, policy, _no_chance(agent, state_ND))

    def in_rewards(raw_NKG: Float[Tensor, "N K G"]) -> np.ndarray:
        return (agent.popart.denormalize(raw_NKG).mean(1) / reward_scale).float().cpu().numpy()

    return AgentAnalysis(
        gammas_G=agent.gammas_G.float().cpu().numpy(),
        q_TG=in_rewards(q_NKG)[:-1],
        value_TG=in_rewards(value_NKG),
        action_distributions=_intention(agent, policy),
        attention=told.attention if told else None,
        max_abs_LPT=told.max_abs_LPT if told else None,
    )


def _no_chance(agent: Agent, state_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N G A"] | None:
    """The noise by which a policy's `action_vector` is the most likely action."""
    if agent.actor.discrete:
        return None
    return state_ND.new_zeros(len(state_ND), len(agent.gammas_G), agent.actor.action_size)


def _intention(agent: Agent, policy: PolicyDistribution) -> ActionDistributions:
    """What the policy of the acting discount might do."""
    acting = agent.acting_index
    match policy:
        case CategoricalPolicy():
            probability = policy.probability_NGA
            return ActionDistributions(choices=(probability.shape[2],), probability_TA=_numpy(probability[:, acting]))
        case FactoredPolicy(components=components, categorical=each):
            sizes = tuple(components.real_CK.sum(1).tolist())
            side_by_side = components.unpad(each.probability_NGA)
            return ActionDistributions(choices=sizes, probability_TA=_numpy(side_by_side[:, acting]))
        case TanhGaussianPolicy():
            deviation = policy.log_std_NGA.exp()
            return ActionDistributions(mean_TA=_numpy(policy.mean_NGA[:, acting]), std_TA=_numpy(deviation[:, acting]))


def _numpy(x: Float[Tensor, "N A"]) -> np.ndarray:
    return x.float().cpu().numpy()
