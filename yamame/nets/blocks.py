"""Layers shared by encoders and heads, and their inference copies."""

import copy
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.utils import parametrize
from typing_extensions import override

from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.nets.ops import without_autocast

Activation = Literal["leaky_relu", "relu", "gelu"]


def get_activation(name: Activation) -> Callable[[Tensor], Tensor]:
    """Return an activation by name. `leaky_relu` has slope 0.01, as in the paper."""
    match name:
        case "leaky_relu":
            return _leaky_relu
        case "relu":
            return functional.relu
        case "gelu":
            return functional.gelu


def _leaky_relu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    # compilers vectorize the maximum but not the comparison; uncompiled, the maximum costs one more pass
    return torch.maximum(x, 0.01 * x) if torch.compiler.is_compiling() else functional.leaky_relu(x)


class MLP(nn.Module):
    """Hidden layers with activations, then a linear output layer, with `float32_output` in float32 at least."""

    def __init__(
        self,
        input_size: int,
        hidden_sizes: Sequence[int],
        output_size: int,
        activation: Activation = "leaky_relu",
        *,
        float32_output: bool = False,
    ) -> None:
        super().__init__()
        self.float32_output = float32_output
        widths = (input_size, *hidden_sizes)
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self.output = nn.Linear(widths[-1], output_size)
        self.activation = get_activation(activation)

    def forward(self, x: Float[Tensor, "... in"]) -> Float[Tensor, "... out"]:
        """Return the output."""
        for layer in self.hidden:
            x = self.activation(layer(x))
        return in_float32(self.output, x) if self.float32_output else self.output(x)


class EnsembleLinear(nn.Module):
    """K independent linear layers. Weight `[K, in, out]`, uniform +-sqrt(3 / in); bias uniform +-sqrt(1 / in)."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        scale = math.sqrt(1.0 / inputs)
        self.weight = nn.Parameter(
            torch.empty(members, inputs, outputs).uniform_(-math.sqrt(3) * scale, math.sqrt(3) * scale)
        )
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-scale, scale))

    def forward(self, x: Float[Tensor, "K N in"], *, detach_weights: bool = False) -> Float[Tensor, "K N out"]:
        """Apply layer k to `x[k]`. With `detach_weights`, gradients reach `x` but not the parameters."""
        weight, bias = (self.weight.detach(), self.bias.detach()) if detach_weights else (self.weight, self.bias)
        return torch.baddbmm(bias, x, weight)


def shared_input_linear(
    x_ND: Float[Tensor, "N D"], weight_KDH: Float[Tensor, "K D H"], bias_K1H: Float[Tensor, "K 1 H"]
) -> Float[Tensor, "K N H"]:
    """Return `x @ weight[k] + bias[k]` for every k by one product, without copies of `x` or of its gradient."""
    num_layers, input_size, output_size = weight_KDH.shape
    weight = weight_KDH.movedim(0, 1).reshape(input_size, num_layers * output_size)
    out = torch.addmm(bias_K1H.flatten(), x_ND, weight)
    return out.unflatten(1, (num_layers, output_size)).movedim(1, 0)


class SigmaLinear(nn.Module):
    """y = x W_hat^T + bias with W_hat = (gamma / sigma(W)) W, which learns the spectral norm separately (sigmaReparam).

    sigma = u^T W v with u, v from power iteration; the gradient flows through W only. A forward pass has no side
    effect: call `power_iteration` once per update. Paper: section 3 and appendix A. Differs from the authors' first
    code: u and v start as the leading singular vectors, so that W_hat has spectral norm 1 from the first forward pass.
    """

    def __init__(self, input_size: int, output_size: int, *, bias: bool = True) -> None:
        super().__init__()
        weight = torch.empty(output_size, input_size)
        nn.init.trunc_normal_(weight, std=0.02)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(output_size)) if bias else None
        self.gamma = nn.Parameter(torch.ones(()))
        left, _, right = torch.linalg.svd(weight, full_matrices=False)
        self.left: Tensor
        self.right: Tensor
        self.register_buffer("left", left[:, 0].clone())
        self.register_buffer("right", right[0].clone())

    def forward(self, x: Float[Tensor, "... in"]) -> Float[Tensor, "... out"]:
        """Return the output."""
        return functional.linear(x, self.effective_weight(), self.bias)

    def effective_weight(self) -> Float[Tensor, "out in"]:
        """Return W_hat, in the type of the weight: autocast would compute sigma in half precision on a GPU."""
        with without_autocast(self.weight.device):
            if torch.compiler.is_compiling():  # a compiler fuses the gradient itself
                return self.weight * (self.gamma / torch.dot(self.left, torch.mv(self.weight, self.right)))
            return _SigmaWeight.apply(self.weight, self.gamma, self.left, self.right)


class _SigmaWeight(torch.autograd.Function):
    """(gamma / sigma) W with sigma = u^T W v, whose gradient takes half the operations of the composed one.

    Of a gradient D: D_gamma = <D, W> / sigma and D_W = (gamma / sigma) (D - (<D, W> / sigma) u v^T).
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, gamma: Tensor, left: Tensor, right: Tensor) -> Tensor:
        sigma = torch.dot(left, torch.mv(weight, right))
        scale = gamma / sigma
        ctx.save_for_backward(weight, sigma, scale, left, right)
        return weight * scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weight, sigma, scale, left, right = ctx.saved_tensors
        of_gamma = (gradient * weight).sum() / sigma
        of_weight = torch.addr(gradient, left * of_gamma, right, alpha=-1).mul_(scale)
        return of_weight, of_gamma, None, None


