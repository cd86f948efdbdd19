from itertools import combinations

import pytest
import torch

from yamame.nets.ops import random_subset


def test_every_pair_without_replacement_is_equally_likely() -> None:
    """Every pair of the powers of ten is known by its minimum and by how often its larger member is never smaller."""
    tokens, members, discounts = 20_000, 4, 3
    q_NKG = torch.arange(members, dtype=torch.float64)[None, :, None].expand(tokens, -1, discounts)
    least_NG = random_subset(q_NKG, 2, torch.Generator().manual_seed(0)).amin(dim=1)
    expected = torch.zeros(members)
    for pair in combinations(range(members), 2):
        expected[min(pair)] += 1 / 6
    fraction = torch.stack([(least_NG == member).float().mean(dim=0) for member in range(members)])
    torch.testing.assert_close(fraction, expected[:, None].expand(-1, discounts), rtol=0, atol=0.015)
    assert expected[3] == 0 and not (least_NG == 3).any(), "one critic was drawn twice"


def test_the_pairs_themselves_are_equally_likely() -> None:
    """Two members at minus infinity: the minimum is finite exactly for the one pair of the others."""
    for pair in combinations(range(4), 2):
        q_NKG = torch.full((12_000, 4, 1), -torch.inf)
        q_NKG[:, list(pair)] = 0.0
        drawn = random_subset(q_NKG, 2, torch.Generator().manual_seed(1)).amin(dim=1).isfinite().float().mean()
        assert float(drawn) == pytest.approx(1 / 6, abs=0.015)


def test_tokens_and_discounts_draw_independently() -> None:
    q_NKG = torch.arange(4.0)[None, :, None].expand(20_000, -1, 2)
    is_least_NG = (random_subset(q_NKG, 2, torch.Generator().manual_seed(2)).amin(dim=1) == 0).float()
    for a, b in ((is_least_NG[:, 0], is_least_NG[:, 1]), (is_least_NG[1:, 0], is_least_NG[:-1, 0])):
        assert float((a * b).mean()) == pytest.approx(0.25, abs=0.015)


@pytest.mark.parametrize("subset", [4, 7])
def test_the_whole_ensemble_gives_the_exact_minimum_and_draws_nothing(subset: int) -> None:
    generator = torch.Generator().manual_seed(3)
    q_NKG = torch.randn(50, 4, 3, generator=generator)
    state = generator.get_state()
    assert torch.equal(random_subset(q_NKG, subset, generator).amin(dim=1), q_NKG.min(dim=1).values)
    assert torch.equal(generator.get_state(), state)


def test_a_subset_of_one_is_one_of_the_critics() -> None:
    q_NKG = torch.randn(200, 3, 2, generator=torch.Generator().manual_seed(4))
    drawn_NG = random_subset(q_NKG, 1, torch.Generator().manual_seed(5)).amin(dim=1)
    chosen_NKG = q_NKG == drawn_NG[:, None]
    assert chosen_NKG.any(1).all()
    assert chosen_NKG.any(0).all(), "some critic is never drawn"


def test_critics_with_equal_keys_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.tensor([0.5, 0.25, 0.5, 0.5])[:, None].expand(shape))
    q_NKG = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(6))
    assert torch.equal(random_subset(q_NKG, 3, torch.Generator()), q_NKG[:, [1, 0, 2]])


def test_further_dimensions_come_from_the_same_critics() -> None:
    q_NKG = torch.randn(5, 4, 2, generator=torch.Generator().manual_seed(7))
    both_NKGX = random_subset(torch.stack([q_NKG, -q_NKG], dim=3), 2, torch.Generator().manual_seed(8))
    assert torch.equal(both_NKGX[..., 0], random_subset(q_NKG, 2, torch.Generator().manual_seed(8)))
    assert torch.equal(both_NKGX[..., 1], -both_NKGX[..., 0])
