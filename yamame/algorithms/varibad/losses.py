"""The evidence lower bound of variBAD: how well rewards are predicted, and how far the belief moves at each step."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from yamame.algorithms.varibad.belief import Belief


def belief_kl(belief: Belief, first_N: Bool[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Return KL(q_t || q_(t-1)) of every token in nats, for the first token of a window KL(q_0 || N(0, I)).

    Source: Zintgraf et al. 2020, equation 8: the prior of a step is the belief before it. Gradients reach both.

    Args:
        belief: q after every token, windows end to end.
        first_N: Whether a token is the first of its window.
    """
    mean_NZ, log_variance_NZ = belief
    prior_mean_NZ, prior_log_variance_NZ = (
        torch.where(first_N[:, None], 0.0, torch.cat([each[:1], each[:-1]])) for each in belief
    )
    difference_NZ = log_variance_NZ - prior_log_variance_NZ
    moved_NZ = (mean_NZ - prior_mean_NZ).square() * (-prior_log_variance_NZ).exp()
    return 0.5 * (difference_NZ.exp() - 1.0 - difference_NZ + moved_NZ).sum(1)


def reconstruction_error(
    prediction_BML: Float[Tensor, "B M L"],
    target_BL: Float[Tensor, "B L"],
    decoded_BM: Bool[Tensor, "B M"],
    transition_BL: Bool[Tensor, "B L"],
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the sum of the squared errors of all predictions, and their number.

    It is the negative log-density of a Gaussian with a variance of 1/2, up to a constant.

    Args:
        prediction_BML: Reward of transition l as predicted from the belief after token m of window b.
        target_BL: Normalized rewards.
        decoded_BM: Beliefs that count; the others are of padding.
        transition_BL: Transitions that count, likewise.
    """
    counts_BML = decoded_BM[:, :, None] & transition_BL[:, None]
    error_BML = torch.where(counts_BML, prediction_BML - target_BL[:, None], 0.0)
    return error_BML.square().sum(), counts_BML.sum().to(error_BML.dtype)
