import copy

import pytest
import torch
from torch import nn

from yamame.algorithms.amago.moving_copies import MovingCopies

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def modules(device: str) -> tuple[nn.Module, nn.Module]:
    """A network with parameters and buffers, and a copy that lies elsewhere."""
    torch.manual_seed(0)
    original = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(device, torch.float64)
    moved = copy.deepcopy(original).requires_grad_(False)
    with torch.no_grad():
        for each in (*original.parameters(), original[1].running_mean):
            each += torch.randn_like(each)
    return moved, original


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("with_buffers", [False, True])
def test_copies_move_by_the_rate(device: str, with_buffers: bool) -> None:
    moved, original = modules(device)
    before = [each.clone() for each in moved.parameters()]
    mean = moved[1].running_mean.clone()
    MovingCopies([moved], [original], with_buffers=with_buffers).update(torch.tensor(0.25, device=device))
    for old, new, online in zip(before, moved.parameters(), original.parameters(), strict=True):
        torch.testing.assert_close(new, old + 0.25 * (online - old), rtol=0, atol=1e-14)
    expected = original[1].running_mean if with_buffers else mean
    assert torch.equal(moved[1].running_mean, expected) and not torch.equal(mean, original[1].running_mean)


@pytest.mark.parametrize("device", DEVICES)
def test_a_rate_of_zero_changes_no_bit(device: str) -> None:
    moved, original = modules(device)
    before = [each.clone() for each in moved.parameters()]
    MovingCopies([moved], [original], with_buffers=False).update(torch.tensor(0.0, device=device))
    assert all(map(torch.equal, before, moved.parameters()))
