"""The loss of distillation: how unlikely the agent finds the actions of a history."""

from jaxtyping import Float, Shaped
from torch import Tensor

from yamame.nets.heads.actor import PolicyDistribution
from yamame.nets.heads.distributions import CategoricalPolicy, FactoredPolicy, SampledCategoricalPolicy
from yamame.nets.heads.tanh_gaussian import TanhGaussianPolicy


def imitation_loss(
    policy: PolicyDistribution, action: Shaped[Tensor, "N ..."], label_smoothing: float
) -> Float[Tensor, "N"]:
    """Return -(1 - s) log p(a) - s mean_b log p(b) of every token, in nats.

    a is the action of the history, b any allowed choice, and s the label smoothing; of several components it is the sum
    of theirs. Of a Box it is the negative log-density of the action. An action that the mask forbids has an infinite
    loss. Source: Laskin et al. 2022, with labels smoothed as by Szegedy et al. 2016.

    Args:
        policy: Distribution of the next action, of one gamma.
        action: As in `Batch.action`.
        label_smoothing: s, in [0, 1); 0 for a Box.
    """
    loss_N = -policy.log_prob(action)[:, 0]
    if not label_smoothing or isinstance(policy, TanhGaussianPolicy):
        return loss_N
    return (1.0 - label_smoothing) * loss_N - label_smoothing * mean_log_prob(policy)


def mean_log_prob(policy: CategoricalPolicy | SampledCategoricalPolicy | FactoredPolicy) -> Float[Tensor, "N"]:
    """Return the mean log-probability of the allowed choices, summed over components."""
    if isinstance(policy, FactoredPolicy):
        return _of_choices(policy.categorical).unflatten(0, (-1, policy.components.count)).sum(1)
    return _of_choices(policy)


def _of_choices(policy: CategoricalPolicy | SampledCategoricalPolicy) -> Float[Tensor, "N"]:
    log_prob_NA = policy.log_softmax_NGA[:, 0]
    if policy.allowed_N1A is None:
        return log_prob_NA.mean(1)
    allowed_NA = policy.allowed_N1A[:, 0]
    return log_prob_NA.where(allowed_NA, 0.0).sum(1) / allowed_NA.sum(1)
