import pytest
import torch
from torch import Tensor, nn

from yamame.model.trajectory_encoders.gru import GRU, GRUConfig
from yamame.model.trajectory_encoders.recurrence import gru_states


def test_gradcheck() -> None:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    assert torch.autograd.gradcheck(gru_states, (random(4, 2, 9), random(9, 3), random(3)))


@pytest.mark.parametrize(("rows", "length", "layers"), [(3, 5, 2), (1, 1, 1)])
def test_states_and_gradients_are_those_of_nn_gru(rows: int, length: int, layers: int) -> None:
    torch.manual_seed(0)
    encoder = GRU(GRUConfig(width=4, layers=layers), inputs=3).double()
    x_BLD = torch.randn(rows, length, 3, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(rows, length, 4, dtype=torch.float64)

    def with_gradients(states: Tensor) -> list[Tensor]:
        leaves = [x_BLD, *encoder.recurrence.parameters()]
        return [states, *torch.autograd.grad((states * direction).sum(), leaves)]

    theirs: nn.GRU = encoder.recurrence
    for ours, expected in zip(with_gradients(encoder._states(x_BLD)), with_gradients(theirs(x_BLD)[0]), strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


def test_half_precision_inputs_keep_float32_states() -> None:
    encoder = GRU(GRUConfig(width=4, layers=2), inputs=3)
    x_BLD = torch.randn(2, 5, 3)
    with torch.autocast("cpu", torch.bfloat16):
        states = encoder._states(x_BLD)
    assert states.dtype == torch.float32
    torch.testing.assert_close(states, encoder._states(x_BLD), rtol=0, atol=0.05)
    states.sum().backward()
