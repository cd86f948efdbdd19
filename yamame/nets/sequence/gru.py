"""GRU trajectory encoder: the paper's AMAGO-GRU baseline."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from yamame.errors import check_range
from yamame.nets.blocks import at_least_float32
from yamame.nets.ops import uncompiled
from yamame.nets.sequence.base import RecurrentEncoder, TrajectoryEncoderConfig, float32_recurrence


@dataclass(frozen=True, kw_only=True)
class GRUConfig(TrajectoryEncoderConfig):
    """Sizes of the GRU."""

    SIZES: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"d_model": 32, "num_layers": 1},
        "small": {"d_model": 64, "num_layers": 2},
        "base": {"d_model": 256, "num_layers": 3},
        "large": {"d_model": 384, "num_layers": 6},
    }

    d_model: int = 256
    """Width of the hidden layers and of the states."""
    num_layers: int = 2
    """Number of recurrent layers."""

    def __post_init__(self) -> None:
        check_range(self, "d_model", "num_layers", ge=1)

    @property
    def state_size(self) -> int:
        """Width of the states."""
        return self.d_model

    def build(self, *, input_size: int, attention_window: int, max_timestep: int) -> "GRU":
        """Return the GRU. It depends on all timesteps since the start of the window."""
        return GRU(self, input_size=input_size)


class GRU(RecurrentEncoder):
    """GRU -> linear -> LayerNorm. Paper: appendix A (baselines)."""

    def __init__(self, config: GRUConfig, *, input_size: int) -> None:
        recurrence = nn.GRU(input_size, config.d_model, config.num_layers, batch_first=True)
        super().__init__(recurrence)
        self.output = nn.Linear(config.d_model, config.d_model)
        self.norm = nn.LayerNorm(config.d_model)

    def sequence(self, x_BLD: Float[Tensor, "B L D"]) -> Float[Tensor, "B L S"]:
        """Return the states of whole windows, starting from zeros."""
        assert isinstance(self.recurrence, nn.GRU)
        return gru_forward(self.recurrence, x_BLD)

    def readout(self, state_NS: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Return the normalized linear map of the recurrence's outputs."""
        return self.norm(at_least_float32(self.output(state_NS)))


def gru_forward(recurrence: nn.GRU, rows_BLD: Float[Tensor, "B L inputs"]) -> Float[Tensor, "B L D"]:
    """The states of an `nn.GRU` with `batch_first` that starts with zeros.

    `nn.GRU` itself is slow to train on a CPU: it sums the weights' gradient step by step.
    """
    if torch.compiler.is_exporting():
        return recurrence(rows_BLD)[0]
    if rows_BLD.device.type != "cpu":
        return float32_recurrence(recurrence, rows_BLD)
    two_gates = 2 * recurrence.hidden_size
    x_LBD = rows_BLD.transpose(0, 1)
    for input_weight, weight, input_bias, bias in recurrence.all_weights:
        always = input_bias + functional.pad(bias[:two_gates], (0, recurrence.hidden_size))
        input_gates = at_least_float32(functional.linear(x_LBD, input_weight, always))
        x_LBD = gru_scan(input_gates, weight, bias[two_gates:])
    return x_LBD.transpose(0, 1)


@uncompiled  # a compiler would unroll the loop
def gru_scan(
    input_gates_LBG: Float[Tensor, "L B G"], weight_GD: Float[Tensor, "G D"], bias_D: Float[Tensor, "D"]
) -> Float[Tensor, "L B D"]:
    """States after each of L steps of B rows, beginning with zeros; G = 3 D: reset, update and new gates.

    `input_gates`: all that adds to the gates and does not depend on the state, so also `nn.GRU`'s `bias_hh` of the
    first two; its last third, which the reset gate multiplies, is `bias`. `weight` is `weight_hh`.
    """
    with torch.autocast("cpu", enabled=False):
        return _Recurrence.apply(input_gates_LBG, weight_GD, bias_D)


class _Recurrence(torch.autograd.Function):
    """A product and five small operations a step, three on the way back; the weights' gradient is one product."""

    @staticmethod
    def forward(ctx: Any, input_gates_LBG: Tensor, weight_GD: Tensor, bias_D: Tensor) -> Tensor:
        length, rows, width = *input_gates_LBG.shape[:2], weight_GD.shape[1]
        state_LBD = input_gates_LBG.new_zeros(length + 1, rows, width)
        gates_LBG = torch.empty_like(input_gates_LBG)
        new_LBD = torch.empty_like(state_LBD[1:])
        weight_DG = weight_GD.t().contiguous()
        state_BD = state_LBD[0]
        for from_input_BG, gates_BG, new_BD, next_BD in _steps(input_gates_LBG, gates_LBG, new_LBD, state_LBD[1:]):
            torch.mm(state_BD, weight_DG, out=gates_BG)
            reset_update_BG, hidden_BD = gates_BG[:, : 2 * width], gates_BG[:, 2 * width :]
            reset_update_BG.add_(from_input_BG[:, : 2 * width]).sigmoid_()
            reset_BD, update_BD = reset_update_BG[:, :width], reset_update_BG[:, width:]
            torch.addcmul(from_input_BG[:, 2 * width :], reset_BD, hidden_BD.add_(bias_D), out=new_BD).tanh_()
            state_BD = torch.lerp(new_BD, state_BD, update_BD, out=next_BD)
        ctx.save_for_backward(state_LBD, gates_LBG, new_LBD, weight_GD)
        return state_LBD[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_LBD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        state_LBD, gates_LBG, new_LBD, weight_GD = ctx.saved_tensors
        before_LBD = state_LBD[:-1]
        reset, update, hidden = gates_LBG.chunk(3, dim=2)
        slope_LB3D = torch.empty_like(gates_LBG).unflatten(2, (3, -1))
        slope_of_new = torch.ops.aten.tanh_backward(1 - update, new_LBD)
        torch.ops.aten.sigmoid_backward(slope_of_new * hidden, reset, grad_input=slope_LB3D[:, :, 0])
        torch.ops.aten.sigmoid_backward(before_LBD - new_LBD, update, grad_input=slope_LB3D[:, :, 1])
        torch.mul(slope_of_new, reset, out=slope_LB3D[:, :, 2])

        d_gates_LB3D, d_state_LBD = torch.empty_like(slope_LB3D), torch.empty_like(new_LBD)
        d_before_BD = torch.zeros_like(new_LBD[0])
        steps = _steps(gradient_LBD, update, slope_LB3D, d_state_LBD, d_gates_LB3D)
        for gradient_BD, update_BD, slope_B3D, d_state_BD, d_gates_B3D in reversed(steps):
            torch.add(gradient_BD, d_before_BD, out=d_state_BD)
            torch.mul(slope_B3D, d_state_BD[:, None], out=d_gates_B3D)
            torch.mul(d_state_BD, update_BD, out=d_before_BD).addmm_(d_gates_B3D.flatten(1), weight_GD)
        d_weight_GD = d_gates_LB3D.view(-1, len(weight_GD)).t() @ before_LBD.reshape(-1, weight_GD.shape[1])
        d_bias_D = d_gates_LB3D[:, :, 2].sum((0, 1))
        torch.mul(d_state_LBD, slope_of_new, out=d_gates_LB3D[:, :, 2])
        return d_gates_LB3D.flatten(2), d_weight_GD, d_bias_D


def _steps(*over_time: Tensor) -> list[tuple[Tensor, ...]]:
    return list(zip(*(x.unbind() for x in over_time), strict=True))
