"""Discounted targets over flat tokens."""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor


def n_step_target(
    *,
    reward_N: Float[Tensor, "N"],
    terminal_N: Bool[Tensor, "N"],
    valid_N: Bool[Tensor, "N"],
    value_NG: Float[Tensor, "N G"],
    gammas_G: Float[Tensor, "G"],
    n: int,
) -> Float[Tensor, "N G"]:
    """y_t = r_t + gamma r_(t+1) + ... + gamma^n V_(t+n), stopping at a terminal step, for every token and discount.

    `value_NG[t]` is the value of the state at token t. A window that ends before t + n is bootstrapped from its last
    slot, with as many rewards as there are. Tokens that are not valid come back as their own value.

    A backup over any number of steps is a map y_t = a_t + b_t V[end_t]. Such maps compose, so n steps take about
    log2 n compositions of doubled ones.
    """
    token_N = torch.arange(len(reward_N), device=reward_N.device)
    doubled = (
        torch.where(valid_N, reward_N, 0.0)[:, None].expand_as(value_NG),
        torch.where(valid_N[:, None], torch.where(terminal_N, 0.0, 1.0)[:, None] * gammas_G, 1.0),
        torch.where(valid_N, (token_N + 1).clamp(max=len(token_N) - 1), token_N),
    )
    backup = (torch.zeros_like(value_NG), torch.ones_like(value_NG), token_N)
    while n:
        if n & 1:
            backup = _compose(backup, doubled)
        doubled = _compose(doubled, doubled)
        n >>= 1
    offset_NG, factor_NG, end_N = backup
    return offset_NG + factor_NG * value_NG[end_N]


_Backup = tuple[Float[Tensor, "N G"], Float[Tensor, "N G"], Int64[Tensor, "N"]]


def _compose(first: _Backup, then: _Backup) -> _Backup:
    """The backup that takes the steps of `first`, then those of `then` from where it ended."""
    (offset, factor, end), (next_offset, next_factor, next_end) = first, then
    return offset + factor * next_offset[end], factor * next_factor[end], next_end[end]
