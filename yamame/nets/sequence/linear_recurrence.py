"""Linear recurrence: gates that do not depend on the state, so that a whole window is one parallel scan."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from yamame.data.batch import Batch
from yamame.errors import check_range
from yamame.nets.blocks import SigmaLinear, at_least_float32
from yamame.nets.ops import uncompiled
from yamame.nets.sequence.base import RecurrentEncoder, TrajectoryEncoderConfig


@dataclass(frozen=True, kw_only=True)
class LinearRecurrenceConfig(TrajectoryEncoderConfig):
    """Sizes of the linear recurrence."""

    SIZES: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"d_model": 32, "d_ff": 128, "num_layers": 1},
        "small": {"d_model": 64, "d_ff": 256, "num_layers": 2},
        "base": {"d_model": 256, "d_ff": 1024, "num_layers": 3},
        "large": {"d_model": 384, "d_ff": 1536, "num_layers": 6},
    }

    d_model: int = 256
    """Width of the residual stream, of the hidden layers and of the states."""
    num_layers: int = 3
    """Number of blocks."""
    d_ff: int = 1024
    """Width of the hidden layer of each block's feed-forward network."""

    def __post_init__(self) -> None:
        check_range(self, "d_model", "num_layers", "d_ff", ge=1)

    @property
    def state_size(self) -> int:
        """Width of the states."""
        return self.d_model

    def build(self, *, input_size: int, attention_window: int, max_timestep: int) -> "LinearRecurrence":
        """Return the encoder. It depends on all timesteps since the start of the window.

        At the start of training its hidden units forget within 2 to about `attention_window` timesteps.
        """
        return LinearRecurrence(self, input_size=input_size, longest_memory=attention_window)


