import numpy as np
import torch

from yamame.nets.blocks import InputNormalizer

BETA = 1e-4


def running_moments(batches: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std of rows, batch i of k weighing (1 - beta)^(k - i)."""
    weight = (1.0 - BETA) ** np.arange(len(batches) - 1, -1, -1)
    mean = np.average([batch.mean(0) for batch in batches], axis=0, weights=weight)
    square = np.average([(batch**2).mean(0) for batch in batches], axis=0, weights=weight)
    return mean, np.sqrt(square - mean**2 + 1e-5)


def test_moments_are_those_of_the_raw_inputs_seen_so_far() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(loc=[5.0, -2.0, 0.0], scale=[2.0, 0.1, 30.0], size=(20, 3)) for _ in range(25)]
    normalizer = InputNormalizer(3).double()
    for batch in batches:
        normalizer.update(torch.from_numpy(batch), torch.ones(20, dtype=torch.bool))
    mean, std = running_moments(batches)
    np.testing.assert_allclose(normalizer.mean.numpy(), mean, rtol=1e-8)
    x = rng.normal(size=(7, 3))
    np.testing.assert_allclose(normalizer(torch.from_numpy(x)).numpy(), (x - mean) / std, rtol=1e-6)


def test_the_first_batch_replaces_the_initial_moments() -> None:
    normalizer = InputNormalizer(1)
    normalizer.update(torch.tensor([[3.0], [5.0]]), torch.ones(2, dtype=torch.bool))
    torch.testing.assert_close(normalizer.mean, torch.tensor([4.0]), rtol=1e-3, atol=0)
    torch.testing.assert_close(normalizer.square, torch.tensor([17.0]), rtol=1e-3, atol=0)


def test_padding_does_not_count() -> None:
    x_NF = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    real_N = torch.tensor([True, True, False, True, False, True])
    with_padding, without = InputNormalizer(2), InputNormalizer(2)
    with_padding.update(torch.where(real_N[:, None], x_NF, 1e4), real_N)
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


def test_before_any_observation_it_is_almost_the_identity() -> None:
    x_NF = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(InputNormalizer(2)(x_NF), x_NF, rtol=1e-4, atol=0)


def test_features_that_never_change_are_only_centred() -> None:
    normalizer = InputNormalizer(1).double()
    for _ in range(3):
        normalizer.update(torch.full((4, 1), 0.25).double(), torch.ones(4, dtype=torch.bool))
    torch.testing.assert_close(normalizer(torch.tensor([[1.25]]).double()), torch.tensor([[1.0]]).double())


def test_huge_inputs_are_clamped() -> None:
    assert InputNormalizer(1)(torch.tensor([[1e30], [-1e30]])).tolist() == [[1e4], [-1e4]]
