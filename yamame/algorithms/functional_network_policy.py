"""`FunctionalNetworkPolicy`: a step of `NetworkPolicy` as a function of tensors."""

from collections.abc import Mapping

import torch
from jaxtyping import Shaped
from torch import Tensor

from yamame.algorithms.acting_model import ActingModel
from yamame.algorithms.functional_policy import MEMORY, OBSERVATION, FunctionalPolicy, without_prefix
from yamame.algorithms.network_policy import acting_networks
from yamame.data.actions import ACTION_MASK_KEY
from yamame.errors import UserError
from yamame.nets.hashed_noise import hashed_gumbel, hashed_normal
from yamame.nets.heads.actor import Actor
from yamame.nets.heads.tanh_gaussian import TanhGaussianPolicy
from yamame.nets.sequence.base import SupportsFunctionalStep
from yamame.nets.timestep.encoder import TimestepEncoder


class FunctionalNetworkPolicy(FunctionalPolicy):
    """The acting networks of an agent, with normalizer, probability clip, action mask and sampling.

    `clips`, `gamma_index` and `mode_only` are those of `NetworkPolicy`. Raises `UserError` for a trajectory encoder
    without a functional step.
    """

    def __init__(self, agent: ActingModel, *, clips: bool, gamma_index: int = -1, mode_only: bool = False) -> None:
        super().__init__()
        self.mode_only = mode_only
        self.timestep_encoder: TimestepEncoder
        self.trajectory_encoder: SupportsFunctionalStep
        self.actor: Actor
        self.timestep_encoder, self.trajectory_encoder, self.actor = acting_networks(
            agent, clips=clips, gamma_index=gamma_index, fast=False
        )
        self.timestep_size = self.timestep_encoder.output_size
        self.horizon: Tensor
        dtype = next(self.timestep_encoder.parameters()).dtype
        self.register_buffer("horizon", torch.tensor([float(agent.horizon)], dtype=dtype))
        if not isinstance(self.trajectory_encoder, SupportsFunctionalStep):
            raise UserError(
                f"the trajectory encoder {type(self.trajectory_encoder).__name__} cannot be exported: it lacks the "
                "methods empty_memory and functional_step (yamame.nets.sequence.base.SupportsFunctionalStep)"
            )

    def empty_memory(self, num_envs: int) -> dict[str, Shaped[Tensor, "E ..."]]:
        """Return the memory before the first timestep."""
        timestep_ED = self.horizon.new_zeros(num_envs, self.timestep_size)
        return self.trajectory_encoder.empty_memory(timestep_ED)

    def forward(self, inputs: Mapping[str, Shaped[Tensor, "E ..."]]) -> dict[str, Shaped[Tensor, "E ..."]]:
        """Return action, its distribution and the next memory."""
        observation = without_prefix(OBSERVATION, inputs)
        time_E = inputs["time"]
        features = self.timestep_encoder.features(
            observation=observation,
            previous_action=inputs["previous_action"],
            previous_reward=inputs["previous_reward"],
            episode_start=inputs["episode_start"] | (time_E == 0),
            time=time_E,
            horizon=self.horizon,
        )
        timestep_ED: Tensor = self.timestep_encoder(features, observation)
        state_ED, memory = self.trajectory_encoder.functional_step(timestep_ED, time_E, without_prefix(MEMORY, inputs))
        policy = self.actor(state_ED, inputs.get(ACTION_MASK_KEY))
        distribution: dict[str, Tensor]
        if isinstance(policy, TanhGaussianPolicy):
            noise = hashed_normal
            distribution = {"mean": policy.mean_NGA[:, 0], "std": policy.log_std_NGA[:, 0].exp()}
            sample = policy.action_vector
        else:
            noise = hashed_gumbel
            distribution = {"probability": policy.probability_NGA[:, 0]}
            sample = policy.choose
        sampled = sample(noise(inputs["seed"], time_E, self.actor.action_size)[:, None])[:, 0]
        mode = policy.mode()[:, 0]
        deterministic = (inputs["deterministic"] | self.mode_only).reshape(-1, *[1] * (mode.dim() - 1))
        return {
            "policy_action": torch.where(deterministic, mode, sampled),
            **distribution,
            **{f"{MEMORY}{name}": tensor for name, tensor in memory.items()},
        }
