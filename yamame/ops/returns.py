"""Discounted targets over flat tokens."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def n_step_target(
    *,
    reward_N: Float[Tensor, "N"],
    terminal_N: Bool[Tensor, "N"],
    valid_N: Bool[Tensor, "N"],
    value_NG: Float[Tensor, "N G"],
    discounts_G: Float[Tensor, "G"],
    n: int,
) -> Float[Tensor, "N G"]:
    """y_t = r_t + gamma r_(t+1) + ... + gamma^n V_(t+n), stopping at a terminal step, for every token and discount.

    `value_NG[t]` is the value of the state at token t. A window that ends before t + n is bootstrapped from its last
    slot, with as many rewards as there are. Tokens that are not valid come back as their own value.
    """
    target_NG = value_NG
    for _ in range(n):
        following_NG = torch.cat([target_NG[1:], target_NG[-1:]])
        continues_NG = torch.where(terminal_N, 0.0, 1.0)[:, None] * discounts_G
        backed_up_NG = reward_N[:, None] + continues_NG * following_NG
        target_NG = torch.where(valid_N[:, None], backed_up_NG, value_NG)
    return target_NG
