"""Memory of an acting Transformer: keys and values of the last timesteps of E environments."""

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from yamame.types import State


class KVCache:
    """A preallocated ring per environment. Timestep t lies in slot t mod C, so a full ring forgets its oldest.

    Environments may be at different times; what lies beyond an environment's own time is masked, so beginning a
    trial (time 0) needs no clearing. `begin` a timestep, then `attend` in every layer.
    """

    def __init__(self, *, layers: int, num_envs: int, heads: int, slots: int, width: int, like: Tensor) -> None:
        self.key = like.new_zeros(layers, num_envs, heads, slots, width)
        self.value = like.new_zeros(layers, num_envs, heads, slots, width)
        self.slots = slots
        self._rows = torch.arange(num_envs, device=like.device)
        self._used = 0
        self._slot: int | Tensor = 0
        self._unseen_E1S: Tensor | None = None

    def start(self, time_E: Int64[np.ndarray, "E"]) -> None:
        """Say at which timestep each environment is. NumPy, so that nothing here waits for the device."""
        first, last = int(time_E.min()), int(time_E.max())
        self._used = min(last + 1, self.slots)
        together = first == last
        self._slot = last % self.slots if together else torch.from_numpy(time_E % self.slots).to(self.key.device)
        self._unseen_E1S = None
        if first + 1 < self._used:
            unseen_E1S = np.arange(self._used) > time_E[:, None, None]
            self._unseen_E1S = torch.from_numpy(np.where(unseen_E1S, -np.inf, 0.0)).to(self.key)

    def attend(
        self,
        layer: int,
        query_EHF: Float[Tensor, "E H F"],
        key_EHF: Float[Tensor, "E H F"],
        value_EHF: Float[Tensor, "E H F"],
    ) -> Float[Tensor, "E H F"]:
        """Write this timestep of a layer and average the values that each environment remembers, itself included."""
        key_EHSF, value_EHSF = self.key[layer], self.value[layer]
        if isinstance(self._slot, int):
            key_EHSF[:, :, self._slot] = key_EHF
            value_EHSF[:, :, self._slot] = value_EHF
        else:
            key_EHSF[self._rows, :, self._slot] = key_EHF
            value_EHSF[self._rows, :, self._slot] = value_EHF
        # faster than scaled_dot_product_attention for a single query
        query_B1F = (query_EHF * query_EHF.shape[2] ** -0.5).flatten(0, 1)[:, None]
        key_BSF, value_BSF = (memory[:, :, : self._used].flatten(0, 1) for memory in (key_EHSF, value_EHSF))
        score_B1S = torch.bmm(query_B1F, key_BSF.transpose(1, 2))
        if self._unseen_E1S is not None:
            score_B1S.unflatten(0, query_EHF.shape[:2])[:, :, 0].add_(self._unseen_E1S)
        return torch.bmm(score_B1S.softmax(-1), value_BSF).view(query_EHF.shape)

    def state_dict(self) -> State:
        """Keys and values of the slots in use; what lies beyond is masked until it is written again."""
        return {"key": self.key[..., : self._used, :].clone(), "value": self.value[..., : self._used, :].clone()}

    def load_state_dict(self, state: State) -> None:
        """Go on where `state_dict` was taken."""
        self._used = used = state["key"].shape[3]
        self.key[..., :used, :] = state["key"]
        self.value[..., :used, :] = state["value"]
