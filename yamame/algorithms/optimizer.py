"""`ClippedAdamW`: the optimizer of the learners; and the decay of their learning rates."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""PyTorch's defaults."""
_DECAYED = 0.1
"""Fraction of the learning rate at the end of its decay."""


def lr_decay(step: int, duration: int) -> float:
    """Return the factor at a step of a learning rate that decays linearly to a tenth. `duration` 0: it is constant."""
    return 1.0 - (1.0 - _DECAYED) * min(1.0, step / duration) if duration else 1.0


class ClippedAdamW:
    """Fused AdamW with gradients clipped to a global norm.

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
    ) -> None:
        self.parameters = list(parameters)
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

    @torch.no_grad()
    def step(self, loss: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Bool[Tensor, ""]]:
        """Take a step if loss and gradients are finite. Return the norm before clipping and whether they are."""
        grads = self.grads
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads)))
        finite = torch.isfinite(loss + norm)
        moved = tuple(index for index, parameter in enumerate(self.parameters) if parameter.grad is not None)
        states = [self._state.get(index) or self._start(index) for index in moved]
        self._num_steps.add_(self._indicator(moved) * finite)
        # the fused step divides gradients by `grad_scale` and changes nothing if `found_inf` is set
        torch._fused_adamw_(
            [self.parameters[index] for index in moved],
            grads,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
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
