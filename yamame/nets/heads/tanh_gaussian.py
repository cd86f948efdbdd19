"""`TanhGaussianPolicy`: the distribution of actions in a box, and the probability with which they are executed.

Executed actions are samples plus exploration noise, clipped.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from yamame.nets.heads.distributions import QFunction

BOUND = 0.99
"""Components beyond it are one event with a probability, since noise is clipped at 1; those within have a density."""
MIN_LOG_STD, MAX_LOG_STD = -5.0, 2.0
"""Range of the logarithm of the Gaussian's standard deviation."""
_NUM_NODES = 32
_HALF_LOG_TAU = 0.9189385332046727
"""log(2 pi) / 2: minus the log-density of the standard normal distribution at 0."""
_NORMAL_ENTROPY = 1.4189385332046727
"""Entropy of the standard normal distribution in nats: 1/2 + log(2 pi) / 2."""


@dataclass(frozen=True, kw_only=True)
class TanhGaussianPolicy:
    """tanh of a diagonal Gaussian, with actions in (-1, 1)^A.

    The logarithm of the standard deviation is the actor's output, mapped by tanh to [`MIN_LOG_STD`, `MAX_LOG_STD`].
    """

    mean_NGA: Float[Tensor, "N G A"]
    log_std_NGA: Float[Tensor, "N G A"]

    @staticmethod
    def from_outputs(raw_NGA: Float[Tensor, "N G twoA"]) -> "TanhGaussianPolicy":
        """Return the distribution of the actor's outputs."""
        mean, raw_log_std = raw_NGA.chunk(2, dim=-1)
        half_range = 0.5 * (MAX_LOG_STD - MIN_LOG_STD)
        return TanhGaussianPolicy(mean_NGA=mean, log_std_NGA=MIN_LOG_STD + half_range * (raw_log_std.tanh() + 1.0))

    def log_prob(self, action_NA: Float[Tensor, "N A"]) -> Float[Tensor, "N G"]:
        """Return the log-density of one action per token for every gamma. Actions are clamped to +-0.99."""
        action = action_NA.clamp(-0.99, 0.99)[:, None]
        gaussian = (action.atanh() - self.mean_NGA) * (-self.log_std_NGA).exp()
        log_density = -0.5 * gaussian.square() - self.log_std_NGA - _HALF_LOG_TAU
        return (log_density - torch.log1p(-action.square())).sum(-1)

    def executed_log_prob(self, action_NA: Float[Tensor, "N A"]) -> Float[Tensor, "N G"]:
        """Return the log-probability to compare with that of `acting_log_prob`; unlike `log_prob`, without a clamp."""
        return executed_log_prob(self.mean_NGA, self.log_std_NGA, action_NA)

    def acting_log_prob(
        self, action_NA: Float[Tensor, "N A"], epsilon_N: Float[Tensor, "N"], *, deterministic: bool
    ) -> Float[Tensor, "N G"]:
        """Return `executed_log_prob` of actions with noise of standard deviation epsilon.

        A mode counts as a sample, since it has no density.
        """
        return executed_log_prob(self.mean_NGA, self.log_std_NGA, action_NA, epsilon_N)

    def entropy(self, noise_NGA: Float[Tensor, "N G A"]) -> Float[Tensor, "N G"]:
        """Return an unbiased estimate of the differential entropy in nats, at most log 2 per dimension on average.

        It is the Gaussian's entropy plus the log-derivative of tanh at the action made from the noise, whose mean has
        no closed form.
        """
        gaussian = self.mean_NGA + self.log_std_NGA.exp() * noise_NGA
        log_slope = 2.0 * (math.log(2.0) - gaussian - functional.softplus(-2.0 * gaussian))
        return (self.log_std_NGA + _NORMAL_ENTROPY + log_slope).sum(-1)

    def sample(self, generator: torch.Generator) -> Float[Tensor, "N G A"]:
        """Sample one action for every gamma."""
        mean = self.mean_NGA
        return self.action_vector(torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device))

    def action_vector(self, noise_NGA: Float[Tensor, "N G A"] | None) -> Float[Tensor, "N G A"]:
        """Return the action made from standard normal noise, with gradients to mean and std; None: the mode."""
        if noise_NGA is None:
            return self.mode()
        return (self.mean_NGA + self.log_std_NGA.exp() * noise_NGA).tanh()

    def expected_value(self, q: QFunction, noise_NGA: Float[Tensor, "N G A"] | None) -> Float[Tensor, "N K G"]:
        """Return q of the action made from the noise, with a gradient to the policy."""
        return q(self.action_vector(noise_NGA))

    def mode(self) -> Float[Tensor, "N G A"]:
        """Return tanh of the mean."""
        return self.mean_NGA.tanh()


