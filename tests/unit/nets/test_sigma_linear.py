from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_agents import random_windows, tiny_agent
from torch import nn
from torch.overrides import TorchFunctionMode

from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.data.batch import pack
from yamame.nets.blocks import SigmaLinear, power_iteration, sigma_layers
from yamame.nets.compute import CPU_FLOAT32


def spectral_norm(weight: torch.Tensor) -> float:
    return torch.linalg.matrix_norm(weight.detach(), ord=2).item()


def perturbed(outputs: int = 7, inputs: int = 5, *, bias: bool = True) -> SigmaLinear:
    """A layer whose weight has moved since u and v were found."""
    torch.manual_seed(0)
    layer = SigmaLinear(inputs, outputs, bias=bias).double()
    with torch.no_grad():
        layer.weight.add_(torch.randn_like(layer.weight))
        layer.gamma.fill_(1.7)
        if layer.bias is not None:
            layer.bias.normal_()
    return layer


@pytest.mark.parametrize(("outputs", "inputs"), [(7, 5), (3, 8), (4, 4), (1, 6)])
def test_the_spectral_norm_is_one_from_the_start(outputs: int, inputs: int) -> None:
    assert spectral_norm(SigmaLinear(inputs, outputs).effective_weight()) == pytest.approx(1.0, rel=1e-5)


def test_power_iteration_brings_the_spectral_norm_back_to_gamma() -> None:
    layer = perturbed()
    assert abs(spectral_norm(layer.effective_weight()) - 1.7) > 0.05
    for _ in range(200):
        power_iteration([layer])
    assert spectral_norm(layer.effective_weight()) == pytest.approx(1.7, rel=1e-9)
    assert float(layer.left.norm()) == pytest.approx(1.0) and float(layer.right.norm()) == pytest.approx(1.0)


def test_one_power_iteration_is_one_step() -> None:
    layer = perturbed()
    left = torch.nn.functional.normalize(layer.weight.detach() @ layer.right, dim=0)
    right = torch.nn.functional.normalize(layer.weight.detach().T @ left, dim=0)
    power_iteration(sigma_layers(nn.Sequential(nn.Linear(2, 2), nn.Sequential(layer))))
    torch.testing.assert_close(layer.left, left)
    torch.testing.assert_close(layer.right, right)


def test_the_gradient_flows_through_sigma() -> None:
    """Scaling W changes nothing, so the gradient with respect to W is orthogonal to W."""
    layer = perturbed()
    x = torch.randn(4, 5, dtype=torch.float64)
    layer(x).square().sum().backward()
    assert layer.weight.grad is not None and layer.gamma.grad is not None
    assert (layer.weight.grad * layer.weight).sum().abs().item() < 1e-9 * float(layer.weight.grad.norm())
    assert float(layer.weight.grad.norm()) > 0.1 and float(layer.gamma.grad.abs()) > 0.1


def test_values_and_gradients_are_those_of_the_formula() -> None:
    layer = perturbed()
    weight, gamma = (x.detach().clone().requires_grad_() for x in (layer.weight, layer.gamma))
    composed = weight * (gamma / torch.dot(layer.left, torch.mv(weight, layer.right)))
    direction = torch.randn(composed.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(layer.effective_weight(), composed, rtol=0, atol=1e-12)
    for transposed in (direction, direction.T.contiguous().T):
        ours = torch.autograd.grad(layer.effective_weight(), (layer.weight, layer.gamma), transposed)
        theirs = torch.autograd.grad(composed, (weight, gamma), transposed, retain_graph=True)
        for found, expected in zip(ours, theirs, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


def test_the_bias_is_outside_the_reparametrisation() -> None:
    layer = perturbed()
    assert layer.bias is not None
    torch.testing.assert_close(layer(torch.zeros(1, 5).double())[0], layer.bias)


def test_a_forward_changes_no_state() -> None:
    layer = perturbed().train()
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    layer(torch.randn(3, 5).double())
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


class AutocastOfProducts(TorchFunctionMode):
    """Records whether autocast is on at each product of a matrix and a vector."""

    def __init__(self) -> None:
        self.seen: list[bool] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.mv, torch.dot):
            self.seen.append(torch.is_autocast_enabled("cpu"))
        return func(*args, **(kwargs or {}))


def test_sigma_and_power_iteration_are_computed_without_autocast() -> None:
    """In an update in bfloat16: a GPU's autocast would compute these products in half precision."""
    learner = Learner(
        tiny_agent(dtype=torch.float32),
        LearnerConfig(),
        generator=torch.Generator().manual_seed(0),
        compute=replace(CPU_FLOAT32, dtype=torch.bfloat16),
    )
    with AutocastOfProducts() as products:
        learner.update(pack(random_windows(0, (5, 3))))
    assert products.seen and not any(products.seen)
