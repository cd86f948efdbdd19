"""Noise from a seed by integer arithmetic, the same in every runtime: for the sampled actions of exported policies."""

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor

PRIME = 2**31 - 1
"""Modulus. A product of two residues fits into int64, and x^5 is a permutation of them."""
_CONSTANTS = (1_367_130_551, 608_135_816, 2_054_624_237)
_BITS = 23
"""Bits of a number in (0, 1): its middle is exact in float32, and none is rounded to 1."""


def hashed_uniform(seed_E: Int64[Tensor, "E"], time_E: Int64[Tensor, "E"], count: int) -> Float[Tensor, "E count"]:
    """Return numbers in (0, 1), a function of seed, time and index.

    h = mix(mix(mix(seed) + time) + index), where mix applies x <- (x^5 + c) mod (2^31 - 1) for each of three constants
    c; the number is (floor(h / 2^8) + 1/2) / 2^23. Source: the rounds of MiMC (Albrecht et al. 2016), at the size of a
    simulation instead of a cipher.
    """
    index = torch.arange(count, device=seed_E.device)
    state_E = _mix((_mix(seed_E % PRIME) + time_E) % PRIME)
    hashed = _mix((state_E[:, None] + index) % PRIME)
    return ((hashed // 2 ** (31 - _BITS)).to(torch.float32) + 0.5) / 2**_BITS


def hashed_gumbel(seed_E: Int64[Tensor, "E"], time_E: Int64[Tensor, "E"], count: int) -> Float[Tensor, "E count"]:
    """Return standard Gumbel noise, -log(-log u)."""
    return -(-hashed_uniform(seed_E, time_E, count).log()).log()


def hashed_normal(seed_E: Int64[Tensor, "E"], time_E: Int64[Tensor, "E"], count: int) -> Float[Tensor, "E count"]:
    """Return standard normal noise, sqrt(-2 log u[i]) cos(2 pi u[count + i])."""
    first, second = hashed_uniform(seed_E, time_E, 2 * count).chunk(2, dim=1)
    return (-2.0 * first.log()).sqrt() * (math.tau * second).cos()


def _mix(x: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
    for constant in _CONSTANTS:
        square = x * x % PRIME
        x = (square * square % PRIME * x + constant) % PRIME
    return x
