"""`ClippedAdamW`: the optimizer of the learner."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class ClippedAdamW:
    """Fused AdamW with gradients clipped to a global norm.

    A step with a non-finite loss or gradient changes nothing. The check runs on the device without host
    synchronization, so that the step can be captured in a CUDA graph.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], *, weight_decay: float, max_grad_norm: float) -> None:
        self.parameters = list(parameters)
        self.max_grad_norm = max_grad_norm
        self.lr = torch.zeros((), device=self.parameters[0].device)
        """Learning rate of the next step; a tensor, so that a captured step reads its current value."""
        self._adamw = torch.optim.AdamW(
            self.parameters, lr=self.lr, weight_decay=weight_decay, fused=True, capturable=self.lr.is_cuda
        )

    def zero_grad(self) -> None:
        """Clear all gradients."""
        self._adamw.zero_grad()

    @property
    def grads(self) -> list[Tensor]:
        """Gradients of the parameters that have one."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def step(self, loss: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Bool[Tensor, ""]]:
        """Take a step if loss and gradients are finite. Return the norm before clipping and whether they are."""
        norm = nn.utils.get_total_norm(self.grads, foreach=True)
        finite = torch.isfinite(loss + norm)
        # fused optimizers divide gradients by `grad_scale` and skip the step if `found_inf` is set
        self._adamw.grad_scale = ((norm + 1e-6) / self.max_grad_norm).clamp(min=1.0).float()  # type: ignore[attr-defined]
        self._adamw.found_inf = (~finite).float()  # type: ignore[attr-defined]
        self._adamw.step()
        return norm, finite

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and step counts of all parameters."""
        return {"state": self._adamw.state_dict()["state"]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the moments and step counts of `state_dict`."""
        self._adamw.load_state_dict({**self._adamw.state_dict(), "state": state["state"]})
        for group in self._adamw.param_groups:
            group["lr"] = self.lr
