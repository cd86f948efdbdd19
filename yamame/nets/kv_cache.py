"""The key-value cache of an acting Transformer."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from yamame.types import State


class KVCache:
    """Keys and values of the last timesteps of E environments, in a preallocated ring buffer per environment.

    Timestep t is stored in slot t mod `slots`. Environments may be at different times; slots beyond an environment's
    own time are masked, so that a new trial (time 0) needs no clearing. Call `start` once per timestep, then `attend`
    in every layer.
    """

    def __init__(self, *, layers: int, num_envs: int, heads: int, slots: int, width: int, like: Tensor) -> None:
        self.key = like.new_zeros(layers, num_envs, heads, slots, width)
        self.value = like.new_zeros(layers, num_envs, heads, slots, width)
        self.slots = slots
        self._rows = torch.arange(num_envs, device=like.device)
        self._used = 0
        self._slot: int | Tensor = 0
        self._mask_bias_E1S: Tensor | None = None

    def start(self, time_E: Int64[np.ndarray, "E"]) -> None:
        """Set the timestep of each environment (NumPy: no device synchronization)."""
        first, last = int(time_E.min()), int(time_E.max())
        self._used = min(last + 1, self.slots)
        same_time = first == last
        self._slot = last % self.slots if same_time else torch.from_numpy(time_E % self.slots).to(self.key.device)
        self._mask_bias_E1S = None
        if first + 1 < self._used:
            hidden_E1S = np.arange(self._used) > time_E[:, None, None]
            self._mask_bias_E1S = torch.from_numpy(np.where(hidden_E1S, -np.inf, 0.0)).to(self.key)

    def start_on_device(self, time_E: Int64[Tensor, "E"]) -> None:
        """Set the timestep of each environment by a tensor: `attend` then has the same shapes at every time."""
        self._used, self._slot = self.slots, time_E % self.slots
        is_empty_E1S = torch.arange(self.slots, device=time_E.device) > time_E[:, None, None]
        self._mask_bias_E1S = self.key.new_zeros(is_empty_E1S.shape).masked_fill_(is_empty_E1S, -math.inf)

    def attend(
        self,
        layer: int,
        query_EHF: Float[Tensor, "E H F"],
        key_EHF: Float[Tensor, "E H F"],
        value_EHF: Float[Tensor, "E H F"],
    ) -> Float[Tensor, "E H F"]:
        """Store keys and values of a layer's current timestep and attend to all stored timesteps, this one included."""
        key_EHSF, value_EHSF = self.key[layer], self.value[layer]
        if isinstance(self._slot, int):
            key_EHSF[:, :, self._slot] = key_EHF
            value_EHSF[:, :, self._slot] = value_EHF
        else:
            key_EHSF[self._rows, :, self._slot] = key_EHF
            value_EHSF[self._rows, :, self._slot] = value_EHF
        # faster than scaled_dot_product_attention for a single query
        query_B1F = (query_EHF * query_EHF.shape[2] ** -0.5).flatten(0, 1)[:, None]
        key_BSF, value_BSF = (ring[:, :, : self._used].flatten(0, 1) for ring in (key_EHSF, value_EHSF))
        score_B1S = torch.bmm(query_B1F, key_BSF.transpose(1, 2))
        if self._mask_bias_E1S is not None:
            score_B1S.unflatten(0, query_EHF.shape[:2])[:, :, 0].add_(self._mask_bias_E1S)
        return torch.bmm(score_B1S.softmax(-1), value_BSF).view(query_EHF.shape)

    def state_dict(self) -> State:
        """Return copies of the slots in use. The others are masked until they are written."""
        return {"key": self.key[..., : self._used, :].clone(), "value": self.value[..., : self._used, :].clone()}

    def load_state_dict(self, state: State) -> None:
        """Restore the slots of `state_dict`."""
        self._used = used = state["key"].shape[3]
        self.key[..., :used, :] = state["key"]
        self.value[..., :used, :] = state["value"]


class KVRingStep:
    """One timestep of `KVCache` as a function of tensors, for exported policies.

    Args:
        memory: Rings `key/LAYER` and `value/LAYER`, `[E, H, slots, F]`.
        time_E: Timestep of each environment.
    """

    def __init__(self, memory: Mapping[str, Tensor], time_E: Int64[Tensor, "E"]) -> None:
        self._memory = memory
        _, heads, slots, width = memory["key/0"].shape
        self._slot_EH1F = (time_E % slots)[:, None, None, None].expand(-1, heads, 1, width)
        self._is_empty_E1S = (torch.arange(slots, device=time_E.device) > time_E[:, None])[:, None]
        self.updated: dict[str, Tensor] = {}
        """The rings of the layers that have attended, with their keys and values of this timestep."""

    def attend(
        self,
        layer: int,
        query_EHF: Float[Tensor, "E H F"],
        key_EHF: Float[Tensor, "E H F"],
        value_EHF: Float[Tensor, "E H F"],
    ) -> Float[Tensor, "E H F"]:
        """Attend to all stored timesteps and this one, as `KVCache.attend`."""
        key_EHSF = self._memory[f"key/{layer}"].scatter(2, self._slot_EH1F, key_EHF[:, :, None])
        value_EHSF = self._memory[f"value/{layer}"].scatter(2, self._slot_EH1F, value_EHF[:, :, None])
        self.updated |= {f"key/{layer}": key_EHSF, f"value/{layer}": value_EHSF}
        query_EHF1 = (query_EHF * query_EHF.shape[2] ** -0.5)[..., None]
        score_EHS = (key_EHSF @ query_EHF1).squeeze(3).masked_fill(self._is_empty_E1S, -torch.inf)
        return (score_EHS.softmax(-1)[:, :, None] @ value_EHSF).squeeze(2)
