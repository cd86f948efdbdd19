"""Action distributions for G gammas at once."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

QFunction = Callable[[Shaped[Tensor, "N G _"]], Float[Tensor, "N K G"]]
"""Q values of one action per token and gamma: vectors, or the choices of C components where these are embedded."""


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
    replicator: bool = False
    """Expected values have the gradient of replicator dynamics (`replicator.py`) instead of that of the softmax."""

    @staticmethod
    def from_logits(
        logits_NGA: Float[Tensor, "N G A"],
        clip: tuple[float, float],
        allowed_N1A: Bool[Tensor, "N 1 A"] | None = None,
        *,
        replicator: bool = False,
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
            replicator=replicator,
        )

    def log_prob(self, action_N: Shaped[Tensor, "N"]) -> Float[Tensor, "N G"]:
        """Return the log-probability of one action per token under the softmax for every gamma; -inf if masked."""
        index = action_N[:, None, None].expand(-1, self.log_softmax_NGA.shape[1], 1)
        return self.log_softmax_NGA.gather(2, index).squeeze(2)

    def executed_log_prob(self, action_N: Shaped[Tensor, "N"]) -> Float[Tensor, "N G"]:
        """Return the log-probability to compare with that of `acting_log_prob`: `log_prob`."""
        return self.log_prob(action_N)

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
        """Sample one action for every gamma, by inverting the cumulative distribution.

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
        """Return the most likely action for every gamma."""
        return self.log_softmax_NGA.argmax(-1)


