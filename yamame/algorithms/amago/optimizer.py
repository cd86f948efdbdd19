"""`ClippedAdamW`: the optimizer of the learner."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.optim.adamw import adamw

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""PyTorch's defaults."""


class ClippedAdamW:
    """Fused AdamW with gradients clipped to a global norm.

    A step with a non-finite loss or gradient changes nothing. The check runs on the device without host
    synchronization, so that the step can be captured in a CUDA graph.

    The state is held here, and not by a `torch.optim.AdamW`, which imports PyTorch's compiler: that takes longer than
    all other imports of a run together.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        weight_decay: float,
        max_grad_norm: float,
        epsilon: float = EPSILON,
    ) -> None:
        self.parameters = list(parameters)
        self.weight_decay = weight_decay
        self.epsilon = epsilon
        self.max_grad_norm = max_grad_norm
        self.lr = torch.zeros((), device=self.parameters[0].device)
        """Learning rate of the next step; a tensor, so that a captured step reads its current value."""
        self._state: dict[int, dict[str, Tensor]] = {}
        """Index of a parameter -> number of steps and moments, from its first gradient on."""

    def zero_grad(self) -> None:
        """Clear all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @property
    def grads(self) -> list[Tensor]:
        """Gradients of the parameters that have one."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    @torch.no_grad()
    def step(self, loss: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Bool[Tensor, ""]]:
        """Take a step if loss and gradients are finite. Return the norm before clipping and whether they are."""
        grads = self.grads
        norm = nn.utils.get_total_norm(grads, foreach=True)
        finite = torch.isfinite(loss + norm)
        moved = {index: parameter for index, parameter in enumerate(self.parameters) if parameter.grad is not None}
        states = [self._state_of(index) for index in moved]
        # the fused step divides gradients by `grad_scale` and changes nothing if `found_inf` is set
        adamw(
            list(moved.values()),
            grads,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            capturable=self.lr.is_cuda,
            grad_scale=((norm + 1e-6) / self.max_grad_norm).clamp(min=1.0).float(),
            found_inf=(~finite).float(),
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self.lr,
            weight_decay=self.weight_decay,
            eps=self.epsilon,
            maximize=False,
        )
        return norm, finite

    def _state_of(self, index: int) -> dict[str, Tensor]:
        if index not in self._state:
            parameter = self.parameters[index]
            self._state[index] = {
                "step": torch.zeros((), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        return self._state[index]

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and step counts of all parameters."""
        return {"state": {index: dict(state) for index, state in self._state.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the moments and step counts of `state_dict`."""
        parameters = dict(enumerate(self.parameters))
        self._state = {
            index: {
                "step": saved["step"].to(parameters[index].device, torch.float32),
                "exp_avg": saved["exp_avg"].to(parameters[index]),
                "exp_avg_sq": saved["exp_avg_sq"].to(parameters[index]),
            }
            for index, saved in state["state"].items()
        }
