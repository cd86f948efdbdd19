from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from yamame.nets.sequence.base import RecurrentEncoder
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


class RecordingRecurrence(nn.Module):
    """Records the type of its inputs, and whether autocast was on."""

    def forward(self, x_BLD: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor]:
        self.seen = x_BLD.dtype, torch.is_autocast_enabled(x_BLD.device.type)
        return x_BLD, x_BLD[:, -1]


def test_recurrent_layers_run_in_float32_under_autocast() -> None:
    encoder = RecurrentEncoder(RecordingRecurrence())
    with torch.autocast("cpu", torch.bfloat16):
        encoder.sequence(torch.zeros(2, 3, 4, dtype=torch.bfloat16))
    assert encoder.recurrence.seen == (torch.float32, False)


def test_the_gru_of_other_devices_runs_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, which stands for a GPU and has no autocast of its own."""
    monkeypatch.setattr(torch, "autocast", lambda device, enabled: nullcontext(assert_off(device, enabled)))
    recurrence = nn.GRU(3, 4, 2, batch_first=True, device="meta")
    states = gru_forward(recurrence, torch.zeros(2, 5, 3, dtype=torch.bfloat16, device="meta"))
    assert (states.shape, states.dtype) == ((2, 5, 4), torch.float32)


def assert_off(device: str, enabled: bool) -> None:
    assert (device, enabled) == ("meta", False)
