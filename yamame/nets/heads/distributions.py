"""Action distributions for G discounts at once."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

QFunction = Callable[[Float[Tensor, "N G A"]], Float[Tensor, "N K G"]]
"""Q values of one action vector per token and discount."""


@dataclass(frozen=True, kw_only=True)
class CategoricalPolicy:
    """Softmax over A discrete actions, sampled and evaluated with probabilities clipped to [low, high].

    The clip is the paper's ([0.001, 0.99] by default), so that no action is impossible or certain. Differs from the
    authors' code in the gradient: there a clipped probability has none, so that a policy which saturates early cannot
    recover (observed on T-Maze: docs/log.md). Here the clip is straight-through, and `log_prob` is that of the softmax.

    With an action mask the distribution covers the allowed actions; the others have probability exactly 0.
    """

    probability_NGA: Float[Tensor, "N G A"]
    """Clipped and renormalized probabilities, with the gradient of the softmax."""
    log_softmax_NGA: Float[Tensor, "N G A"]
    allowed_N1A: Bool[Tensor, "N 1 A"] | None = None
    """Action mask; None: all actions are allowed."""

    @staticmethod
    def from_logits(
        logits_NGA: Float[Tensor, "N G A"],
        clip: tuple[float, float],
        allowed_N1A: Bool[Tensor, "N 1 A"] | None = None,
    ) -> "CategoricalPolicy":
        """Return the distribution of logits. Every token must allow at least one action."""
        if allowed_N1A is not None:
            logits_NGA = logits_NGA.masked_fill(~allowed_N1A, -torch.inf)
        log_softmax = _log_softmax(logits_NGA)
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
        """Return the log-probability of one action per token under the softmax for every discount; -inf if masked."""
        index = action_N[:, None, None].expand(-1, self.log_softmax_NGA.shape[1], 1)
        return self.log_softmax_NGA.gather(2, index).squeeze(2)

    def acting_log_prob(
        self, action_N: Shaped[Tensor, "N"], epsilon_N: Float[Tensor, "N"], *, deterministic: bool
    ) -> Float[Tensor, "N G"]:
        """Return the log-probability with which an action is executed.

        Args:
            action_N: The action.
            epsilon_N: Probability that a uniform sample of the allowed actions replaced the policy's action.
            deterministic: The policy's action is its mode instead of a sample.
        """
        if deterministic:
            chosen_NG = (self.mode() == action_N[:, None]).to(epsilon_N.dtype)
        else:
            index = action_N[:, None, None].expand(-1, self.probability_NGA.shape[1], 1)
            chosen_NG = self.probability_NGA.gather(2, index).squeeze(2)
        num_allowed = self.probability_NGA.shape[2] if self.allowed_N1A is None else self.allowed_N1A.sum(-1)
        return torch.log((1.0 - epsilon_N[:, None]) * chosen_NG + epsilon_N[:, None] / num_allowed)

    def entropy(self, noise_NGA: Float[Tensor, "N G A"] | None = None) -> Float[Tensor, "N G"]:
        """Return the exact entropy in nats; the noise is ignored."""
        positive = self.probability_NGA
        if self.allowed_N1A is not None:
            positive = positive.where(self.allowed_N1A, 1.0)
        return -(self.probability_NGA * positive.log()).sum(-1)

    def sample(self, generator: torch.Generator) -> Shaped[Tensor, "N G"]:
        """Sample one action for every discount, by inverting the cumulative distribution.

        With an action mask, by the minimum of exponential variables, which never selects a probability of 0.
        """
        if self.allowed_N1A is not None:
            exponential = torch.empty_like(self.probability_NGA).exponential_(generator=generator)
            return (self.probability_NGA / exponential.clamp(min=torch.finfo(exponential.dtype).tiny)).argmax(-1)
        cumulative_NGA = self.probability_NGA.cumsum(-1)[..., :-1]  # the last may be below 1 by rounding
        shape = (*cumulative_NGA.shape[:2], 1)
        uniform = torch.rand(shape, generator=generator, dtype=cumulative_NGA.dtype, device=cumulative_NGA.device)
        return (uniform >= cumulative_NGA).sum(-1)

    def choose(self, noise_NGA: Float[Tensor, "N G A"]) -> Shaped[Tensor, "N G"]:
        """Return the sample made from standard Gumbel noise."""
        return (self.probability_NGA.log() + noise_NGA).argmax(-1)

    def mode(self) -> Shaped[Tensor, "N G"]:
        """Return the most likely action for every discount."""
        return self.probability_NGA.argmax(-1)


def _log_softmax(logits_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N G A"]:
    """`log_softmax` over the last dimension. On a CPU, PyTorch is several times slower over a short last dimension than
    over any other one."""
    return logits_NGA.transpose(1, 2).contiguous().log_softmax(dim=1).transpose(1, 2).contiguous()


@dataclass(frozen=True, kw_only=True)
class TanhGaussianPolicy:
    """tanh of a diagonal Gaussian with actions in (-1, 1)^A. log std = -5 + 3.5 (tanh(raw) + 1), within [-5, 2]."""

    mean_NGA: Float[Tensor, "N G A"]
    log_std_NGA: Float[Tensor, "N G A"]

    @staticmethod
    def from_outputs(raw_NGA: Float[Tensor, "N G twoA"]) -> "TanhGaussianPolicy":
        """Return the distribution of the actor's outputs."""
        mean, raw_log_std = raw_NGA.chunk(2, dim=-1)
        return TanhGaussianPolicy(mean_NGA=mean, log_std_NGA=-5.0 + 3.5 * (raw_log_std.tanh() + 1.0))

    def log_prob(self, action_NA: Float[Tensor, "N A"]) -> Float[Tensor, "N G"]:
        """Return the log-density of one action per token for every discount. Actions are clamped to +-0.99."""
        action = action_NA.clamp(-0.99, 0.99)[:, None]
        gaussian = (action.atanh() - self.mean_NGA) * (-self.log_std_NGA).exp()
        log_density = -0.5 * gaussian.square() - self.log_std_NGA - 0.9189385332046727
        return (log_density - torch.log1p(-action.square())).sum(-1)

    def acting_log_prob(
        self, action_NA: Float[Tensor, "N A"], epsilon_N: Float[Tensor, "N"], *, deterministic: bool
    ) -> Float[Tensor, "N G"]:
        """Return the log-density of an action under the policy without noise, whose density has no simple form."""
        return self.log_prob(action_NA)

    def entropy(self, noise_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N G"]:
        """Return an unbiased estimate of the differential entropy in nats, at most log 2 per dimension on average.

        It is the Gaussian's entropy plus the log-derivative of tanh at the action made from the noise, whose mean has
        no closed form.
        """
        gaussian = self.mean_NGA + self.log_std_NGA.exp() * noise_NGA
        log_slope = 2.0 * (math.log(2.0) - gaussian - functional.softplus(-2.0 * gaussian))
        return (self.log_std_NGA + 1.4189385332046727 + log_slope).sum(-1)

    def sample(self, generator: torch.Generator) -> Float[Tensor, "N G A"]:
        """Sample one action for every discount."""
        mean = self.mean_NGA
        return self.action_vector(torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device))

    def action_vector(self, noise_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N G A"]:
        """Return the action made from standard normal noise, with gradients to mean and std."""
        return (self.mean_NGA + self.log_std_NGA.exp() * noise_NGA).tanh()

    def expected_value(self, q: QFunction, noise_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N K G"]:
        """Return q of the action made from the noise, with a gradient to the policy."""
        return q(self.action_vector(noise_NGA))

    def mode(self) -> Float[Tensor, "N G A"]:
        """Return tanh of the mean."""
        return self.mean_NGA.tanh()


class DiscreteComponents(nn.Module):
    """Layouts of C components: concatenated in A, or padded to M = N C rows of K choices, the largest number.

    The padding is never allowed, so that one categorical covers all components.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        is_choice_CK = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
        first_C = torch.tensor([0, *accumulate(sizes)][:-1])
        self.count = len(sizes)
        self.is_choice_CK: Tensor
        self.index_CK: Tensor
        self.index_A: Tensor
        self.register_buffer("is_choice_CK", is_choice_CK, persistent=False)
        self.register_buffer(
            "index_CK", torch.where(is_choice_CK, first_C[:, None] + torch.arange(max(sizes)), 0), persistent=False
        )
        self.register_buffer("index_A", is_choice_CK.flatten().nonzero()[:, 0], persistent=False)

    def pad(self, x: Shaped[Tensor, "N G A"]) -> Shaped[Tensor, "M G K"]:
        """Return each component as a row, as if it were a token. Padding values are arbitrary."""
        x_NGCK = x.index_select(2, self.index_CK.flatten()).unflatten(2, self.index_CK.shape)
        return x_NGCK.movedim(2, 1).flatten(0, 1)

    def pad_mask(self, mask_NA: Bool[Tensor, "N A"] | None, num_tokens: int | torch.SymInt) -> Bool[Tensor, "M 1 K"]:
        """Return the rows of a mask with the padding masked."""
        if mask_NA is None:
            return self.is_choice_CK[:, None].repeat(num_tokens, 1, 1)
        return self.pad(mask_NA[:, None]) & self.is_choice_CK[:, None].repeat(num_tokens, 1, 1)

    def unpad(self, x: Shaped[Tensor, "M G K"]) -> Shaped[Tensor, "N G A"]:
        """Return concatenated components: the inverse of `pad`."""
        return x.unflatten(0, (-1, self.count)).movedim(1, 2).flatten(2).index_select(2, self.index_A)


@dataclass(frozen=True, kw_only=True)
class FactoredPolicy:
    """Independent softmaxes for C components. Log-probabilities and entropies are summed.

    Differs from the paper, which has one choice per step and an exact expectation Q(s, pi). There are too many joint
    actions for that, so critics take the action as an input, as for continuous actions.
    """

    components: DiscreteComponents
    categorical: CategoricalPolicy
    """Distribution of M = N C rows, component by component within a token."""

    @property
    def probability_NGA(self) -> Float[Tensor, "N G A"]:
        """Clipped and renormalized probabilities of the choices of all components, side by side."""
        return self.components.unpad(self.categorical.probability_NGA)

    @staticmethod
    def from_logits(
        logits_NGA: Float[Tensor, "N G A"],
        components: DiscreteComponents,
        clip: tuple[float, float],
        mask_NA: Bool[Tensor, "N A"] | None = None,
    ) -> "FactoredPolicy":
        """Return the distribution of logits, with the probability clip applied to each component."""
        allowed = components.pad_mask(mask_NA, logits_NGA.shape[0])
        categorical = CategoricalPolicy.from_logits(components.pad(logits_NGA), clip, allowed)
        return FactoredPolicy(components=components, categorical=categorical)

    def log_prob(self, action_NC: Shaped[Tensor, "N C"]) -> Float[Tensor, "N G"]:
        """Return the log-probability of one action per token under the softmaxes for every discount; -inf if masked."""
        return self._per_component(self.categorical.log_prob(action_NC.flatten())).sum(1)

    def acting_log_prob(
        self, action_NC: Shaped[Tensor, "N C"], epsilon_N: Float[Tensor, "N"], *, deterministic: bool
    ) -> Float[Tensor, "N G"]:
        """Return the log-probability with which an action is executed; noise replaces each component on its own."""
        epsilon_M = epsilon_N.repeat_interleave(self.components.count)
        log_prob_MG = self.categorical.acting_log_prob(action_NC.flatten(), epsilon_M, deterministic=deterministic)
        return self._per_component(log_prob_MG).sum(1)

    def entropy(self, noise_NGA: Float[Tensor, "N G A"] | None = None) -> Float[Tensor, "N G"]:
        """Return the exact entropy in nats; the noise is ignored."""
        return self._per_component(self.categorical.entropy()).sum(1)

    def sample(self, generator: torch.Generator) -> Shaped[Tensor, "N G C"]:
        """Sample one action for every discount."""
        return self._per_component(self.categorical.sample(generator)).movedim(1, 2)

    def choose(self, noise_NGA: Float[Tensor, "N G A"]) -> Shaped[Tensor, "N G C"]:
        """Return the sample made from standard Gumbel noise."""
        return self._per_component(self._choice(noise_NGA)).movedim(1, 2)

    def mode(self) -> Shaped[Tensor, "N G C"]:
        """Return the most likely choice of each component for every discount."""
        return self._per_component(self.categorical.mode()).movedim(1, 2)

    def action_vector(self, noise_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N G A"]:
        """Return the sample made from standard Gumbel noise as concatenated one-hot vectors, without gradient."""
        return self._vector(self._choice(noise_NGA))

    def expected_value(self, q: QFunction, noise_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N K G"]:
        """Return q of the sample made from the noise, with an unbiased gradient of the expectation under the softmaxes.

        The gradient is the score function with q of the mode as baseline, importance-weighted where clipping changed
        the probability. Differs from the authors' later code, which uses a straight-through Gumbel-softmax: q is
        untrained between one-hot vectors, and policies that were right drifted away.
        """
        choice_MG = self._choice(noise_NGA)
        with torch.no_grad():
            value_NKG = q(self._vector(choice_MG))
            advantage_NKG = value_NKG - q(self._vector(self.categorical.mode()))
            log_acting_MG = _gather_choice(self.categorical.probability_NGA, choice_MG).log()
        log_ratio_MG = _gather_choice(self.categorical.log_softmax_NGA, choice_MG) - log_acting_MG
        ratio_NG = self._per_component(log_ratio_MG).sum(1).exp()
        return value_NKG + (ratio_NG - ratio_NG.detach())[:, None] * advantage_NKG

    @torch.no_grad()
    def _choice(self, noise_NGA: Float[Tensor, "N G A"]) -> Shaped[Tensor, "M G"]:
        return self.categorical.choose(self.components.pad(noise_NGA))

    def _vector(self, choice_MG: Shaped[Tensor, "M G"]) -> Float[Tensor, "N G A"]:
        one_hots = torch.zeros_like(self.categorical.probability_NGA).scatter(-1, choice_MG[..., None], 1.0)
        return self.components.unpad(one_hots)

    def _per_component(self, value: Shaped[Tensor, "M G"]) -> Shaped[Tensor, "N C G"]:
        return value.unflatten(0, (-1, self.components.count))


def _gather_choice(values_MGK: Float[Tensor, "M G K"], choice_MG: Shaped[Tensor, "M G"]) -> Float[Tensor, "M G"]:
    return values_MGK.gather(2, choice_MG[..., None]).squeeze(2)
