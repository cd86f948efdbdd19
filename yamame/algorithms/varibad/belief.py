"""`BeliefEncoder`: what a trajectory encoder knows of the task, as mean and log-variance of a latent m."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from typing_extensions import override

from yamame.data.batch import Batch
from yamame.nets.blocks import InputNormalizer, at_least_float32, in_float32


class Belief(NamedTuple):
    """Normal distributions of the latent m, of Z independent components, after every token."""

    mean_NZ: Float[Tensor, "N Z"]
    log_variance_NZ: Float[Tensor, "N Z"]


class BeliefEncoder(nn.Module):
    """Trajectory encoder whose states are hyper-states: [vector of the present timestep, mean, log-variance] of q(m).

    Its inputs are those of `HyperStateTimestepEncoder`: the first part goes through the trajectory encoder, the
    second one to the state as it is. Source: Zintgraf et al. 2020, section 3.2. Moments of the belief are normalized
    by running statistics, like inputs, since nothing else gives them a size that suits policy and value.

    Args:
        encoder: Trajectory encoder, with `static_step` and `functional_step`.
        history_size: Width of the first part of the timestep vectors.
        encoder_size: Width of the trajectory encoder's states.
        latent_size: Z.
    """

    def __init__(self, encoder: nn.Module, *, history_size: int, encoder_size: int, latent_size: int) -> None:
        super().__init__()
        self.encoder: Any = encoder
        self.history_size = history_size
        self.posterior = nn.Linear(encoder_size, 2 * latent_size)
        self.normalizer = InputNormalizer(2 * latent_size)

    @override
    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load also beliefs of runs from before they were normalized: as they are, and moments that move slowly."""
        unchanged = InputNormalizer(len(self.normalizer.mean))
        unchanged.count.fill_(1.0 / unchanged.beta)
        for name, tensor in unchanged.state_dict(prefix=f"{prefix}normalizer.").items():
            state_dict.setdefault(name, tensor)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def belief(self, history_ND: Float[Tensor, "N history"], batch: Batch) -> Belief:
        """Return the beliefs after all tokens of a batch, in float32 at least."""
        return self._belief(self.encoder(history_ND, batch))

    def hyper_states(self, present_ND: Float[Tensor, "N present"], belief: Belief) -> Float[Tensor, "N S"]:
        """Return the states of policy and value, in float32 at least."""
        return torch.cat([at_least_float32(present_ND), self.normalized(belief)], dim=1)

    def normalized(self, belief: Belief) -> Float[Tensor, "N moments"]:
        """Return means and log-variances in deviations of those of the trials learned from."""
        moments_NM = torch.cat(belief, dim=1)
        return self.normalizer(moments_NM, moments_NM.dtype)

    def initial_state(self, num_envs: int) -> Any:
        """Return an empty memory."""
        return self.encoder.initial_state(num_envs)

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], state: Any
    ) -> Float[Tensor, "E S"]:
        """Return the hyper-states after one more timestep of each environment."""
        history_ED, present_ED = self._split(timestep_ED)
        return self.hyper_states(present_ED, self._belief(self.encoder.step(history_ED, time_E, state)))

    def static_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], state: Any
    ) -> Float[Tensor, "E S"]:
        """Return the hyper-states of `step`, for times on the device."""
        history_ED, present_ED = self._split(timestep_ED)
        return self.hyper_states(present_ED, self._belief(self.encoder.static_step(history_ED, time_E, state)))

    def empty_memory(self, timestep_ED: Float[Tensor, "E D"]) -> dict[str, Tensor]:
        """Return zeros in the shapes of the memory."""
        memory: dict[str, Tensor] = self.encoder.empty_memory(self._split(timestep_ED)[0])
        return memory

    def functional_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], memory: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "E S"], dict[str, Tensor]]:
        """Return the hyper-states of `step` and the memory for the next call."""
        history_ED, present_ED = self._split(timestep_ED)
        state_ES, following = self.encoder.functional_step(history_ED, time_E, memory)
        return self.hyper_states(present_ED, self._belief(state_ES)), following

    def _split(self, timestep_ED: Float[Tensor, "E D"]) -> tuple[Float[Tensor, "E h"], Float[Tensor, "E p"]]:
        return timestep_ED[:, : self.history_size], timestep_ED[:, self.history_size :]

    def _belief(self, state_NS: Float[Tensor, "N state"]) -> Belief:
        return Belief(*in_float32(self.posterior, state_NS).chunk(2, dim=1))
