"""Action distributions for G discounts at once, with just what the losses and the rollout ask of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

QFunction = Callable[[Float[Tensor, "N G A"]], Float[Tensor, "N K G"]]
"""Q of one action vector a token and discount."""


@dataclass(frozen=True, kw_only=True)
class CategoricalPolicy:
    """Softmax over A discrete actions; it acts, and is valued, with probabilities clipped to [low, high].

    The clip is the paper's ([0.001, 0.99] by default): no action ever becomes impossible, and none certain. Differs
    from the authors' code in the gradient: there a clipped probability has none, so that a policy which saturates
    early cannot change its mind (seen on T-Maze: LOG.md). Here the clip is straight-through, and `log_prob` is that of
    the softmax itself.

    Where a mask forbids actions, all of this is about the allowed ones: the others have probability 0 exactly.
    """

    probability_NGA: Float[Tensor, "N G A"]
    """Clipped and renormalised; its gradient is the softmax's."""
    log_softmax_NGA: Float[Tensor, "N G A"]
    allowed_N1A: Bool[Tensor, "N 1 A"] | None = None
    """None: all actions are."""

    @staticmethod
    def from_logits(
        logits_NGA: Float[Tensor, "N G A"],
        clip: tuple[float, float],
        allowed_N1A: Bool[Tensor, "N 1 A"] | None = None,
    ) -> "CategoricalPolicy":
        """The distribution of some logits; every token allows at least one action."""
        if allowed_N1A is not None:
            logits_NGA = logits_NGA.masked_fill(~allowed_N1A, -torch.inf)
        log_softmax = logits_NGA.log_softmax(dim=-1)
        softmax = log_softmax.exp()
        clipped = softmax.detach().clamp(*clip)
        if allowed_N1A is not None:
            clipped = clipped * allowed_N1A
        clipped = clipped / clipped.sum(dim=-1, keepdim=True)
        return CategoricalPolicy(
            probability_NGA=clipped + (softmax - softmax.detach()),
            log_softmax_NGA=log_softmax,
            allowed_N1A=allowed_N1A,
        )

    def log_prob(self, action_N: Shaped[Tensor, "N"]) -> Float[Tensor, "N G"]:
        """Log-probability of one action a token under the softmax, for every discount; -inf if it is forbidden."""
        index = action_N[:, None, None].expand(-1, self.log_softmax_NGA.shape[1], 1)
        return self.log_softmax_NGA.gather(2, index).squeeze(2)

    def entropy(self, noise_NGA: Float[Tensor, "N G A"] | None = None) -> Float[Tensor, "N G"]:
        """Entropy in nats, exact: it needs no noise."""
        possible = self.probability_NGA
        if self.allowed_N1A is not None:
            possible = possible.where(self.allowed_N1A, 1.0)
        return -(self.probability_NGA * possible.log()).sum(-1)

    def sample(self, generator: torch.Generator) -> Shaped[Tensor, "N G"]:
        """One action for every discount: how many of the cumulated probabilities a uniform number has passed.

        With a mask the winner of a race of exponential clocks, whose arithmetic can never let a probability of 0 win.
        """
        if self.allowed_N1A is not None:
            clocks = torch.empty_like(self.probability_NGA).exponential_(generator=generator)
            return (self.probability_NGA / clocks.clamp(min=torch.finfo(clocks.dtype).tiny)).argmax(-1)
        passed_NGA = self.probability_NGA.cumsum(-1)[..., :-1]  # without the last, which may fall short of 1
        shape = (*passed_NGA.shape[:2], 1)
        chance = torch.rand(shape, generator=generator, dtype=passed_NGA.dtype, device=passed_NGA.device)
        return (chance >= passed_NGA).sum(-1)

    def mode(self) -> Shaped[Tensor, "N G"]:
        """The most likely action for every discount."""
        return self.probability_NGA.argmax(-1)


@dataclass(frozen=True, kw_only=True)
class TanhGaussianPolicy:
    """tanh of a diagonal Gaussian: actions in (-1, 1)^A. log std = -5 + 3.5 (tanh(raw) + 1), within [-5, 2]."""

    mean_NGA: Float[Tensor, "N G A"]
    log_std_NGA: Float[Tensor, "N G A"]

    @staticmethod
    def from_outputs(raw_NGA: Float[Tensor, "N G twoA"]) -> "TanhGaussianPolicy":
        """The distribution of the actor's raw outputs."""
        mean, raw_log_std = raw_NGA.chunk(2, dim=-1)
        return TanhGaussianPolicy(mean_NGA=mean, log_std_NGA=-5.0 + 3.5 * (raw_log_std.tanh() + 1.0))

    def log_prob(self, action_NA: Float[Tensor, "N A"]) -> Float[Tensor, "N G"]:
        """Log-density of one action a token for every discount, dimensions summed; actions clamped to +-0.99 first."""
        action = action_NA.clamp(-0.99, 0.99)[:, None]
        gaussian = (action.atanh() - self.mean_NGA) * (-self.log_std_NGA).exp()
        log_density = -0.5 * gaussian.square() - self.log_std_NGA - 0.9189385332046727
        return (log_density - torch.log1p(-action.square())).sum(-1)

    def entropy(self, noise_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N G"]:
        """Estimate of the differential entropy in nats, unbiased: the Gaussian's, plus what the tanh takes from it at
        the one action that the noise makes (the mean of that has no closed form). At most log 2 a dimension on average.
        """
        gaussian = self.mean_NGA + self.log_std_NGA.exp() * noise_NGA
        log_slope = 2.0 * (math.log(2.0) - gaussian - functional.softplus(-2.0 * gaussian))
        return (self.log_std_NGA + 1.4189385332046727 + log_slope).sum(-1)

    def sample(self, generator: torch.Generator) -> Float[Tensor, "N G A"]:
        """One action for every discount."""
        mean = self.mean_NGA
        return self.action_vector(torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device))

    def action_vector(self, noise_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N G A"]:
        """The action that standard normal noise makes: gradients reach mean and deviation."""
        return (self.mean_NGA + self.log_std_NGA.exp() * noise_NGA).tanh()

    def expected_value(self, q: QFunction, noise_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N K G"]:
        """q of the action that the noise makes; gradients reach the policy through it."""
        return q(self.action_vector(noise_NGA))

    def mode(self) -> Float[Tensor, "N G A"]:
        """tanh of the mean."""
        return self.mean_NGA.tanh()


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