class LinearRecurrence(RecurrentEncoder):
    """Linear -> blocks of a linear recurrence and a feed-forward network -> LayerNorm.

    Acting costs the same at every timestep, with `num_layers * d_model` numbers of memory.
    """

    def __init__(self, config: LinearRecurrenceConfig, *, input_size: int, longest_memory: int) -> None:
        super().__init__(RecurrentBlocks(config, input_size=input_size, longest_memory=longest_memory))
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """Return the states of all tokens, without padding: the recurrence starts anew where a window starts."""
        assert isinstance(self.recurrence, RecurrentBlocks)
        return self.readout(self.recurrence.packed(timestep_ND, batch.position_ids > 0))

    def readout(self, state_NS: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return the normalized residual stream."""
        return self.norm(state_NS)


class RecurrentBlocks(nn.Module):
    """Linear -> residual blocks, for packed windows or for one timestep after a hidden state."""

    def __init__(self, config: LinearRecurrenceConfig, *, input_size: int, longest_memory: int) -> None:
        super().__init__()
        self.embed = nn.Linear(input_size, config.d_model)
        self.blocks: list[RecurrentBlock] = nn.ModuleList(  # type: ignore[assignment]
            RecurrentBlock(config, longest_memory=longest_memory) for _ in range(config.num_layers)
        )

    def packed(self, x_ND: Float[Tensor, "N D"], continues_N: Bool[Tensor, "N"]) -> Float[Tensor, "N S"]:
        """Return the outputs of all tokens; `continues` is False where a window starts."""
        x_ND = self.embed(x_ND)
        for block in self.blocks:
            keep_ND, add_ND, gate_ND = block.project(x_ND)
            hidden_ND = linear_scan(keep_ND * continues_N[:, None], add_ND)
            x_ND = block.add_residuals(x_ND, hidden_ND, gate_ND)
        return x_ND

    def forward(
        self, x_B1D: Float[Tensor, "B 1 D"], hidden_LBD: Float[Tensor, "layers B S"] | None
    ) -> tuple[Float[Tensor, "B 1 S"], Float[Tensor, "layers B S"]]:
        """Return the outputs of one timestep, and the hidden state of each layer after it; None: zeros before it."""
        x_BD = self.embed(x_B1D.squeeze(1))
        following = []
        for layer, block in enumerate(self.blocks):
            keep_BD, add_BD, gate_BD = block.project(x_BD)
            following.append(add_BD if hidden_LBD is None else torch.addcmul(add_BD, keep_BD, hidden_LBD[layer]))
            x_BD = block.add_residuals(x_BD, following[-1], gate_BD)
        return x_BD[:, None], torch.stack(following)


class RecurrentBlock(nn.Module):
    """Pre-LayerNorm block: `project`, the recurrence h = keep * h + add by the caller, and `add_residuals`.

    keep = sigmoid(W x + b) per hidden unit, and add = (1 - keep) * candidate: minGRU (Feng et al. 2024, "Were RNNs all
    we needed?", section 3.1). Such a unit holds its content exactly (keep 1) and replaces it in one timestep (keep 0),
    both decided by the input; the decay of an RG-LRU (De et al. 2024) has a smallest value, so that its memory fades
    but is not overwritten. LayerNorms, feed-forward network and sigmaReparam are those of the Transformer's blocks.

    Differs from the paper: a second branch gates the output as in Griffin (De et al. 2024), and the gates start such
    that rare inputs are remembered. b is such that units forget within 2 to `longest_memory` timesteps, spread evenly
    on a logarithmic scale (after the "chrono initialization" of Tallec and Ollivier 2018), and W is large. With weights
    of the usual size all inputs of a window leave equally small traces, and a bit that is shown once, 100 timesteps
    before it is needed, is not learned by 300 updates.
    """

    GATE_STD: ClassVar[float] = 2.0
    """Standard deviation of W x at the start of training."""

    def __init__(self, config: LinearRecurrenceConfig, *, longest_memory: int) -> None:
        super().__init__()
        width = config.d_model
        self.norm_in = nn.LayerNorm(width)
        self.keep = nn.Linear(width, width)
        self.candidate_gate = SigmaLinear(width, 2 * width)
        self.recurrence_out = SigmaLinear(width, width)
        self.norm_recurrence = nn.LayerNorm(width)
        self.norm_feedforward = nn.LayerNorm(width)
        self.feedforward_in = SigmaLinear(width, config.d_ff)
        self.norm_hidden = nn.LayerNorm(config.d_ff)
        self.feedforward_out = SigmaLinear(config.d_ff, width)
        nn.init.normal_(self.keep.weight, std=self.GATE_STD * width**-0.5)
        with torch.no_grad():
            self.keep.bias.copy_(torch.linspace(0.0, math.log(max(1, longest_memory)), width))

    def project(self, x_ND: Float[Tensor, "N D"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the factor of the hidden state, what is added to it, and the gate of the output."""
        x_ND = self.norm_in(x_ND)
        keep_ND = at_least_float32(self.keep(x_ND))
        candidate_ND, gate_ND = at_least_float32(self.candidate_gate(x_ND)).chunk(2, dim=1)
        return keep_ND.sigmoid(), (-keep_ND).sigmoid() * candidate_ND, functional.silu(gate_ND)

    def add_residuals(
        self, x_ND: Float[Tensor, "N D"], hidden_ND: Float[Tensor, "N D"], gate_ND: Float[Tensor, "N D"]
    ) -> Float[Tensor, "N D"]:
        """Add the recurrence and then the feed-forward network to the residual stream."""
        x_ND = x_ND + self.norm_recurrence(self.recurrence_out(hidden_ND * gate_ND))
        activation_NF = functional.leaky_relu(self.feedforward_in(self.norm_feedforward(x_ND)))
        return x_ND + self.feedforward_out(self.norm_hidden(activation_NF))


@uncompiled  # a compiler would unroll the loops
def linear_scan(factor_ND: Float[Tensor, "N D"], added_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Return h[n] = factor[n] * h[n - 1] + added[n] for all n, with h[-1] = 0.

    A factor of 0 starts a new sequence, so that packed sequences need no padding.
    """
    with torch.autocast(factor_ND.device.type, enabled=False):
        return _LinearScan.apply(factor_ND, added_ND)


class _LinearScan(torch.autograd.Function):
    """The gradient of a scan is a scan backwards in time: g[n] = d[n] + factor[n + 1] * g[n + 1]."""

    @staticmethod
    def forward(ctx: Any, factor_ND: Tensor, added_ND: Tensor) -> Tensor:
        hidden_ND = _scan(factor_ND, added_ND, backwards=False)
        ctx.save_for_backward(factor_ND, hidden_ND)
        return hidden_ND

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_ND: Tensor) -> tuple[Tensor, Tensor]:
        factor_ND, hidden_ND = ctx.saved_tensors
        d_added_ND = _scan(functional.pad(factor_ND[1:], (0, 0, 0, 1)), gradient_ND, backwards=True)
        d_factor_ND = d_added_ND.clone()
        d_factor_ND[:1] = 0.0
        d_factor_ND[1:] *= hidden_ND[:-1]
        return d_factor_ND, d_added_ND


_CHUNK = 8
"""Steps of a chunk. Every level of the scan takes three times as many small operations."""


def _scan(factor_ND: Tensor, added_ND: Tensor, *, backwards: bool) -> Tensor:
    """Scan chunks of the sequence side by side, from the states at their starts, which are a scan of the chunks' sums.

    A chunk maps a state h to product * h + sum; the scan over these pairs is N / `_CHUNK` long. The tokens that do not
    fill a chunk follow one by one.
    """
    length, chunks = len(added_ND), len(added_ND) // _CHUNK if len(added_ND) >= 2 * _CHUNK else 0
    tokens = range(length - chunks * _CHUNK - 1, -1, -1) if backwards else range(chunks * _CHUNK, length)
    hidden_ND = torch.empty_like(added_ND)
    state_D = torch.zeros_like(added_ND[0])
    if chunks:
        chunked = slice(length - chunks * _CHUNK, length) if backwards else slice(chunks * _CHUNK)
        steps = [x[chunked].unflatten(0, (chunks, _CHUNK)).unbind(1) for x in (factor_ND, added_ND, hidden_ND)]
        in_order = list(zip(*steps, strict=True))[:: -1 if backwards else 1]
        product_KD, sum_KD, _ = (x.clone() for x in in_order[0])
        for factor_KD, added_KD, _ in in_order[1:]:
            torch.addcmul(added_KD, factor_KD, sum_KD, out=sum_KD)
            product_KD *= factor_KD
        ends_KD = _scan(product_KD, sum_KD, backwards=backwards)
        state_KD = (
            functional.pad(ends_KD[1:], (0, 0, 0, 1)) if backwards else functional.pad(ends_KD[:-1], (0, 0, 1, 0))
        )
        for factor_KD, added_KD, next_KD in in_order:
            state_KD = torch.addcmul(added_KD, factor_KD, state_KD, out=next_KD)
        state_D = ends_KD[0] if backwards else ends_KD[-1]
    for token in tokens:
        state_D = torch.addcmul(added_ND[token], factor_ND[token], state_D, out=hidden_ND[token])
    return hidden_ND
