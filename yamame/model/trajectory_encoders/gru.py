"""Recurrent trajectory encoder: the paper's AMAGO-GRU."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from yamame.model.blocks.recurrence import gru_forward
from yamame.model.trajectory_encoders.config import TrajectoryEncoderConfig
from yamame.ops.rows import PaddedLayout
from yamame.records.batch import Batch
from yamame.records.limits import check_range
from yamame.records.resumable import State


@dataclass(frozen=True, kw_only=True)
class GRUConfig(TrajectoryEncoderConfig):
    """Sizes of the GRU."""

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
        """The GRU; it needs neither length: it remembers from the window's first timestep on."""
        return GRU(self, inputs=input_size)


class GRU(nn.Module):
    """GRU -> linear -> LayerNorm. Source: paper appendix A (baselines)."""

    def __init__(self, config: GRUConfig, *, inputs: int) -> None:
        super().__init__()
        self.recurrence = nn.GRU(inputs, config.d_model, config.num_layers, batch_first=True)
        self.output = nn.Linear(config.d_model, config.d_model)
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """States of all tokens; the recurrence starts empty at each window."""
        layout = PaddedLayout.from_segments(batch.segment_ids, batch.position_ids, batch.num_segments, batch.max_seqlen, all_full=batch.equal_lengths)
        states_BLD = gru_forward(self.recurrence, layout.pad(timestep_ND))
        return self.norm(self.output(layout.unpad(states_BLD)))

    def initial_state(self, num_envs: int) -> "GRUState":
        """Zeros."""
        shape = (self.recurrence.num_layers, num_envs, self.recurrence.hidden_size)
        weight = next(self.parameters())
        return GRUState(
            hidden=weight.new_zeros(shape),
            last_timestep=weight.new_zeros(shape),
            time=torch.full((num_envs,), -1, device=weight.device),
        )

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], state: "GRUState"
    ) -> Float[Tensor, "E S"]:
        """State of one more timestep of each environment."""
        time = torch.from_numpy(time_E).to(timestep_ED.device)
        state.last_timestep = torch.where((time == state.time)[:, None], state.last_timestep, state.hidden)
        state.last_timestep = torch.where((time == 0)[:, None], 0.0, state.last_timestep)
        out_E1D, state.hidden = self.recurrence(timestep_ED[:, None], state.last_timestep)
        state.time = time.clone()
        return self.norm(self.output(torch.squeeze(out_E1D, 1)))


@dataclass(kw_only=True)
class GRUState:
    """What acting remembers: a timestep that comes twice (nothing happened in between) replaces what it left first."""

    hidden: Float[Tensor, "layers E D"]
    """After the last timestep."""
    last_timestep: Float[Tensor, "layers E D"]
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
