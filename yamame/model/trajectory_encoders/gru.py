"""Recurrent trajectory encoder: the paper's AMAGO-GRU."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from yamame.model.blocks.recurrence import gru_of_rows
from yamame.model.trajectory_encoders.config import TrajectoryEncoderConfig
from yamame.ops.rows import RowLayout
from yamame.records.batch import Batch
from yamame.records.limits import check_limits
from yamame.records.resumable import State


@dataclass(frozen=True, kw_only=True)
class GRUConfig(TrajectoryEncoderConfig):
    """Sizes of the GRU."""

    width: int = 256
    """Width of the hidden layers and of the states."""
    layers: int = 2
    """Number of recurrent layers."""

    def __post_init__(self) -> None:
        check_limits(self, "width", "layers", at_least=1)

    @property
    def state_size(self) -> int:
        """Width of the states."""
        return self.width

    def build(self, *, inputs: int, memory_length: int, max_time: int) -> "GRU":
        """The GRU; it needs neither length: it remembers from the window's first timestep on."""
        return GRU(self, inputs=inputs)


class GRU(nn.Module):
    """GRU -> linear -> LayerNorm. Source: paper appendix A (baselines)."""

    def __init__(self, config: GRUConfig, *, inputs: int) -> None:
        super().__init__()
        self.recurrence = nn.GRU(inputs, config.width, config.layers, batch_first=True)
        self.output = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """States of all tokens; the recurrence starts empty at each window."""
        layout = RowLayout.of(batch.segment, batch.position, batch.num_windows, batch.longest, all_full=batch.full_rows)
        states_BLD = gru_of_rows(self.recurrence, layout.to_rows(timestep_ND))
        return self.norm(self.output(layout.from_rows(states_BLD)))

    def initial_state(self, num_envs: int) -> "GRUMemory":
        """Zeros."""
        shape = (self.recurrence.num_layers, num_envs, self.recurrence.hidden_size)
        weight = next(self.parameters())
        return GRUMemory(
            hidden=weight.new_zeros(shape),
            before=weight.new_zeros(shape),
            time=torch.full((num_envs,), -1, device=weight.device),
        )

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], state: "GRUMemory"
    ) -> Float[Tensor, "E S"]:
        """State of one more timestep of each environment."""
        time = torch.from_numpy(time_E).to(timestep_ED.device)
        state.before = torch.where((time == state.time)[:, None], state.before, state.hidden)
        state.before = torch.where((time == 0)[:, None], 0.0, state.before)
        out_E1D, state.hidden = self.recurrence(timestep_ED[:, None], state.before)
        state.time = time.clone()
        return self.norm(self.output(torch.squeeze(out_E1D, 1)))


@dataclass(kw_only=True)
class GRUMemory:
    """What acting remembers: a timestep that comes twice (nothing happened in between) replaces what it left first."""

    hidden: Float[Tensor, "layers E D"]
    """After the last timestep."""
    before: Float[Tensor, "layers E D"]
    """Before it."""
    time: Int64[Tensor, "E"]
    """Of the last timestep."""

    def state_dict(self) -> State:
        """All of it."""
        return {name: tensor.clone() for name, tensor in vars(self).items()}

    def load_state_dict(self, state: State) -> None:
        """Go on where `state_dict` was taken."""
        for name, tensor in state.items():
            getattr(self, name).copy_(tensor)
