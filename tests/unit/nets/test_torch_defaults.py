"""`torch_defaults`: settings that others changed do not reach what is computed, and are set again afterwards."""

from collections.abc import Iterator

import pytest
import torch

from yamame.nets.torch_defaults import torch_defaults, with_torch_defaults


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_autocast_enabled("cpu", False)


@with_torch_defaults
def gradient() -> torch.Tensor:
    weight = torch.ones(2, 2, requires_grad=True)
    (weight @ torch.full((2,), 1 / 3)).sum().backward()
    assert weight.grad is not None
    return weight.grad


def test_all_settings_are_those_of_a_new_process_inside_and_the_changed_ones_after() -> None:
    expected = gradient()
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    torch.set_autocast_enabled("cpu", True)
    found = gradient()
    assert (found.dtype, found.device.type) == (torch.float32, "cpu")
    assert found.tolist() == expected.tolist()
    assert torch.get_default_dtype() is torch.float64
    assert torch.get_default_device().type == "meta"
    assert not torch.is_grad_enabled()
    assert torch.is_autocast_enabled("cpu")


def test_inference_mode_is_left_inside() -> None:
    with torch.inference_mode():
        assert gradient().tolist() == gradient().tolist()
        assert torch.is_inference_mode_enabled()


def test_settings_return_after_an_exception() -> None:
    torch.set_default_dtype(torch.float64)
    with pytest.raises(ValueError, match="inside"), torch_defaults():
        raise ValueError("inside")
    assert torch.get_default_dtype() is torch.float64