def _log_softmax(logits_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N G A"]:
    """`log_softmax` over the last dimension. On a CPU, PyTorch is several times slower over a short last dimension than
    over any other one."""
    return logits_NGA.transpose(1, 2).contiguous().log_softmax(dim=1).transpose(1, 2).contiguous()


_MAX_RUNNING_SUM = 256
"""Choices above which the cumulative distribution is computed block by block."""


@dataclass(frozen=True, kw_only=True)
class SampledCategoricalPolicy:
    """Softmax over so many actions that critics evaluate samples, and acting alone computes clipped probabilities.

    Noise is uniform in [0, 1), one number per token and gamma; None: the mode in place of a sample. Values and
    entropies are those of the softmax. Differs from the paper, whose critics evaluate every action.
    """

    log_softmax_NGA: Float[Tensor, "N G A"]
    allowed_N1A: Bool[Tensor, "N 1 A"] | None = None
    """Action mask; None: all actions are allowed."""
    clip: tuple[float, float]
    _last: list[tuple[Tensor, Tensor]] = field(default_factory=list, init=False, repr=False)
    """The last noise and its sample, which values and entropy share."""

    @staticmethod
    def from_logits(
        logits_NGA: Float[Tensor, "N G A"], clip: tuple[float, float], allowed_N1A: Bool[Tensor, "N 1 A"] | None = None
    ) -> "SampledCategoricalPolicy":
        """Return the distribution of logits. Every token must allow at least one action."""
        if allowed_N1A is not None:
            logits_NGA = logits_NGA.masked_fill(~allowed_N1A, -torch.inf)
        log_softmax_NGA = _log_softmax(logits_NGA) if logits_NGA.shape[2] < 64 else logits_NGA.log_softmax(-1)
        return SampledCategoricalPolicy(log_softmax_NGA=log_softmax_NGA, allowed_N1A=allowed_N1A, clip=clip)

    @property
    def acting(self) -> CategoricalPolicy:
        """The distribution with which the policy acts, without gradients."""
        return CategoricalPolicy.from_logits(self.log_softmax_NGA.detach(), self.clip, self.allowed_N1A)

    @property
    def probability_NGA(self) -> Float[Tensor, "N G A"]:
        """Clipped and renormalized probabilities, without gradients."""
        return self.acting.probability_NGA

    def log_prob(self, action_N: Shaped[Tensor, "N"]) -> Float[Tensor, "N G"]:
        """Return the log-probability of one action per token for every gamma; -inf if masked."""
        return _gather_choice(self.log_softmax_NGA, action_N[:, None].expand(-1, self.log_softmax_NGA.shape[1]))

    def executed_log_prob(self, action_N: Shaped[Tensor, "N"]) -> Float[Tensor, "N G"]:
        """Return the log-probability to compare with that of `acting_log_prob`: `log_prob`."""
        return self.log_prob(action_N)

    def acting_log_prob(
        self, action_N: Shaped[Tensor, "N"], epsilon_N: Float[Tensor, "N"], *, deterministic: bool
    ) -> Float[Tensor, "N G"]:
        """Return the log-probability with which an action is executed, as `CategoricalPolicy` does."""
        return self.acting.acting_log_prob(action_N, epsilon_N, deterministic=deterministic)

    def entropy(self, noise_NG1: Float[Tensor, "N G 1"] | None = None) -> Float[Tensor, "N G"]:
        """Return an estimate of the entropy in nats from the sample, whose gradient is unbiased, too."""
        log_prob_NG = _gather_choice(self.log_softmax_NGA, self.pick(noise_NG1))
        surprise_NG = -log_prob_NG.detach()
        return surprise_NG + surprise_NG * (log_prob_NG - log_prob_NG.detach())

    def sample(self, generator: torch.Generator) -> Shaped[Tensor, "N G"]:
        """Sample one action for every gamma from the clipped probabilities."""
        return self.acting.sample(generator)

    def choose(self, noise_NGA: Float[Tensor, "N G A"]) -> Shaped[Tensor, "N G"]:
        """Return the sample of the clipped probabilities made from standard Gumbel noise."""
        return self.acting.choose(noise_NGA)

    def mode(self) -> Shaped[Tensor, "N G"]:
        """Return the most likely action for every gamma."""
        return self.log_softmax_NGA.argmax(-1)

    @torch.no_grad()
    def pick(self, noise_NG1: Float[Tensor, "N G 1"] | None) -> Shaped[Tensor, "N G"]:
        """Return the sample of the softmax made from uniform noise, by inverting the cumulative distribution."""
        if noise_NG1 is None:
            return self.mode()
        if self._last and self._last[0][0] is noise_NG1:
            return self._last[0][1]
        probability_NGA = self.log_softmax_NGA.exp()
        num_choices = probability_NGA.shape[2]
        if num_choices <= _MAX_RUNNING_SUM:
            choice_NG = _invert(probability_NGA, noise_NG1)[0].squeeze(2)
        else:  # a block first, then a choice in it: sums are faster than running sums
            size = math.isqrt(num_choices)
            blocks_NGBK = functional.pad(probability_NGA, (0, -num_choices % size)).unflatten(2, (-1, size))
            block_NG1, rest_NG1 = _invert(blocks_NGBK.sum(-1), noise_NG1)
            index = block_NG1[..., None].expand(-1, -1, -1, size)
            within_NG1, _ = _invert(blocks_NGBK.gather(2, index).squeeze(2), rest_NG1)
            choice_NG = (block_NG1 * size + within_NG1).squeeze(2)
        self._last[:] = [(noise_NG1, choice_NG)]
        return choice_NG

    def action_vector(self, noise_NG1: Float[Tensor, "N G 1"] | None) -> Shaped[Tensor, "N G 1"]:
        """Return the sampled choices, which critics embed."""
        return self.pick(noise_NG1)[..., None]

    def expected_value(self, q: QFunction, noise_NG1: Float[Tensor, "N G 1"] | None) -> Float[Tensor, "N K G"]:
        """Return q of the sample, with an unbiased gradient of the expectation under the softmax: see
        `FactoredPolicy.expected_value`."""
        choice_NG = self.pick(noise_NG1)
        if not self.log_softmax_NGA.requires_grad:
            return q(choice_NG[..., None])
        with torch.no_grad():
            value_NKG = q(choice_NG[..., None])
            advantage_NKG = value_NKG - q(self.mode()[..., None]).amin(1, keepdim=True)
        log_prob_NG = _gather_choice(self.log_softmax_NGA, choice_NG)
        return value_NKG + (log_prob_NG - log_prob_NG.detach())[:, None] * advantage_NKG


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
    categorical: CategoricalPolicy | SampledCategoricalPolicy
    """Distribution of M = N C rows, component by component within a token. With `SampledCategoricalPolicy`, critics
    embed choices, and noise is uniform `[N, G, C]`."""

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
        *,
        sampled: bool = False,
    ) -> "FactoredPolicy":
        """Return the distribution of logits, with the probability clip applied to each component."""
        allowed = components.pad_mask(mask_NA, logits_NGA.shape[0])
        kind = SampledCategoricalPolicy if sampled else CategoricalPolicy
        categorical = kind.from_logits(components.pad(logits_NGA), clip, allowed)
        return FactoredPolicy(components=components, categorical=categorical)

    def log_prob(self, action_NC: Shaped[Tensor, "N C"]) -> Float[Tensor, "N G"]:
        """Return the log-probability of one action per token under the softmaxes for every gamma; -inf if masked."""
        return self._per_component(self.categorical.log_prob(action_NC.flatten())).sum(1)

    def executed_log_prob(self, action_NC: Shaped[Tensor, "N C"]) -> Float[Tensor, "N G"]:
        """Return the log-probability to compare with that of `acting_log_prob`: `log_prob`."""
        return self.log_prob(action_NC)

    def acting_log_prob(
        self, action_NC: Shaped[Tensor, "N C"], epsilon_N: Float[Tensor, "N"], *, deterministic: bool
    ) -> Float[Tensor, "N G"]:
        """Return the log-probability with which an action is executed; noise replaces each component on its own."""
        epsilon_M = epsilon_N.repeat_interleave(self.components.count)
        log_prob_MG = self.categorical.acting_log_prob(action_NC.flatten(), epsilon_M, deterministic=deterministic)
        return self._per_component(log_prob_MG).sum(1)

    def entropy(self, noise_NGA: Float[Tensor, "N G _"] | None = None) -> Float[Tensor, "N G"]:
        """Return the entropy in nats: exact, or of `SampledCategoricalPolicy` an estimate."""
        noise = self._noise_rows(noise_NGA) if isinstance(self.categorical, SampledCategoricalPolicy) else None
        return self._per_component(self.categorical.entropy(noise)).sum(1)

    def sample(self, generator: torch.Generator) -> Shaped[Tensor, "N G C"]:
        """Sample one action for every gamma."""
        return self._per_component(self.categorical.sample(generator)).movedim(1, 2)

    def choose(self, noise_NGA: Float[Tensor, "N G A"]) -> Shaped[Tensor, "N G C"]:
        """Return the sample made from standard Gumbel noise."""
        choice_MG = self.categorical.choose(self.components.pad(noise_NGA))
        return self._per_component(choice_MG).movedim(1, 2)

    def mode(self) -> Shaped[Tensor, "N G C"]:
        """Return the most likely choice of each component for every gamma."""
        return self._per_component(self.categorical.mode()).movedim(1, 2)

    def action_vector(self, noise_NGA: Float[Tensor, "N G _"] | None) -> Shaped[Tensor, "N G _"]:
        """Return the sample as concatenated one-hot vectors or, where they are embedded, choices; without gradient.

        It is made from standard Gumbel noise `[N, G, A]`, or that of `SampledCategoricalPolicy`.
        """
        return self._vector(self._choice(noise_NGA))

    def expected_value(self, q: QFunction, noise_NGA: Float[Tensor, "N G _"] | None) -> Float[Tensor, "N K G"]:
        """Return q of the sample made from the noise, with an unbiased gradient of the expectation under the softmaxes.

        It is unbiased for every critic and for the minimum over critics. The gradient is the score function with the
        minimum of q of the mode as baseline, the same for all critics: with one of its own each, the minimum's would
        depend on the action. It is importance-weighted where clipping changed the probability. Differs from the
        authors' later code, which uses a straight-through Gumbel-softmax: q is untrained between one-hot vectors, and
        policies that were right drifted away.
        """
        choice_MG = self._choice(noise_NGA)
        if not self.categorical.log_softmax_NGA.requires_grad:
            return q(self._vector(choice_MG))
        with torch.no_grad():
            value_NKG = q(self._vector(choice_MG))
            advantage_NKG = value_NKG - q(self._vector(self.categorical.mode())).amin(1, keepdim=True)
            acting_MG = None
            if isinstance(self.categorical, CategoricalPolicy):
                acting_MG = _gather_choice(self.categorical.probability_NGA, choice_MG).log()
        log_prob_MG = _gather_choice(self.categorical.log_softmax_NGA, choice_MG)
        log_ratio_MG = log_prob_MG - (log_prob_MG.detach() if acting_MG is None else acting_MG)
        ratio_NG = self._per_component(log_ratio_MG).sum(1).exp()
        return value_NKG + (ratio_NG - ratio_NG.detach())[:, None] * advantage_NKG

    @torch.no_grad()
    def _choice(self, noise_NGA: Float[Tensor, "N G _"] | None) -> Shaped[Tensor, "M G"]:
        if isinstance(self.categorical, SampledCategoricalPolicy):
            return self.categorical.pick(self._noise_rows(noise_NGA))
        assert noise_NGA is not None
        return self.categorical.choose(self.components.pad(noise_NGA))

    def _vector(self, choice_MG: Shaped[Tensor, "M G"]) -> Shaped[Tensor, "N G _"]:
        if isinstance(self.categorical, SampledCategoricalPolicy):
            return self._per_component(choice_MG).movedim(1, 2)
        one_hots = torch.zeros_like(self.categorical.probability_NGA).scatter(-1, choice_MG[..., None], 1.0)
        return self.components.unpad(one_hots)

    def _noise_rows(self, noise_NGC: Float[Tensor, "N G C"] | None) -> Float[Tensor, "M G 1"] | None:
        return None if noise_NGC is None else noise_NGC.movedim(2, 1).flatten(0, 1)[..., None]

    def _per_component(self, value: Shaped[Tensor, "M G"]) -> Shaped[Tensor, "N C G"]:
        return value.unflatten(0, (-1, self.components.count))


