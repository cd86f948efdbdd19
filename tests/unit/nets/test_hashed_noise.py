"""The noise of exported policies: the documented function of seed, time and index, and distributed as it should be."""

import numpy as np
import pytest
import torch
from scipy import stats

from yamame.nets.hashed_noise import hashed_gumbel, hashed_normal, hashed_uniform

SEEDS, TIMES, COUNT = 60, 60, 8


def grid() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(SEEDS).repeat_interleave(TIMES), torch.arange(TIMES).repeat(SEEDS)


def exact(seed: int, time: int, index: int) -> float:
    prime = 2**31 - 1
    x = (742_938_285 * seed + 950_706_376 * time + 1_226_874_159 * index) % prime
    for constant in (1_367_130_551, 608_135_816, 2_054_624_237, 1_160_258_022):
        x = (pow(x, 5, prime) + constant) % prime
    return (x // 256 + 0.5) / 2**23


def test_it_is_the_documented_function() -> None:
    seeds, times = [0, 1, 2**31 - 2, 2**31 + 5, 12345], [0, 1, 10_000, 3, 2**40]
    found = hashed_uniform(torch.tensor(seeds), torch.tensor(times), 3)
    assert found.tolist() == [[exact(seed, time, i) for i in range(3)] for seed, time in zip(seeds, times, strict=True)]


def test_uniform_numbers_are_inside_the_interval_and_independent_of_their_neighbors() -> None:
    u = hashed_uniform(*grid(), COUNT).double().numpy().reshape(SEEDS, TIMES, COUNT)
    assert u.min() > 0 and u.max() < 1
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-3
    for one, other in ((u[1:], u[:-1]), (u[:, 1:], u[:, :-1]), (u[..., 1:], u[..., :-1]), (u[1:, :-1], u[:-1, 1:])):
        counts, *_ = np.histogram2d(one.ravel(), other.ravel(), 16, ((0, 1), (0, 1)))
        assert stats.chisquare(counts.ravel()).pvalue > 1e-3


@pytest.mark.parametrize(("noise", "distribution"), [(hashed_gumbel, "gumbel_r"), (hashed_normal, "norm")])
def test_noise_has_its_distribution(noise: object, distribution: str) -> None:
    assert stats.kstest(noise(*grid(), COUNT).numpy().ravel(), distribution).pvalue > 1e-3  # type: ignore[operator]
