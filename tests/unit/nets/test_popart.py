import pytest
import torch
from torch import Tensor

from yamame.nets.heads.popart import PopArt

BETA = 5e-4


def targets(count: int, *, seed: int = 0) -> Tensor:
    """Batches of 30 targets for two discounts, on scales that drift."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, 30, 2, generator=generator, dtype=torch.float64)
    drift = torch.linspace(0.0, 400.0, count, dtype=torch.float64)[:, None, None]
    return drift * torch.tensor([1.0, -3.0], dtype=torch.float64) + noise * torch.tensor([0.5, 80.0]).double()


def test_values_do_not_change_when_statistics_move() -> None:
    popart = PopArt(2, initial_square=100.0).double()
    raw_NKG = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    before = popart.denormalize(raw_NKG)
    for target_NG in targets(50):
        std_G = popart.std_G
        popart.update(target_NG, torch.ones(30, dtype=torch.bool))
        assert not torch.equal(popart.std_G, std_G)
        torch.testing.assert_close(popart.denormalize(raw_NKG), before, rtol=0, atol=1e-10)
    assert float((popart.scale_G - 1.0).abs().min()) > 0.01


def test_normalized_predictions_and_targets_are_on_one_scale() -> None:
    """normalize(value(raw)) is w raw + b: what the critic's loss compares with the normalized target."""
    popart = PopArt(2, initial_square=100.0).double()
    for target_NG in targets(20):
        popart.update(target_NG, torch.ones(30, dtype=torch.bool))
    raw_NKG = torch.randn(4, 1, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    expected_NG = (popart.scale_G * raw_NKG + popart.shift_G)[:, 0]
    torch.testing.assert_close(popart.normalize(popart.denormalize(raw_NKG)[:, 0]), expected_NG, rtol=0, atol=1e-12)


def test_starts_with_mean_0_and_std_10() -> None:
    popart = PopArt(2, initial_square=100.0)
    torch.testing.assert_close(popart.denormalize(torch.full((1, 1, 2), 0.5)), torch.full((1, 1, 2), 5.0))
    torch.testing.assert_close(popart.normalize(torch.full((1, 2), 5.0)), torch.full((1, 2), 0.5))


def test_the_first_update_moves_about_half_way() -> None:
    """The count starts at 1, so the initial statistics weigh as much as the first batch: beta_2 = 1 / (2 - beta)."""
    popart = PopArt(1, initial_square=100.0).double()
    popart.update(torch.tensor([[30.0], [10.0]], dtype=torch.float64), torch.ones(2, dtype=torch.bool))
    fraction = 1.0 / (2.0 - BETA)
    torch.testing.assert_close(popart.mean_G, torch.tensor([fraction * 20.0]).double(), rtol=1e-6, atol=0)
    torch.testing.assert_close(popart.square_G, torch.tensor([100 + fraction * 400.0]).double(), rtol=1e-6, atol=0)


def test_debiased_statistics_are_a_weighted_average_of_batches() -> None:
    """Directly: batch i of k weighs (1 - beta)^(k - i), with the initial statistics as batch 0."""
    popart = PopArt(2, initial_square=100.0).double()
    batches = targets(40)
    valid_N = torch.arange(30) % 3 != 0
    for target_NG in batches:
        popart.update(target_NG, valid_N)
    weight = (1.0 - BETA) ** torch.arange(len(batches), -1, -1, dtype=torch.float64)
    means = torch.cat([torch.zeros(1, 2).double(), batches[:, valid_N].mean(1)])
    squares = torch.cat([torch.full((1, 2), 100.0).double(), batches[:, valid_N].square().mean(1)])
    torch.testing.assert_close(popart.mean_G, weight @ means / weight.sum(), rtol=1e-9, atol=0)
    torch.testing.assert_close(popart.square_G, weight @ squares / weight.sum(), rtol=1e-9, atol=0)


def test_targets_that_are_not_valid_do_not_count() -> None:
    valid_N = torch.arange(30) < 20
    clean, poisoned = PopArt(2).double(), PopArt(2).double()
    (target_NG,) = targets(1)
    clean.update(target_NG[:20], valid_N[:20])
    poisoned.update(torch.where(valid_N[:, None], target_NG, torch.nan), valid_N)
    torch.testing.assert_close(clean.mean_G, poisoned.mean_G)
    torch.testing.assert_close(clean.square_G, poisoned.square_G)
    poisoned.update(torch.full((30, 2), torch.nan).double(), torch.zeros(30, dtype=torch.bool))
    torch.testing.assert_close(clean.mean_G, poisoned.mean_G)


def test_constant_targets_keep_the_std_positive() -> None:
    popart = PopArt(1)
    for _ in range(30):
        popart.update(torch.full((4, 1), 7.0), torch.ones(4, dtype=torch.bool))
        assert popart.std_G.item() >= 1e-4
        assert popart.denormalize(torch.zeros(1, 1, 1)).isfinite()


def test_switched_off_it_is_the_identity() -> None:
    popart = PopArt(2, enabled=False)
    for target_NG in targets(5).float():
        popart.update(target_NG, torch.ones(30, dtype=torch.bool))
    x_NG = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)) * 100
    assert torch.equal(popart.normalize(x_NG), x_NG)
    assert torch.equal(popart.denormalize(x_NG[:, None]), x_NG[:, None])
    assert torch.equal(popart.scale_G, torch.ones(2)) and torch.equal(popart.shift_G, torch.zeros(2))


def test_nothing_of_it_is_learned() -> None:
    assert not list(PopArt(3).parameters())
    assert set(PopArt(3).state_dict()) == {"mean_G", "square_G", "scale_G", "shift_G", "count"}


def test_statistics_from_data_are_those_of_the_first_batch_with_a_reward() -> None:
    popart, valid_N = PopArt(2).double(), torch.ones(30, dtype=torch.bool)
    x_NKG = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0)).double()
    for _ in range(3):
        popart.update(torch.zeros(30, 2).double(), valid_N)
        assert torch.equal(popart.denormalize(x_NKG), torch.zeros_like(x_NKG))
        assert torch.equal(popart.normalize(torch.zeros(30, 2).double()), torch.zeros(30, 2).double())
    (target_NG,) = targets(1)
    popart.update(target_NG, valid_N)
    normalized = popart.normalize(target_NG)
    torch.testing.assert_close(normalized.mean(0), torch.zeros(2).double(), rtol=0, atol=1e-9)
    torch.testing.assert_close(normalized.std(0, correction=0), torch.ones(2).double())
    before = popart.denormalize(x_NKG)
    popart.update(1000.0 * target_NG, valid_N)
    torch.testing.assert_close(popart.denormalize(x_NKG), before)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 800.0, 1e6])
def test_from_data_the_unit_of_rewards_does_not_matter(scale: float) -> None:
    popart, scaled = PopArt(2), PopArt(2)
    for target_NG in targets(20).float():
        for each, unit in ((popart, 1.0), (scaled, scale)):
            each.update(unit * target_NG, torch.ones(30, dtype=torch.bool))
        torch.testing.assert_close(
            popart.normalize(target_NG), scaled.normalize(scale * target_NG), rtol=1e-3, atol=1e-3
        )
        torch.testing.assert_close(popart.scale_G, scaled.scale_G, rtol=1e-3, atol=0)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_from_data_constant_targets_keep_sigma_a_fraction_of_their_size(scale: float) -> None:
    popart = PopArt(1)
    for _ in range(30):
        popart.update(torch.full((4, 1), 7.0 * scale), torch.ones(4, dtype=torch.bool))
        assert popart.std_G.item() == pytest.approx(7e-3 * scale, rel=1e-3)
