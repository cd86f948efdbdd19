"""AdamW with clipping, which takes no step that is not finite."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


class ClippedAdamW:
    """Fused AdamW on gradients scaled down to a largest global norm.

    Whether a step is finite is decided where the gradients are: the host is never waited for, so that a GPU can run
    ahead and the whole step can be recorded.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], *, weight_decay: float, max_grad_norm: float) -> None:
        self.parameters = list(parameters)
        self.max_grad_norm = max_grad_norm
        self.lr = torch.zeros((), device=self.parameters[0].device)
        """Of the next step. A tensor, so that a recorded step sees it change."""
        self._adamw = torch.optim.AdamW(
            self.parameters,
            lr=self.lr,
            weight_decay=weight_decay,
            fused=True,
            capturable=self.lr.is_cuda,
        )

    def zero_grad(self) -> None:
        """Forget all gradients."""
        self._adamw.zero_grad()

    @property
    def grads(self) -> list[Tensor]:
        """Of the parameters that have one."""
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def step(self, loss: Float[Tensor, ""]) -> tuple[Float[Tensor, ""], Bool[Tensor, ""]]:
        """Move the parameters, if `loss` and gradient are finite; the gradient's norm before clipping, and whether."""
        norm = nn.utils.get_total_norm(self.grads, foreach=True)
        finite = torch.isfinite(loss + norm)
        # the two attributes by which fused optimizers take a scale of the gradients and a verdict on them
        self._adamw.grad_scale = ((norm + 1e-6) / self.max_grad_norm).clamp(min=1.0).float()  # type: ignore[attr-defined]
        self._adamw.found_inf = (~finite).float()  # type: ignore[attr-defined]
        self._adamw.step()
        return norm, finite

    def state_dict(self) -> dict[str, Any]:
        """Moments and step counts of all parameters."""
        return {"state": self._adamw.state_dict()["state"]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self._adamw.load_state_dict({**self._adamw.state_dict(), "state": state["state"]})
        for group in self._adamw.param_groups:
            group["lr"] = self.lr
