import pytest
import torch
from torch import Tensor

from yamame.model.trajectory_encoders.attention import attend, causal_band
from yamame.ops.rows import RowLayout

LENGTHS = (4, 7, 1)
HEADS, WIDTH = 2, 3


@pytest.mark.parametrize("memory_length", [1, 3, 7, 20])
def test_each_token_averages_what_it_may_remember(memory_length: int) -> None:
    """Against a double loop: own segment, up to itself, `memory_length` tokens back; softmax of q k / sqrt(F)."""
    segment = torch.tensor([b for b, length in enumerate(LENGTHS) for _ in range(length)] + [3, 3])
    position = torch.tensor([t for length in LENGTHS for t in range(length)] + [0, 0])
    layout = RowLayout.of(segment, position, len(LENGTHS), max(LENGTHS) + 1)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(14, HEADS, WIDTH, generator=generator, dtype=torch.float64) for _ in range(3))
    out = attend(q, k, v, layout, memory_length)
    for n in range(sum(LENGTHS)):
        seen = [m for m in range(n + 1) if segment[m] == segment[n] and n - m < memory_length]
        torch.testing.assert_close(out[n], by_hand(q[n], k[seen], v[seen]), rtol=0, atol=1e-12)


def by_hand(q_HF: Tensor, k_MHF: Tensor, v_MHF: Tensor) -> Tensor:
    weight_MH = ((k_MHF * q_HF).sum(2) / WIDTH**0.5).exp()
    return (v_MHF * weight_MH[:, :, None]).sum(0) / weight_MH.sum(0)[:, None]


def test_the_band() -> None:
    assert causal_band(4, 2, torch.device("cpu")).int().tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 1],
    ]