def sigma_layers(module: nn.Module) -> list[SigmaLinear]:
    """Return every `SigmaLinear` in a module."""
    return [layer for layer in module.modules() if isinstance(layer, SigmaLinear)]


@torch.no_grad()
def power_iteration(layers: Sequence[SigmaLinear]) -> None:
    """Move u and v of each layer one step towards the leading singular vectors of its weight.

    Call it without autocast. All vectors are normalized together, which takes fewer kernels on a GPU.
    """
    for layer in layers:
        torch.mv(layer.weight, layer.right, out=layer.left)
    _normalize_([layer.left for layer in layers])
    for layer in layers:
        torch.mv(layer.weight.t(), layer.left, out=layer.right)
    _normalize_([layer.right for layer in layers])


def _normalize_(vectors: list[Tensor]) -> None:
    if vectors:
        norms = torch._foreach_norm(vectors)
        torch._foreach_clamp_min_(norms, 1e-12)
        torch._foreach_div_(vectors, norms)


def concat_one_hot(category: Int64[Tensor, "N ..."], sizes: tuple[int, ...]) -> Int64[Tensor, "N f"]:
    """Return the concatenated one-hot vectors of `len(sizes)` categories; f is the sum of `sizes`."""
    # the cells of a grid repeat the sizes of one cell, whose columns are taken for all cells at once
    count = len(sizes)
    period = next(n for n in range(1, count + 1) if count % n == 0 and sizes == sizes[:n] * (count // n))
    repeats = count // period
    columns = category.reshape(category.shape[0] * repeats, period).unbind(1)
    one_hots = [functional.one_hot(column, size) for column, size in zip(columns, sizes[:period], strict=True)]
    return torch.cat(one_hots, dim=1).reshape(category.shape[0], sum(sizes))


def in_float32(layer: Callable[..., Tensor], x: Float[Tensor, "..."], **arguments: bool) -> Float[Tensor, "..."]:
    """Return the output of a linear layer, computed in float32 at least: bfloat16 rounds it to 0.4 %."""
    with without_autocast(x.device):
        return layer(at_least_float32(x), **arguments)


def at_least_float32(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return half-precision tensors as float32 and others unchanged."""
    return x.float() if x.dtype.itemsize < 4 else x


_LINEAR_RANGE = 10.0
"""Size of a normalized input up to which it is not compressed."""
_MAX_NORMALIZED = 1e30
"""Largest normalized input, within float32."""


class InputNormalizer(nn.Module):
    """(x - mean) / std per feature, with debiased running moments of the raw inputs of training batches.

    beta_t = beta / (1 - (1 - beta)^t), beta = 1e-4. The result depends neither on the unit of a feature nor on its
    offset: moments and differences are in float64, there is no smallest std, and a feature that never varied is 0.
    Beyond +-10 it grows with the logarithm, x -> 10 (1 + ln(x / 10)). Before the first batch, mean is 0 and std 1.
    A forward pass does not change the moments: the learner calls `update` first. Differs from the code behind the
    paper's results, which updated the moments with inputs that were already normalized, only centered features with a
    std of at most 0.01, and clamped at 1e4.
    """

    def __init__(self, num_features: int, *, beta: float = 1e-4) -> None:
        super().__init__()
        self.beta = beta
        self.mean: Tensor
        self.variance: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(num_features, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(num_features, dtype=torch.float64))
        self.register_buffer("count", torch.zeros(()))

    @torch.no_grad()
    def update(
        self,
        x_NF: Float[Tensor, "N F"],
        token_mask_N: Bool[Tensor, "N"],
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        """Update the moments from the rows of `x` on all ranks where the mask is True; no change if it never is."""
        x_NF = x_NF.to(self.mean.dtype)
        # differences from one of the rows: exactly 0 for a feature that does not vary
        origin_F = x_NF.index_select(0, token_mask_N.to(torch.uint8).argmax().reshape(1))[0]
        distributed.broadcast_(origin_F)
        difference_NF = torch.where(token_mask_N[:, None], x_NF - origin_F, 0.0)
        total, mean_F = token_mask_N.sum().to(x_NF.dtype), difference_NF.sum(0)
        square_F = difference_NF.square().sum(0)
        distributed.all_reduce_sum_(total, mean_F, square_F)
        mean_F, square_F = mean_F / total.clamp(min=1.0), square_F / total.clamp(min=1.0)
        self.count += (total > 0).to(self.count.dtype)
        count = self.count.to(x_NF.dtype)
        beta = torch.where(count > 1, self.beta / (1.0 - (1.0 - self.beta) ** count.clamp(min=1.0)), 1.0)
        beta = torch.where(total > 0, beta, 0.0)
        step_F = origin_F + mean_F - self.mean
        self.variance.add_(beta * step_F.square()).mul_(1.0 - beta).add_(
            beta * (square_F - mean_F.square()).clamp(min=0)
        )
        self.mean.add_(beta * step_F)

    @override
    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load also moments saved as mean and mean square, from which the std was computed as in the paper's code."""
        square_F = state_dict.pop(f"{prefix}square", None)
        if square_F is not None:
            mean_F, square_F = state_dict[f"{prefix}mean"].double(), square_F.double()
            variance_F = (square_F - mean_F.square() + 1e-5).clamp(min=1e-6, max=1e12)
            state_dict[f"{prefix}variance"] = torch.where(variance_F > 1e-4, variance_F, 1.0)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, x_NF: Float[Tensor, "N F"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "N F"]:
        """Return the normalized input as `dtype`."""
        scale_F = torch.where(self.variance > 0, self.variance.rsqrt(), 0.0)
        normalized_NF = ((x_NF - self.mean) * scale_F).clamp(-_MAX_NORMALIZED, _MAX_NORMALIZED).to(dtype)
        ratio_NF = (normalized_NF.abs() / _LINEAR_RANGE).clamp(min=1.0)
        return normalized_NF * (1.0 + ratio_NF.log()) / ratio_NF


@torch.no_grad()
def freeze_for_inference(module: nn.Module, *, fast: bool = True) -> Any:
    """Return an independent copy in evaluation mode without gradients, for acting.

    Sigma and other parametrizations are folded into the weights. If `fast`, linear layers, LayerNorms and dropout
    become subclasses without the overhead of `nn.Module.__call__`, which runs no hooks; otherwise all layers are
    PyTorch's own, for export.
    """
    # layers with an entry are replaced by it instead of being copied
    replace_layer = _fast_layer if fast else _plain_layer
    layers: dict[int, Any] = {id(layer): replace_layer(layer) for layer in module.modules()}
    frozen = copy.deepcopy(module, {key: layer for key, layer in layers.items() if layer is not None})
    frozen.eval().requires_grad_(False)
    for part in frozen.modules():
        if parametrize.is_parametrized(part):
            _fold_parametrizations(part)
        if isinstance(part, nn.RNNBase):
            part.flatten_parameters()  # on a GPU; otherwise cuDNN would gather the copied weights at every step
        if fast:  # attributes of the instance are found without `nn.Module.__getattr__`
            part.__dict__.update(part._modules | part._parameters)
    return frozen


def _plain_layer(layer: nn.Module) -> nn.Module | None:
    if not isinstance(layer, SigmaLinear):
        return None
    weight = layer.effective_weight()
    plain = nn.Linear(weight.shape[1], weight.shape[0], bias=layer.bias is not None, dtype=weight.dtype)
    plain.weight = nn.Parameter(weight)
    if layer.bias is not None:
        plain.bias = nn.Parameter(layer.bias.clone())
    return plain


def _fast_layer(layer: nn.Module) -> nn.Module | None:
    if isinstance(layer, SigmaLinear):
        return _FastLinear(layer.effective_weight(), layer.bias)
    if parametrize.type_before_parametrizations(layer) is nn.Linear:
        assert isinstance(layer, nn.Linear)
        return _FastLinear(layer.weight, layer.bias)
    if type(layer) is nn.LayerNorm:
        fast = copy.deepcopy(layer)
        fast.__class__ = _FastLayerNorm
        return fast
    return _FastIdentity() if type(layer) in (nn.Dropout, nn.Identity) else None


def _fold_parametrizations(module: nn.Module) -> None:
    """Replace parametrizations by their values. PyTorch's `remove_parametrizations` breaks copies of the module."""
    plain_class = parametrize.type_before_parametrizations(module)
    parametrizations = module._modules.pop("parametrizations")
    assert parametrizations is not None
    values = {name: parametrization() for name, parametrization in parametrizations.named_children()}
    module.__class__ = plain_class
    for name, value in values.items():
        module.register_parameter(name, nn.Parameter(value, requires_grad=False))


class _FastLinear(nn.Linear):
    def __init__(self, weight: Float[Tensor, "out in"], bias: Float[Tensor, "out"] | None) -> None:
        nn.Module.__init__(self)
        self.out_features, self.in_features = weight.shape
        # few rows: the product is a tenth faster with the transposed weight contiguous in memory
        self._transposed = weight.t().clone(memory_format=torch.contiguous_format)
        self.weight = nn.Parameter(self._transposed.t(), requires_grad=False)
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias.clone(), requires_grad=False))

    def __call__(self, x: Float[Tensor, "... in"]) -> Float[Tensor, "... out"]:
        if x.dim() != 2:
            return functional.linear(x, self.weight, self.bias)
        if self.bias is None:
            return torch.mm(x, self._transposed)
        return torch.addmm(self.bias, x, self._transposed)


class _FastLayerNorm(nn.LayerNorm):
    def __call__(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        return torch.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class _FastIdentity(nn.Identity):
    def __call__(self, x: Tensor) -> Tensor:
        return x
