"""`PolicyWithNovelty`: in some trials the policy of novelty acts instead of the agent's."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from typing_extensions import override

from yamame.algorithms.acting_model import ActingModel
from yamame.algorithms.amago.novelty import NoveltyPolicy
from yamame.algorithms.functional_policy import OBSERVATION, without_prefix
from yamame.algorithms.network_policy import STATIC_DEVICES, NetworkPolicy
from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.step import PolicyInput
from yamame.nets.blocks import freeze_for_inference
from yamame.nets.heads.actor import PolicyDistribution, distribution_tensors, with_tensors
from yamame.nets.torch_defaults import with_torch_defaults
from yamame.types import State


class PolicyWithNovelty(NetworkPolicy):
    """`NetworkPolicy` that lets the agent's policy of novelty act in a fraction of the trials of each environment.

    With a fraction of 1/4 these are every fourth trial, and in each environment others than in the next one. Its
    actions get no exploration noise, with which it would not return to what is far away. The memory of the agent sees
    all trials. While `NoveltyPolicy.acts` is false, the agent acts in all of them.

    Args:
        agent: Networks, with a `NoveltyPolicy` as `novelty`.
        trial_fraction: Fraction of the trials.
        options: Arguments of `NetworkPolicy`.
    """

    def __init__(self, agent: ActingModel, *, trial_fraction: float, **options: Any) -> None:
        self._novelty = _copy_of_novelty(agent)
        self._trial_fraction = trial_fraction
        super().__init__(agent, **options)
        self._trial_E = np.arange(self.num_envs) - 1
        """Index of the present trial of each environment. Those of the first trials differ, and so do their turns."""
        self._acts_for_novelty_E = torch.zeros(self.num_envs, dtype=torch.bool, device=self.device)

    @override
    @with_torch_defaults
    def load_weights(self, agent: ActingModel, *, version: int) -> None:
        super().load_weights(agent, version=version)
        new = _copy_of_novelty(agent)
        # in place, as what a captured step reads
        torch._foreach_copy_(
            [*self._novelty.parameters(), *self._novelty.buffers()], [*new.parameters(), *new.buffers()]
        )
        self._take_turns()

    @override
    def act(self, step: PolicyInput, *, deterministic: bool = False) -> Shaped[np.ndarray, "E ..."]:
        starts_E = step.time == 0
        if starts_E.any():
            self._trial_E += starts_E
            self._take_turns()
        return super().act(step, deterministic=deterministic)

    def _take_turns(self) -> None:
        """Set in which environments the policy of novelty acts; in place, as what a captured step reads."""
        before_E, after_E = (np.floor(trial_E * self._trial_fraction) for trial_E in (self._trial_E, self._trial_E + 1))
        self._acts_for_novelty_E.copy_(torch.from_numpy(after_E > before_E)).logical_and_(self._novelty.acts)
        self.explores_E = self._acts_for_novelty_E.cpu().numpy().copy()

    @override
    def state_dict(self) -> State:
        return {**super().state_dict(), "trials": torch.from_numpy(self._trial_E.copy())}

    @override
    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._trial_E = state["trials"].numpy().copy()
        self._take_turns()

    @override
    def _distribution(
        self, state_ED: Float[Tensor, "E D"], inputs: Mapping[str, Shaped[Tensor, "E ..."]]
    ) -> PolicyDistribution:
        policy = super()._distribution(state_ED, inputs)
        if self.device.type not in STATIC_DEVICES and not self._acts_for_novelty_E.any():
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
