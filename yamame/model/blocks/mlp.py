"""Plain multilayer perceptron and the activations of the method."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

Activation = Literal["leaky_relu", "relu", "gelu"]


def get_activation(name: Activation) -> Callable[[Tensor], Tensor]:
    """The function of a name; `leaky_relu` (slope 0.01) is the method's, the others serve the naive baseline."""
    match name:
        case "leaky_relu":
            return _leaky_relu
        case "relu":
            return functional.relu
        case "gelu":
            return functional.gelu


def _leaky_relu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    # a compiler makes vector code of a maximum, not of a comparison; uncompiled, the maximum costs one pass more
    return torch.maximum(x, 0.01 * x) if torch.compiler.is_compiling() else functional.leaky_relu(x)


class MLP(nn.Module):
    """Hidden layers with an activation after each, then a linear output without one."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int, activation: Activation = "leaky_relu") -> None:
        super().__init__()
        widths = (inputs, *hidden)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.output = nn.Linear(widths[-1], outputs)
        self.activation = get_activation(activation)

    def forward(self, x: Float[Tensor, "... inputs"]) -> Float[Tensor, "... outputs"]:
        """The network's output."""
        for layer in self.hidden:
            x = self.activation(layer(x))
        return self.output(x)
