"""Modules as they act: the same computation, with weights that stand still and no module machinery around it."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from yamame.model.blocks.sigma_linear import SigmaLinear


@torch.no_grad()
def freeze_for_inference(module: nn.Module) -> Any:
    """What `module` computes now, for acting on batches of vectors; later updates of the module do not reach it.

    Layers become plain functions: sigma is folded into the weight, dropout is off. What is made of layers comes back
    with the methods and settings it had, and frozen parts.
    """
    match module:
        case SigmaLinear():
            return _linear(module.effective_weight(), module.bias)
        case nn.Linear():
            return _linear(module.weight, module.bias)
        case nn.LayerNorm():
            return _layer_norm(module)
        case nn.Dropout() | nn.Identity():
            return _nothing
        case nn.ModuleList():
            return [freeze_for_inference(part) for part in module]
    if not list(module.children()):
        return copy.deepcopy(module).eval().requires_grad_(False)
    twin = copy.copy(module)
    own = dict(module.named_parameters(recurse=False)) | dict(module.named_buffers(recurse=False))
    # found before the live parts, which nn.Module looks up only where an instance has no attribute of the name
    twin.__dict__.update({name: value.detach().clone() for name, value in own.items()})
    twin.__dict__.update({name: freeze_for_inference(part) for name, part in module.named_children()}, training=False)
    return twin


def _linear(
    weight: Float[Tensor, "out in"], bias: Float[Tensor, "out"] | None
) -> Callable[[Float[Tensor, "E in"]], Float[Tensor, "E out"]]:
    # few rows: the product is faster by a tenth if the weight lies as it is read
    of_inputs = weight.t().clone(memory_format=torch.contiguous_format)
    if bias is None:
        return lambda x_ED: torch.mm(x_ED, of_inputs)
    offset = bias.clone()
    return lambda x_ED: torch.addmm(offset, x_ED, of_inputs)


def _layer_norm(layer: nn.LayerNorm) -> Callable[[Float[Tensor, "E D"]], Float[Tensor, "E D"]]:
    shape, weight, bias, eps = layer.normalized_shape, layer.weight.clone(), layer.bias.clone(), layer.eps
    return lambda x_ED: torch.layer_norm(x_ED, shape, weight, bias, eps)


def _nothing(x_ED: Float[Tensor, "E D"]) -> Float[Tensor, "E D"]:
    return x_ED
