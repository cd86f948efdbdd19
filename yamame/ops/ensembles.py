"""Reductions over an ensemble of critics."""

import torch
from jaxtyping import Float
from torch import Tensor


def random_subset_min(q_NKG: Float[Tensor, "N K G"], subset: int, generator: torch.Generator) -> Float[Tensor, "N G"]:
    """Minimum over `subset` of the K critics, drawn without replacement for every token and discount anew.

    Source: paper appendix A (REDQ). The authors' code draws with replacement, and so uses one critic twice in a
    quarter of its targets; the paper's text does not.
    """
    members = q_NKG.shape[1]
    if subset >= members:
        return q_NKG.amin(dim=1)
    key = torch.rand(q_NKG.shape, generator=generator, device=q_NKG.device)
    chosen = key.argsort(dim=1)[:, :subset]
    return q_NKG.gather(1, chosen).amin(dim=1)