def executed_log_prob(
    mean_NGA: Float[Tensor, "N G A"],
    log_std_NGA: Float[Tensor, "N G A"],
    action_NA: Float[Tensor, "N A"],
    epsilon_N: Float[Tensor, "N"] | None = None,
) -> Float[Tensor, "N G"]:
    """Return the log-probability of `clip(tanh(mean + std normal) + epsilon normal, -1, 1)`, summed over components.

    It is a density within `BOUND` and a probability beyond it, so that ratios are meaningful between policies and noise
    levels. Integrals over the action before the noise are sums at 32 quantiles of the policy and at 32 of the noise,
    weighted by the balance heuristic (Veach and Guibas 1995), which is accurate whichever of the two is narrower.
    Noise that is repeated from step to step counts as new noise.

    Args:
        mean_NGA: Mean of the Gaussian below tanh.
        log_std_NGA: Logarithm of its standard deviation.
        action_NA: Executed actions, within [-1, 1].
        epsilon_N: Standard deviation of the noise; None: no noise.
    """
    std, action = log_std_NGA.exp(), action_NA[:, None]
    density = _log_density(action.clamp(-BOUND, BOUND), mean_NGA, log_std_NGA)
    beyond = torch.special.log_ndtr((action.sign() * mean_NGA - math.atanh(BOUND)) / std)
    log_prob = torch.where(action.abs() >= BOUND, beyond, density)
    if epsilon_N is not None and epsilon_N.any():
        epsilon = epsilon_N[:, None, None]
        noisy = _noisy_log_prob(mean_NGA, log_std_NGA, action, epsilon.clamp(min=1e-6))
        log_prob = torch.where(epsilon > 0.0, noisy, log_prob)
    return log_prob.sum(-1)


def _noisy_log_prob(
    mean_NGA: Float[Tensor, "N G A"],
    log_std_NGA: Float[Tensor, "N G A"],
    action_N1A: Float[Tensor, "N 1 A"],
    epsilon_N11: Float[Tensor, "N 1 1"],
) -> Float[Tensor, "N G A"]:
    quantile = (torch.arange(_NUM_NODES, dtype=mean_NGA.dtype, device=mean_NGA.device) + 0.5) / _NUM_NODES
    z_K = torch.special.ndtri(quantile)
    height_K = torch.exp(-0.5 * z_K.square()) / (2.0 * torch.pi) ** 0.5
    mean, log_std, action, epsilon = (each[..., None] for each in (mean_NGA, log_std_NGA, action_N1A, epsilon_N11))
    # nodes of the policy: its density there, as a reciprocal, and the noise's
    before = (mean + log_std.exp() * z_K).tanh()
    slope = log_std.exp() * (1.0 - before.square()) / height_K
    distance = (action - before) / epsilon
    noise = torch.exp(-0.5 * distance.square()) / (epsilon * (2.0 * torch.pi) ** 0.5)
    density = (noise / (1.0 + noise * slope)).mean(-1)
    # nodes of the noise
    before_noise = action - epsilon * z_K
    inside = before_noise.abs() < 1.0
    policy = _log_density(before_noise.clamp(-1.0 + 1e-6, 1.0 - 1e-6), mean, log_std).exp() * inside
    density = density + (policy / (1.0 + policy * epsilon / height_K)).mean(-1)
    # beyond the bound: a sum over the narrower of the two, of what the wider has there
    beyond_of_noise = torch.special.ndtr((action.sign() * before - BOUND) / epsilon).mean(-1)
    least = BOUND - epsilon * z_K
    threshold = least.clamp(-1.0 + 1e-6, 1.0 - 1e-6).atanh()
    exceeds = torch.special.ndtr((action.sign() * mean - threshold) * (-log_std).exp())
    # no action of the policy is beyond 1, where the noise is on its way back
    beyond_of_policy = torch.where(least >= 1.0, 0.0, torch.where(least <= -1.0, 1.0, exceeds)).mean(-1)
    beyond = torch.where(epsilon[..., 0] > before.std(-1), beyond_of_noise, beyond_of_policy)
    return torch.where(action_N1A.abs() >= BOUND, beyond, density).clamp(min=1e-30).log()


def _log_density(
    action: Float[Tensor, "*#shape"], mean: Float[Tensor, "*#shape"], log_std: Float[Tensor, "*#shape"]
) -> Float[Tensor, "*#shape"]:
    gaussian = (action.atanh() - mean) * (-log_std).exp()
    return -0.5 * gaussian.square() - log_std - _HALF_LOG_TAU - torch.log1p(-action.square())
