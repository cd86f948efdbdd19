"""`RunningMax`: features of the timesteps, and the largest value that each has had so far.

Attention returns means, in which one of 64 symbols that were named counts for a 64th. A maximum says of each whether it
was named at all, whatever was named since, as the aggregators of AMRL (Beck et al. 2020) do. Which cells of a board
were named is learned from it in a sixth of the updates (docs/log.md).
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from yamame.data.batch import Batch
from yamame.nets.layouts import PaddedLayout
from yamame.types import State


class RunningMax(nn.Module):
    """Linear features of timestep vectors -> their maximum over the window so far -> an addition to the states.

    Args:
        input_size: Width of the timestep vectors.
        num_features: K.
        state_size: Width of the states.
        slots: Timesteps of the window, the present one included.
    """

    def __init__(self, *, input_size: int, num_features: int, state_size: int, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.features = nn.Linear(input_size, num_features)
        self.output = nn.Linear(num_features, state_size, bias=False)

    def forward(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """Return the additions to the states of all tokens."""
        layout = PaddedLayout.from_batch(batch)
        max_BLK = _max_so_far(layout.pad(self.features(timestep_ND)), self.slots)
        return self.output(layout.unpad(max_BLK))

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], ring: "FeatureRing", *, used: int
    ) -> Float[Tensor, "E S"]:
        """Return the additions to the states of one more timestep of each environment. `used`: see `FeatureRing`."""
        added_ES: Tensor = self.output(ring.max_with(self.features(timestep_ED), time_E, used=used))
        return added_ES

    def functional_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], ring_ETK: Float[Tensor, "E T K"]
    ) -> tuple[Float[Tensor, "E S"], Float[Tensor, "E T K"]]:
        """Return the additions to the states and the ring that contains this timestep; nothing changes in place."""
        features_EK = self.features(timestep_ED)
        slot_E1K = (time_E % self.slots)[:, None, None].expand(-1, 1, features_EK.shape[1])
        ring_ETK = ring_ETK.scatter(1, slot_E1K, features_EK[:, None])
        return self.output(_max_of_slots(ring_ETK, time_E)), ring_ETK

    def empty_ring(self, num_envs: int, like: Tensor) -> Float[Tensor, "E T K"]:
        """Return a ring of zeros, none of which counts: slots beyond an environment's own time are masked."""
        return like.new_zeros(num_envs, self.slots, self.features.out_features)


class FeatureRing:
    """Features of the last timesteps of E environments: timestep t is in slot t mod `slots`."""

    def __init__(self, ring_ETK: Float[Tensor, "E T K"]) -> None:
        self._ring_ETK = ring_ETK
        self._rows = torch.arange(len(ring_ETK), device=ring_ETK.device)
        self._used = 0

    def max_with(
        self, features_EK: Float[Tensor, "E K"], time_E: Int64[Tensor, "E"], *, used: int
    ) -> Float[Tensor, "E K"]:
        """Store the features of the present timesteps in place; return the maxima over those of each environment.

        `used` is the number of slots that are read: more than the largest time, or all.
        """
        slots = self._ring_ETK.shape[1]
        self._used = min(used, slots)
        self._ring_ETK[self._rows, time_E % slots] = features_EK
        return _max_of_slots(self._ring_ETK[:, : self._used], time_E)

    def state_dict(self) -> State:
        """Return a copy of the slots in use."""
        return {"features": self._ring_ETK[:, : self._used].clone()}

    def load_state_dict(self, state: State) -> None:
        """Restore the slots of `state_dict`."""
        self._used = state["features"].shape[1]
        self._ring_ETK[:, : self._used] = state["features"]


def _max_so_far(rows_BLK: Float[Tensor, "B L K"], slots: int) -> Float[Tensor, "B L K"]:
    """Return the maximum over the last `slots` timesteps up to each."""
    if rows_BLK.shape[1] <= slots:
        return rows_BLK.cummax(1).values
    padded_BKL = functional.pad(rows_BLK.transpose(1, 2), (slots - 1, 0), value=-torch.inf)
    return functional.max_pool1d(padded_BKL, slots, stride=1).transpose(1, 2)


def _max_of_slots(ring_ETK: Float[Tensor, "E T K"], time_E: Int64[Tensor, "E"]) -> Float[Tensor, "E K"]:
    """Return the maximum over the slots that were written in the present trial."""
    is_empty_ET = torch.arange(ring_ETK.shape[1], device=time_E.device) > time_E[:, None]
    return ring_ETK.masked_fill(is_empty_ET[..., None], -torch.inf).amax(1)
