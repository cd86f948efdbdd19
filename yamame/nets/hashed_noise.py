"""Noise from a seed by integer arithmetic, the same in every runtime: for the sampled actions of exported policies."""

import math

import torch
from jaxtyping import Float, Int64
from torch import Tensor

PRIME = 2**31 - 1
"""Modulus. A product of two residues fits into int64, and x^5 is a permutation of them."""
FACTORS = (742_938_285, 950_706_376, 1_226_874_159)
"""Of seed, time and index."""
CONSTANTS = (1_367_130_551, 608_135_816, 2_054_624_237, 1_160_258_022)
"""Of the rounds."""
_BITS = 23
"""Bits of a number in (0, 1): its middle is exact in float32, and none is rounded to 1."""


def hashed_uniform(seed_E: Int64[Tensor, "E"], time_E: Int64[Tensor, "E"], count: int) -> Float[Tensor, "E count"]:
    """Return numbers in (0, 1), a function of seed, time and index.

    x = f1 seed + f2 time + f3 index, modulo p = `PRIME`, with f of `FACTORS`; then x <- (x^5 + c) mod p for each c of
    `CONSTANTS`; the number is (floor(x / 2^8) + 1/2) / 2^23. Source: the rounds of MiMC (Albrecht et al. 2016), at the
    size of a simulation instead of a cipher.
    """
    index = torch.arange(count, device=seed_E.device)
    terms = zip((seed_E[:, None], time_E[:, None], index), FACTORS, strict=True)
    x = sum(value % PRIME * factor % PRIME for value, factor in terms) % PRIME
    for constant in CONSTANTS:
        square = x * x % PRIME
        x = (square * square % PRIME * x + constant) % PRIME
    return ((x // 2 ** (31 - _BITS)).to(torch.float32) + 0.5) / 2**_BITS


def hashed_gumbel(seed_E: Int64[Tensor, "E"], time_E: Int64[Tensor, "E"], count: int) -> Float[Tensor, "E count"]:
    """Return standard Gumbel noise, -log(-log u)."""
    return -(-hashed_uniform(seed_E, time_E, count).log()).log()


def hashed_normal(seed_E: Int64[Tensor, "E"], time_E: Int64[Tensor, "E"], count: int) -> Float[Tensor, "E count"]:
    """Return standard normal noise, sqrt(-2 log u[i]) cos(2 pi u[count + i])."""
    first, second = hashed_uniform(seed_E, time_E, 2 * count).chunk(2, dim=1)
    return (-2.0 * first.log()).sqrt() * (math.tau * second).cos()
