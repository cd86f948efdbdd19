import pytest
import torch
from torch import Tensor, nn

from yamame.nets.sequence.gru import gru_forward, gru_scan


def test_gradcheck() -> None:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    assert torch.autograd.gradcheck(gru_scan, (random(4, 2, 9), random(9, 3), random(3)))


@pytest.mark.parametrize(("rows", "length", "layers"), [(3, 5, 2), (1, 1, 1)])
def test_states_and_gradients_are_those_of_nn_gru(rows: int, length: int, layers: int) -> None:
    torch.manual_seed(0)
    recurrence = nn.GRU(3, 4, layers, batch_first=True).double()
    x_BLD = torch.randn(rows, length, 3, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(rows, length, 4, dtype=torch.float64)

    def with_gradients(states: Tensor) -> list[Tensor]:
        leaves = [x_BLD, *recurrence.parameters()]
        return [states, *torch.autograd.grad((states * direction).sum(), leaves)]

    both = with_gradients(gru_forward(recurrence, x_BLD)), with_gradients(recurrence(x_BLD)[0])
    for ours, expected in zip(*both, strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


def test_half_precision_inputs_keep_float32_states() -> None:
    recurrence = nn.GRU(3, 4, 2, batch_first=True)
    x_BLD = torch.randn(2, 5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        states = gru_forward(recurrence, x_BLD)
    assert states.dtype == torch.float32
    torch.testing.assert_close(states, gru_forward(recurrence, x_BLD), rtol=0, atol=0.05)
    states.sum().backward()