def _invert(
    weight_NGK: Float[Tensor, "N G K"], uniform_NG1: Float[Tensor, "N G 1"]
) -> tuple[Shaped[Tensor, "N G 1"], Float[Tensor, "N G 1"]]:
    """Return a choice with probabilities proportional to the weights, never one of 0, and the noise that is left."""
    cumulative_NGK = weight_NGK.cumsum(-1)
    total_NG1 = cumulative_NGK[..., -1:].contiguous()
    scaled_NG1 = uniform_NG1 * total_NG1
    choice_NG1 = torch.searchsorted(cumulative_NGK, scaled_NG1, right=True)
    # rounding may select what comes after the last choice that is possible
    choice_NG1 = torch.minimum(choice_NG1, torch.searchsorted(cumulative_NGK, total_NG1))
    weight_NG1 = weight_NGK.gather(2, choice_NG1)
    left_NG1 = (scaled_NG1 - (cumulative_NGK.gather(2, choice_NG1) - weight_NG1)) / weight_NG1
    return choice_NG1, left_NG1.clamp(0.0, 1.0)


def _gather_choice(values_MGK: Float[Tensor, "M G K"], choice_MG: Shaped[Tensor, "M G"]) -> Float[Tensor, "M G"]:
    return values_MGK.gather(2, choice_MG[..., None]).squeeze(2)
