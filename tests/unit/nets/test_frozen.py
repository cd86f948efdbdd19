import pytest
import torch
from tiny_agents import shake
from torch import Tensor, nn

from yamame.nets.blocks import MLP, SigmaLinear, freeze_for_inference


class Scaled(nn.Module):
    """Layers, a parameter and a buffer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([SigmaLinear(5, 5), SigmaLinear(5, 5, bias=False)])
        self.norm = nn.LayerNorm(5)
        self.dropout = nn.Dropout(0.5)
        self.factor = nn.Parameter(torch.full((5,), 2.0))
        self.shift: Tensor
        self.register_buffer("shift", torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.dropout(self.norm(x)) * self.factor + self.shift


MODULES = {
    "linear": lambda: nn.Linear(5, 3),
    "linear without bias": lambda: nn.Linear(5, 3, bias=False),
    "sigma": lambda: SigmaLinear(5, 7),
    "sigma without bias": lambda: SigmaLinear(5, 7, bias=False),
    "norm": lambda: nn.LayerNorm(5),
    "mlp": lambda: MLP(5, (4, 6), 3),
    "parts": Scaled,
}


def built(name: str) -> nn.Module:
    torch.manual_seed(0)
    module = MODULES[name]().double().eval()
    shake(module)
    return module


@pytest.mark.parametrize("name", MODULES)
def test_it_computes_what_the_module_computed_when_it_was_frozen(name: str) -> None:
    module = built(name)
    x_ED = torch.randn(4, 5, dtype=torch.float64)
    expected = module(x_ED).detach()
    acting = freeze_for_inference(module)
    torch.testing.assert_close(acting(x_ED), expected, rtol=0, atol=1e-12)
    with torch.no_grad():
        for value in module.state_dict().values():
            value.add_(0.3)
    assert not torch.allclose(module(x_ED), expected)
    torch.testing.assert_close(acting(x_ED), expected, rtol=0, atol=1e-12)
    assert not acting(x_ED).requires_grad


def test_a_recurrent_layer_is_copied_too() -> None:
    layer = nn.GRU(5, 4, batch_first=True).double()
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    acting = freeze_for_inference(layer)
    expected = layer(x)[0].detach()
    shake(layer)
    torch.testing.assert_close(acting(x)[0], expected, rtol=0, atol=1e-12)


def test_dropout_is_off_for_acting_and_the_module_trains_on() -> None:
    module = Scaled().train()
    acting = freeze_for_inference(module)
    x_ED = torch.randn(4, 5)
    assert torch.equal(acting(x_ED), acting(x_ED))
    assert module.training and module.dropout.training
    assert not torch.equal(module(x_ED), module(x_ED))
