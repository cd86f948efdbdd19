"""Token shift: each timestep also carries the one before it."""

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from yamame.types import State


class TokenShift(nn.Module):
    """A linear map of the timestep before, to add to a timestep's embedding; nothing where a window begins.

    What was seen, what was done then and what came of it stand in one token, so that a single look finds "what I did
    where I am now": an induction head needs one layer instead of two. Not in the paper; known from RWKV and other
    sequence models, which give their tokens a part of the one before.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.before = nn.Linear(inputs, width, bias=False)

    def forward(self, timestep_ND: Float[Tensor, "N D"], position_N: Int64[Tensor, "N"]) -> Float[Tensor, "N W"]:
        """What the timestep before adds to each token; `position_N` is 0 where a window begins."""
        before_ND = torch.where((position_N > 0)[:, None], timestep_ND.roll(1, dims=0), 0.0)
        added_NW: Tensor = self.before(before_ND)
        return added_NW

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], last: "ShiftState"
    ) -> Float[Tensor, "E W"]:
        """The same while acting, one timestep of each environment at a time."""
        added_EW: Tensor = self.before(last.swap(timestep_ED, time_E))
        return added_EW


class ShiftState:
    """What each environment saw last. A timestep that comes twice replaces what it left first."""

    def __init__(self, num_envs: int, width: int, *, like: Tensor) -> None:
        self.before_ED, self.now_ED = like.new_zeros(2, num_envs, width)
        self.time_E = torch.full((num_envs,), -1, device=like.device)

    def swap(self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"]) -> Float[Tensor, "E D"]:
        """Take the present timesteps; those before them, zeros where a trial begins."""
        time = torch.from_numpy(time_E).to(timestep_ED.device)
        self.before_ED = torch.where((time == self.time_E)[:, None], self.before_ED, self.now_ED)
        self.before_ED = torch.where((time == 0)[:, None], 0.0, self.before_ED)
        self.now_ED, self.time_E = timestep_ED.clone(), time.clone()
        return self.before_ED

    def state_dict(self) -> State:
        """All of it."""
        return {name: tensor.clone() for name, tensor in vars(self).items()}

    def load_state_dict(self, state: State) -> None:
        """Go on where `state_dict` was taken."""
        for name, tensor in vars(self).items():
            setattr(self, name, state[name].to(tensor).clone())
