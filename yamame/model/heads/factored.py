"""Policies over several discrete choices at once, made independently of each other."""

from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from yamame.model.heads.distributions import QFunction, CategoricalPolicy


class DiscreteComponents(nn.Module):
    """C components of some number of choices each: side by side in A, or as M = N C rows of K, the largest number.

    Rows are filled with places that are never allowed, so that one categorical serves all components.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        real_CK = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
        first_C = torch.tensor([0, *accumulate(sizes)][:-1])
        self.count = len(sizes)
        self.real_CK: Tensor
        self.place_CK: Tensor
        self.place_A: Tensor
        self.register_buffer("real_CK", real_CK, persistent=False)
        self.register_buffer(
            "place_CK", torch.where(real_CK, first_C[:, None] + torch.arange(max(sizes)), 0), persistent=False
        )
        self.register_buffer("place_A", real_CK.flatten().nonzero()[:, 0], persistent=False)

    def pad(self, x: Shaped[Tensor, "N G A"]) -> Shaped[Tensor, "M G K"]:
        """The row of each component, as if it were a token of its own; what fills rows is arbitrary."""
        x_NGCK = x.index_select(2, self.place_CK.flatten()).unflatten(2, self.place_CK.shape)
        return x_NGCK.movedim(2, 1).flatten(0, 1)

    def pad_mask(self, mask_NA: Bool[Tensor, "N A"] | None, num_tokens: int) -> Bool[Tensor, "M 1 K"]:
        """`rows` of a mask, what fills rows forbidden."""
        if mask_NA is None:
            return self.real_CK[:, None].repeat(num_tokens, 1, 1)
        return self.pad(mask_NA[:, None]) & self.real_CK[:, None].repeat(num_tokens, 1, 1)

    def unpad(self, x: Shaped[Tensor, "M G K"]) -> Shaped[Tensor, "N G A"]:
        """Inverse of `rows`."""
        return x.unflatten(0, (-1, self.count)).movedim(1, 2).flatten(2).index_select(2, self.place_A)


@dataclass(frozen=True, kw_only=True)
class FactoredPolicy:
    """A softmax for each of C components, independent given the state: log-probabilities and entropies are summed.

    Differs from the paper, which has one choice a step: there Q(s, pi) is the exact expectation. Here the joint
    actions are too many for that, so critics take the action as an input, as for continuous ones.
    """

    components: DiscreteComponents
    categorical: CategoricalPolicy
    """Of the components as tokens of their own: M = N C of them, component by component within a token."""

    @staticmethod
    def from_logits(
        logits_NGA: Float[Tensor, "N G A"],
        components: DiscreteComponents,
        clip: tuple[float, float],
        mask_NA: Bool[Tensor, "N A"] | None = None,
    ) -> "FactoredPolicy":
        """The distribution of some logits; the probability clip is each component's."""
        allowed = components.pad_mask(mask_NA, logits_NGA.shape[0])
        each = CategoricalPolicy.from_logits(components.pad(logits_NGA), clip, allowed)
        return FactoredPolicy(components=components, categorical=each)

    def log_prob(self, action_NC: Shaped[Tensor, "N C"]) -> Float[Tensor, "N G"]:
        """Log-probability of one action a token under the softmaxes, for every discount; -inf if it is forbidden."""
        return self._per_component(self.categorical.log_prob(action_NC.flatten())).sum(1)

    def entropy(self, noise_NGA: Float[Tensor, "N G A"] | None = None) -> Float[Tensor, "N G"]:
        """Entropy in nats, exact: it needs no noise."""
        return self._per_component(self.categorical.entropy()).sum(1)

    def sample(self, generator: torch.Generator) -> Shaped[Tensor, "N G C"]:
        """One action for every discount."""
        return self._per_component(self.categorical.sample(generator)).movedim(1, 2)

    def mode(self) -> Shaped[Tensor, "N G C"]:
        """The most likely choice of each component, for every discount."""
        return self._per_component(self.categorical.mode()).movedim(1, 2)

    def action_vector(self, noise_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N G A"]:
        """The sample that standard Gumbel noise makes, as one-hots side by side; without gradient."""
        return self._vector(self._choice(noise_NGA))

    def expected_value(self, q: QFunction, noise_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N K G"]:
        """q of the sample that the noise makes; its gradient, that of the expectation under the softmaxes, is unbiased.

        A sample is as good as it is better than the mode (score function, with q of the mode as baseline), weighted
        where clipping changed its probability. Differs from the authors' later code, which follows the slope of q
        through a straight-through Gumbel-softmax: between one-hots q has never been taught, and policies that were
        right drifted away from it.
        """
        choice_MG = self._choice(noise_NGA)
        with torch.no_grad():
            value_NKG = q(self._vector(choice_MG))
            advantage_NKG = value_NKG - q(self._vector(self.categorical.mode()))
            log_acting_MG = _of_choice(self.categorical.probability_NGA, choice_MG).log()
        log_ratio_MG = _of_choice(self.categorical.log_softmax_NGA, choice_MG) - log_acting_MG
        ratio_NG = self._per_component(log_ratio_MG).sum(1).exp()
        return value_NKG + (ratio_NG - ratio_NG.detach())[:, None] * advantage_NKG

    @torch.no_grad()
    def _choice(self, noise_NGA: Float[Tensor, "N G A"]) -> Shaped[Tensor, "M G"]:
        return (self.categorical.probability_NGA.log() + self.components.pad(noise_NGA)).argmax(-1)

    def _vector(self, choice_MG: Shaped[Tensor, "M G"]) -> Float[Tensor, "N G A"]:
        one_hots = torch.zeros_like(self.categorical.probability_NGA).scatter(-1, choice_MG[..., None], 1.0)
        return self.components.unpad(one_hots)

    def _per_component(self, value: Shaped[Tensor, "M G"]) -> Shaped[Tensor, "N C G"]:
        return value.unflatten(0, (-1, self.components.count))


def _of_choice(values_MGK: Float[Tensor, "M G K"], choice_MG: Shaped[Tensor, "M G"]) -> Float[Tensor, "M G"]:
    return values_MGK.gather(2, choice_MG[..., None]).squeeze(2)
