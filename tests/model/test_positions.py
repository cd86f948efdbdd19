import math

import pytest
import torch

from yamame.model.trajectory_encoders.positions import PositionEmbedding, rotate


def test_sinusoidal_positions_are_the_formula() -> None:
    embedding = PositionEmbedding("sinusoidal", 6, 100)(torch.tensor([0, 3, 77]))
    assert isinstance(embedding, torch.Tensor)
    for row, time in enumerate((0, 3, 77)):
        for pair in range(3):
            angle = time / 10_000 ** (2 * pair / 6)
            assert embedding[row, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert embedding[row, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_learned_positions_reach_to_the_largest_time() -> None:
    position = PositionEmbedding("learned", 4, 9)
    assert position.table is not None
    assert torch.equal(position(torch.tensor([9, 0])), position.table.weight[[9, 0]])  # type: ignore[arg-type]


def test_rotary_positions_add_nothing_and_keep_products_at_equal_distance() -> None:
    assert PositionEmbedding("rotary", 4, 9)(torch.tensor([1, 2])) == 0.0
    q, k = (torch.randn(1, 2, 8, generator=torch.Generator().manual_seed(n), dtype=torch.float64) for n in (0, 1))

    def product(q_time: int, k_time: int) -> torch.Tensor:
        return (rotate(q, torch.tensor([q_time])) * rotate(k, torch.tensor([k_time]))).sum(-1)

    torch.testing.assert_close(product(7, 4), product(103, 100), rtol=0, atol=1e-9)
    assert not torch.allclose(product(7, 4), product(8, 4))
    torch.testing.assert_close(rotate(q, torch.tensor([5])).norm(), q.norm())
