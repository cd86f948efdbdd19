import math

import pytest
import torch
from tiny_agents import double_batch, random_windows, shake
from torch import nn
from torch.nn import functional

from yamame.data.batch import pack
from yamame.nets.blocks import power_iteration, sigma_layers
from yamame.nets.positions import PositionEmbedding, PositionKind, rotate
from yamame.nets.sequence.transformer import TransformerConfig


def turn(x_NHF: torch.Tensor, time_N: torch.Tensor) -> torch.Tensor:
    """Queries at these times; keys are turned likewise, and values not at all."""
    width = x_NHF.shape[2]
    rotation = PositionEmbedding("rotary", 2 * width, width, 9).rotation(time_N, x_NHF.dtype)
    assert rotation is not None
    query, key, value = rotate(torch.stack([x_NHF] * 3, dim=1), rotation).unbind(1)
    assert torch.equal(query, key) and torch.equal(value, x_NHF)
    return query


def test_sinusoidal_positions_are_the_formula() -> None:
    embedding = PositionEmbedding("sinusoidal", 6, 6, 100)(torch.tensor([0, 3, 77]))
    assert isinstance(embedding, torch.Tensor)
    for row, time in enumerate((0, 3, 77)):
        for pair in range(3):
            angle = time / 10_000 ** (2 * pair / 6)
            assert embedding[row, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert embedding[row, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_positions_are_exact_late_in_a_trial() -> None:
    """Where float32 alone would be off by 0.004 and half precision by anything."""
    times, width = torch.tensor([9_999, 100_000]), 64
    pair = torch.arange(0, width, 2, dtype=torch.float64)
    angle = times[:, None] / 10_000 ** (pair / width)
    embedding = PositionEmbedding("sinusoidal", width, width, 10)(times)
    assert isinstance(embedding, torch.Tensor)
    torch.testing.assert_close(embedding[:, 0::2].double(), angle.sin(), rtol=0, atol=1e-5)
    torch.testing.assert_close(embedding[:, 1::2].double(), angle.cos(), rtol=0, atol=1e-5)
    unit = torch.tensor([1.0, 0.0]).repeat(width // 2).expand(2, 1, width)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        turned = turn(unit.to(dtype), times)
        assert turned.dtype == dtype
        torch.testing.assert_close(turned[:, 0, 0::2].double(), angle.cos(), rtol=0, atol=tolerance)
        torch.testing.assert_close(turned[:, 0, 1::2].double(), angle.sin(), rtol=0, atol=tolerance)


def test_learned_positions_reach_to_the_largest_time() -> None:
    position = PositionEmbedding("learned", 4, 4, 9)
    assert position.table is not None
    assert torch.equal(position(torch.tensor([9, 0])), position.table.weight[[9, 0]])  # type: ignore[arg-type]
    assert torch.equal(position(torch.tensor([12, 10**9])), position.table.weight[[9, 9]])  # type: ignore[arg-type]


def test_rotary_positions_add_nothing_and_keep_products_at_equal_distance() -> None:
    assert PositionEmbedding("rotary", 4, 4, 9)(torch.tensor([1, 2])) == 0.0
    q, k = (torch.randn(1, 2, 8, generator=torch.Generator().manual_seed(n), dtype=torch.float64) for n in (0, 1))

    def product(q_time: int, k_time: int) -> torch.Tensor:
        return (turn(q, torch.tensor([q_time])) * turn(k, torch.tensor([k_time]))).sum(-1)

    torch.testing.assert_close(product(7, 4), product(103, 100), rtol=0, atol=1e-9)
    assert not torch.allclose(product(7, 4), product(8, 4))
    torch.testing.assert_close(turn(q, torch.tensor([5])).norm(), q.norm())


def test_compiled_rotations_are_those_of_complex_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    qkv, direction = torch.randn(2, 5, 3, 2, 8, generator=generator, dtype=torch.float64)
    qkv.requires_grad_()
    rotation = PositionEmbedding("rotary", 16, 8, 9).rotation(torch.arange(5) * 1000, torch.float64)
    assert rotation is not None
    found = rotate(qkv, rotation)
    (gradient,) = torch.autograd.grad(found, qkv, direction)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    expected = rotate(qkv, rotation)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, qkv, direction)[0], rtol=0, atol=1e-12)


def test_sinusoidal_and_rotary_positions_are_both() -> None:
    times, both = torch.tensor([3, 77]), PositionEmbedding("sinusoidal_and_rotary", 8, 4, 9)
    assert torch.equal(both(times), PositionEmbedding("sinusoidal", 8, 4, 9)(times))  # type: ignore[arg-type]
    found, expected = (
        both.rotation(times, torch.float32),
        PositionEmbedding("rotary", 8, 4, 9).rotation(times, torch.float32),
    )
    assert found is not None and expected is not None and torch.equal(found, expected)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "sinusoidal_and_rotary"])
def test_the_order_of_the_past_matters(positions: PositionKind) -> None:
    """Without positions one layer of attention could not distinguish the same past in another order."""
    torch.manual_seed(0)
    config = TransformerConfig(d_model=16, num_layers=1, num_heads=2, d_ff=16, position_embedding=positions)
    encoder = config.build(input_size=3, attention_window=8, max_timestep=20).double()
    shake(encoder)
    batch = double_batch(random_windows(0, (5,), from_start=True))
    x_ND = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    swapped_ND = x_ND[[1, 0, 2, 3, 4, 5]]
    assert not torch.allclose(encoder(x_ND, batch)[5], encoder(swapped_ND, batch)[5], rtol=0, atol=1e-9)


def recited_backwards(positions: PositionKind) -> float:
    """Fraction of 24 symbols that a trained encoder names in reverse order after it has seen all of them."""
    torch.manual_seed(0)
    config = TransformerConfig(d_model=64, num_layers=2, num_heads=4, d_ff=256, position_embedding=positions)
    encoder = config.build(input_size=64, attention_window=48, max_timestep=47)
    embed, head = nn.Linear(5, 64), nn.Linear(64, 4)
    optimizer = torch.optim.AdamW(nn.ModuleList([encoder, embed, head]).parameters(), lr=1e-3)
    batch = pack(random_windows(0, [47] * 8, from_start=True))
    for _ in range(400):
        symbol_BL = torch.randint(4, (8, 24))
        x_BLD = torch.zeros(8, 48, 5)
        x_BLD[:, :24, :4], x_BLD[:, 24:, 4] = functional.one_hot(symbol_BL, 4).float(), 1.0
        x_ND = functional.pad(x_BLD.flatten(0, 1), (0, 0, 0, len(batch.reward) - 8 * 48))
        guess_BLA = head(encoder(embed(x_ND), batch)[: 8 * 48].unflatten(0, (8, 48))[:, 24:])
        optimizer.zero_grad()
        functional.cross_entropy(guess_BLA.flatten(0, 1), symbol_BL.flip(1).flatten()).backward()
        optimizer.step()
        power_iteration(sigma_layers(encoder))
    return (guess_BLA.argmax(-1) == symbol_BL.flip(1)).float().mean().item()


@pytest.mark.slow
def test_sinusoidal_positions_recite_backwards_and_rotary_ones_alone_do_not() -> None:
    assert recited_backwards("sinusoidal_and_rotary") > 0.98
    assert recited_backwards("rotary") < 0.7
