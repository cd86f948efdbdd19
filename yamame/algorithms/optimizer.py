"""`ClippedAdamW`: the optimizer of the learners; and the decay of their learning rates."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from yamame.distributed_context import DistributedContext

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""PyTorch's defaults."""
_DECAYED = 0.1
"""Fraction of the learning rate at the end of its decay."""


def lr_decay(step: int, duration: int) -> float:
    """Return the factor at a step of a learning rate that decays linearly to a tenth. `duration` 0: it is constant."""
    return 1.0 - (1.0 - _DECAYED) * min(1.0, step / duration) if duration else 1.0


def wide_layer_lr_scales(module: nn.Module, parameters: Sequence[nn.Parameter], max_inputs: int) -> tuple[float, ...]:
    """Return the factor of each parameter's learning rate that makes steps of wide layers as large as of others.

    A step of Adam moves each weight by about the learning rate, so that it can move an output by as much times the
    number of inputs (Yang et al. 2022, arXiv 2203.03466). The factor is `max_inputs` / N for weights of the module's
    linear layers of N > `max_inputs` inputs, and 1 for all other parameters. `max_inputs` 0: 1 for all.
    """
    scales = {
        id(layer.weight): max_inputs / layer.in_features
        for layer in module.modules()
        if isinstance(layer, nn.Linear) and 0 < max_inputs < layer.in_features
    }
    return tuple(scales.get(id(parameter), 1.0) for parameter in parameters)


class ClippedAdamW:
    """Fused AdamW with gradients clipped to a global norm.

    `lr_scales` are the factors of the parameters' learning rates; empty: all 1. Weight decay does not depend on them.

    A step with a non-finite loss or gradient changes nothing. The check runs on the device without host
    synchronization, so that the step can be captured in a CUDA graph.

    The state is held here and not by `torch.optim.AdamW`, which counts the steps of each parameter by an operation of
    its own, and which imports PyTorch's compiler: that takes longer than all other imports of a run together.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        weight_decay: float,
        max_grad_norm: float,
        epsilon: float = EPSILON,
        lr_scales: Sequence[float] = (),
    ) -> None:
        self.parameters = list(parameters)
        self.lr_scales = tuple(lr_scales) or (1.0,) * len(self.parameters)
        self.weight_decay = weight_decay
        self.epsilon = epsilon
        self.max_grad_norm = max_grad_norm
        self.lr = torch.zeros((), device=self.parameters[0].device)
        """Learning rate of the next step; a tensor, so that a captured step reads its current value."""
        self._num_steps = torch.zeros(len(self.parameters), device=self.lr.device)
        self._state: dict[int, dict[str, Tensor]] = {}
        """Index of a parameter -> moments and its element of `_num_steps`, from its first gradient on."""
        self._indicators: dict[tuple[int, ...], Tensor] = {}

    def zero_grad(self) -> None:
        """Clear all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @property
    def grads(self) -> list[Tensor]:
        """Gradients of the parameters that have one."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def grads_to_sum(self, distributed: DistributedContext) -> list[Tensor]:
        """Return the gradients that are summed over all ranks: with several, one of each parameter.

        A rank whose batch leaves out a branch of the network has no gradient there, and adds 0.
        """
        if not distributed.is_single_process:
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        return self.grads

    @torch.no_grad()
    def step(self, loss: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Bool[Tensor, ""]]:
        """Take a step if loss and gradients are finite. Return the norm before clipping and whether they are."""
        grads = {index: each.grad for index, each in enumerate(self.parameters) if each.grad is not None}
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(grads.values()))))
        finite = torch.isfinite(loss + norm)
        self._num_steps.add_(self._indicator(tuple(grads)) * finite)
        # the fused step divides gradients by `grad_scale` and changes nothing if `found_inf` is set
        grad_scale, found_inf = ((norm + 1e-6) / self.max_grad_norm).clamp(min=1.0).float(), (~finite).float()
        for scale in dict.fromkeys(self.lr_scales[index] for index in grads):
            same = [index for index in grads if self.lr_scales[index] == scale]
            states = [self._state.get(index) or self._start(index) for index in same]
            torch._fused_adamw_(
                [self.parameters[index] for index in same],
                [grads[index] for index in same],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                grad_scale=grad_scale,
                found_inf=found_inf,
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=self.lr if scale == 1.0 else self.lr * scale,
                weight_decay=self.weight_decay / scale,
                eps=self.epsilon,
                maximize=False,
            )
        return norm, finite

    def _start(self, index: int) -> dict[str, Tensor]:
        """Return the state of a parameter before its first gradient."""
        moments = {name: torch.zeros_like(self.parameters[index]) for name in ("exp_avg", "exp_avg_sq")}
        self._state[index] = {"step": self._num_steps[index], **moments}
        return self._state[index]

    def _indicator(self, moved: tuple[int, ...]) -> Float[Tensor, "P"]:
        """Return 1 for these parameters and 0 for others."""
        if moved not in self._indicators:
            numbers = [float(index in moved) for index in range(len(self.parameters))]
            self._indicators[moved] = torch.tensor(numbers, device=self.lr.device)
        return self._indicators[moved]

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and step counts of all parameters."""
        return {"state": {index: dict(state) for index, state in self._state.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the moments and step counts of `state_dict`."""
        self._state = {}
        self._num_steps.zero_()
        for index, saved in state["state"].items():
            for name, value in self._start(index).items():
                value.copy_(saved[name])
