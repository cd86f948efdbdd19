"""Analysis of a trajectory by an AMAGO agent."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.heads import Heads
from yamame.algorithms.analysis import AgentAnalysis, action_distributions
from yamame.data.batch import Batch, Window, pack
from yamame.data.trajectory import Trajectory
from yamame.nets.heads.actor import NO_CLIP
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
    """Return action distributions, values and attention along a trajectory.

    Distributions and attention are those of evaluations: of the moving averages, if there are any. Values are those of
    the present weights, which the critics are trained with.

    Args:
        agent: The agent, which is left in evaluation mode.
        trajectory: The trajectory.
        reward_scale: That of the learner. Division by it gives values in units of the task's reward. None: the agent
            has its acting weights only, and there are no values.
        gamma_index: Gamma whose action distributions are returned.
        keep: That of `SupportsAnalysis.analyze`.
    """
    agent.eval()
    window = Window(trajectory=trajectory, start=0, length=len(trajectory))
    batch = pack([window], pad_tokens_to_multiple_of=1).to(agent.gammas_G.device)
    features_NF, encoder = agent.features(batch), agent.acting_module("trajectory_encoder")
    timestep_ND = agent.acting_module("timestep_encoder")(features_NF, batch.observation)
    trace = encoder.explain(timestep_ND, batch, keep=keep) if isinstance(encoder, SupportsExplain) else None
    state_ND = trace.state_TD if trace else encoder(timestep_ND, batch)
    actor = agent.actor_of_gamma(gamma_index)
    if not agent.config.actor.clip_evaluation:
        actor.clip = NO_CLIP
    q_TG, value_TG = None, None
    if reward_scale is not None:
        present_ND = state_ND if agent.averaged is None else agent.encode(features_NF, batch)
        q_TG, value_TG = _values(agent, present_ND, batch, reward_scale)
    return AgentAnalysis(
        gammas_G=np.array(agent.policy_gammas, np.float32),
        q_TG=q_TG,
        value_TG=value_TG,
        action_distributions=action_distributions(actor(state_ND, batch.action_mask), 0),
        attention=trace.attention if trace else None,
        max_abs_LPT=trace.max_abs_LPT if trace else None,
    )


def _values(
    agent: Agent, state_ND: Float[Tensor, "N D"], batch: Batch, reward_scale: float
) -> tuple[Float32[np.ndarray, "T G"], Float32[np.ndarray, "N G"]]:
    """Return the values of the actions taken, and those of the policy of each gamma."""
    of_actions, of_policies = [], []
    for heads in _all_heads(agent):
        policy = heads.actor(state_ND, batch.action_mask)
        code, noise = heads.value_code, _zero_noise(heads, state_ND)
        output_NKGZ, value_NKG = heads.critic.q_values(state_ND, batch.action, policy, noise, code)
        of_actions.append(_in_rewards(heads, code.decode(output_NKGZ), reward_scale)[:-1])
        of_policies.append(_in_rewards(heads, value_NKG, reward_scale))
    return _in_order(of_actions), _in_order(of_policies)


def policy_values(
    agent: Agent, state_ND: Float[Tensor, "N D"], mask_NA: Bool[Tensor, "N A"] | None, reward_scale: float
) -> Float32[np.ndarray, "N G"]:
    """Return the value of the policy of each gamma: mean over the critics, in units of the task's reward.

    It is the expectation over a discrete action, or the value of the mode.
    """
    values = []
    for heads in _all_heads(agent):
        policy, noise = heads.actor(state_ND, mask_NA), _zero_noise(heads, state_ND)
        value_NKG = heads.critic.policy_q(state_ND, policy, noise, heads.value_code)
        values.append(_in_rewards(heads, value_NKG, reward_scale))
    return _in_order(values)


def _all_heads(agent: Agent) -> list[Heads]:
    return [agent] if agent.separate is None else [agent, agent.separate]


def _in_order(values: Sequence[Float32[np.ndarray, "N _"]]) -> Float32[np.ndarray, "N G"]:
    """Place the separate gamma, if there is one, before the acting one."""
    shared, *separate = values
    return np.concatenate([shared[:, :-1], *separate, shared[:, -1:]], axis=1)


def _in_rewards(heads: Heads, raw_NKG: Float[Tensor, "N K G"], reward_scale: float) -> Float32[np.ndarray, "N G"]:
    return (heads.value_code.denormalize(raw_NKG).mean(1) / reward_scale).float().cpu().numpy()


def _zero_noise(heads: Heads, state_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N G A"] | None:
    """Noise with which the sampled action is the mode; None if no noise is needed for that."""
    if heads.actor.discrete or heads.actor.samples_choices:
        return None
    return state_ND.new_zeros(len(state_ND), len(heads.gammas_G), heads.actor.action_size)
