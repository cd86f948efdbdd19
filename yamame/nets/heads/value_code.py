"""How a critic's outputs encode values: the base class of value codes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from yamame.distributed_context import SINGLE_PROCESS, DistributedContext


@dataclass(frozen=True, kw_only=True)
class ValueCodeConfig(ABC):
    """Base of the configs of value codes. `CriticConfig.value_code` selects one."""

    @abstractmethod
    def build(self, num_gammas: int, *, normalize: bool) -> "ValueCode":
        """Return the value code; `normalize`: by running statistics of the targets (`--agent.popart`)."""


class ValueCode(nn.Module):
    """Encoding of values by `num_outputs` (Z) critic outputs, shared by the online and the target critics.

    Three scales are in use. `decode` maps outputs to *critic values* x, `scale_G` x + `shift_G` is a *normalized
    value*, and `denormalize` maps critic values to units of scaled reward. This base class makes all three equal;
    subclasses implement `decode` and `loss`. Running statistics are buffers, which `update` moves.
    """

    num_outputs = 1
    rescale_critics = False
    """Whether `scale_G` and `shift_G` move into the critics' last layers after every update."""

    def __init__(self, num_gammas: int) -> None:
        super().__init__()
        self.scale_G: Tensor
        self.shift_G: Tensor
        self.register_buffer("scale_G", torch.ones(num_gammas))
        self.register_buffer("shift_G", torch.zeros(num_gammas))

    def decode(self, output: Float[Tensor, "*shape Z"]) -> Float[Tensor, "*shape"]:
        """Return the critic values of a critic's outputs."""
        raise NotImplementedError

    def loss(self, output_NKGZ: Float[Tensor, "N K G Z"], target_NG: Float[Tensor, "N G"]) -> Float[Tensor, "N K G"]:
        """Return the loss of outputs against normalized TD targets, for every token, critic and gamma."""
        raise NotImplementedError

    def normalize(self, value_NG: Float[Tensor, "N G"]) -> Float[Tensor, "N G"]:
        """Return normalized values of values in units of scaled reward."""
        return value_NG

    def denormalize(self, critic_value_NKG: Float[Tensor, "N K G"]) -> Float[Tensor, "N K G"]:
        """Return critic values in units of scaled reward."""
        return critic_value_NKG

    def update(
        self,
        target_NG: Float[Tensor, "N G"],
        loss_mask_N: Bool[Tensor, "N"],
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        """Update the running statistics from the valid TD targets of all ranks, in units of scaled reward.

        No change by default.
        """

    def metrics(self) -> Mapping[str, Float[Tensor, ""]]:
        """Return metrics of the acting gamma (the last one), in units of scaled reward."""
        return {}

    def unitless_metrics(self) -> Mapping[str, Float[Tensor, ""]]:
        """Return metrics of the acting gamma that do not depend on the unit of rewards, such as fractions."""
        return {}

    def metrics_by_gamma(self) -> Mapping[str, Float[Tensor, "G"]]:
        """Return metrics of every gamma, in units of scaled reward."""
        return {}
