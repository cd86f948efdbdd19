"""`PolicyWithNovelty`: in some environments the policy of novelty acts instead of the agent's."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from typing_extensions import override

from yamame.algorithms.acting_model import ActingModel
from yamame.algorithms.amago.novelty import NoveltyPolicy
from yamame.algorithms.functional_policy import OBSERVATION, without_prefix
from yamame.algorithms.network_policy import STATIC_DEVICES, NetworkPolicy
from yamame.data.actions import ACTION_MASK_KEY
from yamame.nets.blocks import freeze_for_inference
from yamame.nets.heads.actor import PolicyDistribution, distribution_tensors, with_tensors
from yamame.nets.torch_defaults import with_torch_defaults


class PolicyWithNovelty(NetworkPolicy):
    """`NetworkPolicy` in whose first environments the agent's policy of novelty acts, as long as `acts` says so.

    These environments have the agent's memory, too, so that it acts in them at other times.

    Args:
        agent: Networks, with a `NoveltyPolicy` as `novelty`.
        num_novelty_envs: Number of these environments.
        options: Arguments of `NetworkPolicy`.
    """

    def __init__(self, agent: ActingModel, *, num_novelty_envs: int, **options: Any) -> None:
        self._novelty = _copy_of_novelty(agent)
        super().__init__(agent, **options)
        self._is_novelty_E = torch.arange(self.num_envs, device=self.device) < num_novelty_envs
        self._acts_for_novelty_E = self._is_novelty_E & self._novelty.acts
        self._novelty_acts = bool(self._acts_for_novelty_E.any())

    @override
    @with_torch_defaults
    def load_weights(self, agent: ActingModel, *, version: int) -> None:
        super().load_weights(agent, version=version)
        new = _copy_of_novelty(agent)
        # in place, as what a captured step reads
        torch._foreach_copy_(
            [*self._novelty.parameters(), *self._novelty.buffers()], [*new.parameters(), *new.buffers()]
        )
        self._novelty_acts = bool(new.acts) and bool(self._is_novelty_E.any())
        self._acts_for_novelty_E.copy_(self._is_novelty_E & new.acts)

    @override
    def _distribution(
        self, state_ED: Float[Tensor, "E D"], inputs: Mapping[str, Shaped[Tensor, "E ..."]]
    ) -> PolicyDistribution:
        policy = super()._distribution(state_ED, inputs)
        if not (self._novelty_acts or self.device.type in STATIC_DEVICES):
            return policy
        novel = self._novelty.act(
            self.timestep_encoder.normalized(self._features(inputs)),
            without_prefix(OBSERVATION, inputs),
            inputs.get(OBSERVATION + ACTION_MASK_KEY),
        )
        of_novelty, own = distribution_tensors(novel), distribution_tensors(policy)
        return with_tensors(policy, {name: self._merged(of_novelty[name], own[name]) for name in own})

    def _merged(self, of_novelty: Shaped[Tensor, "M ..."], own: Shaped[Tensor, "M ..."]) -> Shaped[Tensor, "M ..."]:
        """Return the rows of either; an action of C components has C rows an environment."""
        rows_M = self._acts_for_novelty_E.repeat_interleave(len(own) // self.num_envs)
        return torch.where(rows_M.view(-1, *[1] * (own.dim() - 1)), of_novelty, own)


def _copy_of_novelty(agent: Any) -> NoveltyPolicy:
    copied: NoveltyPolicy = freeze_for_inference(agent.novelty)
    return copied
