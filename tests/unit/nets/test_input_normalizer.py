import math

import numpy as np
import pytest
import torch
from torch import Tensor

from yamame.nets.blocks import InputNormalizer

BETA = 1e-4


def running_moments(batches: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std of rows, batch i of k weighing (1 - beta)^(k - i)."""
    weight = (1.0 - BETA) ** np.arange(len(batches) - 1, -1, -1)
    mean = np.average([batch.mean(0) for batch in batches], axis=0, weights=weight)
    square = np.average([(batch**2).mean(0) for batch in batches], axis=0, weights=weight)
    return mean, np.sqrt(square - mean**2)


def every_row(x_NF: Tensor) -> Tensor:
    return torch.ones(len(x_NF), dtype=torch.bool)


def test_moments_are_those_of_the_raw_inputs_seen_so_far() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(loc=[5.0, -2.0, 0.0], scale=[2.0, 0.1, 30.0], size=(20, 3)) for _ in range(25)]
    normalizer = InputNormalizer(3)
    for batch in batches:
        normalizer.update(torch.from_numpy(batch), torch.ones(20, dtype=torch.bool))
    mean, std = running_moments(batches)
    np.testing.assert_allclose(normalizer.mean.numpy(), mean, rtol=1e-10)
    x = rng.normal(size=(7, 3))
    expected = (x - mean) / std
    expected = np.where(np.abs(expected) > 10, np.sign(expected) * 10 * (1 + np.log(np.abs(expected) / 10)), expected)
    np.testing.assert_allclose(normalizer(torch.from_numpy(x)).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1.0, -1e6, 1e9])
def test_neither_unit_nor_offset_matters(scale: float, offset: float) -> None:
    generator = torch.Generator().manual_seed(0)
    batches = torch.randint(-4, 5, (6, 30, 2), generator=generator).double()
    plain, other = InputNormalizer(2), InputNormalizer(2)
    for batch_NF in batches:
        plain.update(batch_NF, every_row(batch_NF))
        other.update(scale * (batch_NF + offset), every_row(batch_NF))
    torch.testing.assert_close(other(scale * (batches[0] + offset)), plain(batches[0]), rtol=1e-4, atol=1e-4)


def test_the_first_batch_replaces_the_initial_moments() -> None:
    normalizer = InputNormalizer(1)
    normalizer.update(torch.tensor([[3.0], [5.0]]), torch.ones(2, dtype=torch.bool))
    assert normalizer.mean.tolist() == [4.0]
    assert normalizer.variance.tolist() == [1.0]


def test_padding_does_not_count() -> None:
    x_NF = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    real_N = torch.tensor([False, True, False, True, False, True])
    with_padding, without = InputNormalizer(2), InputNormalizer(2)
    with_padding.update(torch.where(real_N[:, None], x_NF, torch.nan), real_N)
    without.update(x_NF[real_N], real_N[real_N])
    for name, value in without.state_dict().items():
        torch.testing.assert_close(with_padding.state_dict()[name], value)
    before = {name: value.clone() for name, value in without.state_dict().items()}
    without.update(torch.full((3, 2), 9.0), torch.zeros(3, dtype=torch.bool))
    assert all(torch.equal(before[name], value) for name, value in without.state_dict().items())


def test_a_forward_changes_nothing_in_either_mode() -> None:
    normalizer = InputNormalizer(2)
    before = {name: value.clone() for name, value in normalizer.state_dict().items()}
    for mode in (True, False):
        normalizer.train(mode)(torch.randn(5, 2))
    assert all(torch.equal(before[name], value) for name, value in normalizer.state_dict().items())


def test_before_any_observation_it_is_the_identity() -> None:
    x_NF = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(InputNormalizer(2)(x_NF), x_NF)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-30, 1.7e9 + 0.1, -1e20])
def test_a_feature_that_never_varies_stays_zero(value: float) -> None:
    normalizer = InputNormalizer(1)
    for size in (4, 7, 1, 33):
        x_NF = torch.full((size, 1), value, dtype=torch.float64)
        normalizer.update(x_NF, every_row(x_NF))
        assert normalizer(x_NF).tolist() == [[0.0]] * size


def test_inputs_far_from_the_mean_grow_with_the_logarithm() -> None:
    x_N1 = torch.tensor([[10.0], [-100.0], [1e6], [1e38]], dtype=torch.float64)
    expected = torch.tensor([[10.0], [-10 * (1 + math.log(10))], [10 * (1 + 5 * math.log(10))]])
    normalized = InputNormalizer(1)(x_N1)
    torch.testing.assert_close(normalized[:3], expected)
    assert normalized[2] < normalized[3] < 1e3


def test_moments_saved_as_mean_and_mean_square_load() -> None:
    normalizer = InputNormalizer(3)
    old = {"mean": torch.tensor([2.0, 0.0, 5.0]), "square": torch.tensor([8.0, 1e-6, 25.0]), "count": torch.tensor(9.0)}
    normalizer.load_state_dict(old)
    x_NF = torch.tensor([[4.0, 0.5, 5.5]])
    torch.testing.assert_close(normalizer(x_NF), torch.tensor([[1.0, 0.5, 0.5]]), rtol=1e-4, atol=0)
