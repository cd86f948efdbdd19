"""The gradient of replicator dynamics, with which a policy leaves an action that it takes nearly always."""

import torch
from jaxtyping import Float
from torch import Tensor

from yamame.nets.heads.distributions import CategoricalPolicy

_MARGIN = 1e-5
"""Distance from 0 and 1 up to which probabilities move: trials of a thousand steps have a random action at times."""


def replicator_expectation(q_NKGA: Float[Tensor, "N K G A"], policy: CategoricalPolicy) -> Float[Tensor, "N K G"]:
    """Return the expected value of an action, with the gradient of replicator dynamics (NeuRD, Hennes et al. 2020).

    The gradient of the softmax moves the logit of an action a by p(a) (Q(a) - V): hardly, where another one is nearly
    certain, however bad that one has proved to be. This one moves it by Q(a) less the mean over the allowed actions,
    divided by their number, while the probability is within 1e-5 and 1 - 1e-5 or moves back. Differs from the source,
    which limits logits.

    Args:
        q_NKGA: Values without gradient.
        policy: With a gradient.
    """
    expected_NKG = (q_NKGA * policy.probability_NGA.detach()[:, None]).sum(-1)
    log_softmax_N1GA = policy.log_softmax_NGA[:, None]
    if policy.allowed_N1A is None:
        force_NKGA = (q_NKGA - q_NKGA.mean(-1, keepdim=True)) / q_NKGA.shape[-1]
    else:
        allowed_N11A = policy.allowed_N1A[:, None]
        count_N111 = allowed_N11A.sum(-1, keepdim=True)
        mean_NKG1 = q_NKGA.where(allowed_N11A, 0.0).sum(-1, keepdim=True) / count_N111
        force_NKGA = ((q_NKGA - mean_NKG1) / count_N111).where(allowed_N11A, 0.0)
        log_softmax_N1GA = log_softmax_N1GA.where(allowed_N11A, 0.0)
    softmax_N1GA = log_softmax_N1GA.detach().exp()
    moves_NKGA = torch.where(force_NKGA > 0, softmax_N1GA < 1.0 - _MARGIN, softmax_N1GA > _MARGIN)
    return expected_NKG + (force_NKGA * moves_NKGA * (log_softmax_N1GA - log_softmax_N1GA.detach())).sum(-1)
