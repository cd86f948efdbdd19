"""The key-value cache of an acting Transformer."""

import math
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from yamame.types import State

_LARGE_RING_BYTES = 8 * 2**20
"""Size of the keys of a layer above which the ring is in blocks on a CPU, whose caches hold smaller ones."""
_BLOCK_SLOTS = 32
"""Timesteps of a block of a large ring."""
_MAX_BLOCKS = 16
"""Most blocks of a ring: each takes two more calls per layer."""


class KVCache:
    """Keys and values of the last timesteps of E environments, in a preallocated ring buffer per environment.

    Timestep t is stored in slot t mod `slots`. Environments may be at different times; slots beyond an environment's
    own time are masked, so that a new trial (time 0) needs no clearing. Call `start` once per timestep, then `attend`
    in every layer.

    On a CPU, large rings are stored in up to `max_blocks` blocks of slots, in each of which the environments are side
    by side: to read the first slots of every environment's ring takes three times as long as as many bytes in a row.
    """

    def __init__(
        self,
        *,
        layers: int,
        num_envs: int,
        heads: int,
        slots: int,
        width: int,
        like: Tensor,
        max_blocks: int = _MAX_BLOCKS,
    ) -> None:
        is_large = num_envs * heads * slots * width * like.element_size() > _LARGE_RING_BYTES
        num_blocks = min(max_blocks, max(1, round(slots / _BLOCK_SLOTS))) if is_large and not like.is_cuda else 1
        self.slots = slots
        self._block = -(-slots // num_blocks)
        self._key, self._value = like.new_zeros(2, layers, num_blocks, num_envs, heads, self._block, width)
        self._rows = torch.arange(num_envs, device=like.device)
        self._used = 0
        self._read = 0
        """Slots that `attend` reads: all of the blocks in use, or those in use of a single block."""
        self._slot: int | Tensor = 0
        self._mask_bias_E1S: Tensor | None = None

    @property
    def num_blocks(self) -> int:
        """Number of blocks of a ring."""
        return self._key.shape[1]

    @property
    def key(self) -> Float[Tensor, "layers E H S F"]:
        """Keys of all slots, of a ring with `max_blocks` 1."""
        return self._key.squeeze(1)

    @property
    def value(self) -> Float[Tensor, "layers E H S F"]:
        """Values of all slots, of a ring with `max_blocks` 1."""
        return self._value.squeeze(1)

    def start(self, time_E: Int64[np.ndarray, "E"]) -> None:
        """Set the timestep of each environment (NumPy: no device synchronization)."""
        first, last = int(time_E.min()), int(time_E.max())
        self._used = self._read = min(last + 1, self.slots)
        if self.num_blocks > 1:
            self._read = -(-self._used // self._block) * self._block
        same_time = first == last
        self._slot = last % self.slots if same_time else torch.from_numpy(time_E % self.slots).to(self._key.device)
        self._mask_bias_E1S = None
        if min(first + 1, self.slots) < self._read:
            newest_E11 = np.minimum(time_E[:1] if same_time else time_E, self.slots - 1)[:, None, None]
            hidden_E1S = np.arange(self._read) > newest_E11
            self._mask_bias_E1S = torch.from_numpy(np.where(hidden_E1S, -np.inf, 0.0)).to(self._key)

    def start_on_device(self, time_E: Int64[Tensor, "E"]) -> None:
        """Set the timestep of each environment by a tensor: `attend` then has the same shapes at every time."""
        self._used, self._slot = self.slots, time_E % self.slots
        self._read = self.num_blocks * self._block
        newest_E11 = time_E.clamp(max=self.slots - 1)[:, None, None]
        is_hidden_E1S = torch.arange(self._read, device=time_E.device) > newest_E11
        self._mask_bias_E1S = self._key.new_zeros(is_hidden_E1S.shape).masked_fill_(is_hidden_E1S, -math.inf)

    def attend(
        self,
        layer: int,
        query_EHF: Float[Tensor, "E H F"],
        key_EHF: Float[Tensor, "E H F"],
        value_EHF: Float[Tensor, "E H F"],
    ) -> Float[Tensor, "E H F"]:
        """Store keys and values of a layer's current timestep and attend to all stored timesteps, this one included."""
        self._write(self._key[layer], key_EHF)
        self._write(self._value[layer], value_EHF)
        # faster than scaled_dot_product_attention for a single query
        query_B1F = (query_EHF * query_EHF.shape[2] ** -0.5).flatten(0, 1)[:, None]
        scores = [torch.bmm(query_B1F, key_BSF.transpose(1, 2)) for key_BSF in self._blocks(self._key[layer])]
        score_B1S = torch.cat(scores, dim=2) if len(scores) > 1 else scores[0]
        if self._mask_bias_E1S is not None:
            score_B1S.unflatten(0, query_EHF.shape[:2])[:, :, 0].add_(self._mask_bias_E1S)
        weights = score_B1S.softmax(-1).split(self._block, dim=2)
        first_BSF, *others = self._blocks(self._value[layer])
        attended_B1F = torch.bmm(weights[0], first_BSF)
        for weight_B1S, value_BSF in zip(weights[1:], others, strict=True):
            attended_B1F.baddbmm_(weight_B1S, value_BSF)
        return attended_B1F.view(query_EHF.shape)

    def _write(self, ring: Float[Tensor, "blocks E H block F"], new_EHF: Float[Tensor, "E H F"]) -> None:
        if isinstance(self._slot, int):
            ring[self._slot // self._block, :, :, self._slot % self._block] = new_EHF
        else:
            ring[self._slot // self._block, self._rows, :, self._slot % self._block] = new_EHF

    def _blocks(self, ring: Float[Tensor, "blocks E H block F"]) -> list[Float[Tensor, "B S F"]]:
        """Return the blocks that are read; of a single one, the slots that are in use."""
        count = min(self._read, self._block)
        return [block_EHSF[:, :, :count].flatten(0, 1) for block_EHSF in ring[: -(-self._read // self._block)]]

    def state_dict(self) -> State:
        """Return copies of the slots in use. The others are masked until they are written."""
        return {
            name: ring.permute(0, 2, 3, 1, 4, 5).flatten(3, 4)[..., : self._used, :].clone()
            for name, ring in (("key", self._key), ("value", self._value))
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the slots of `state_dict`."""
        self._used = state["key"].shape[3]
        for name, ring in (("key", self._key), ("value", self._value)):
            for block, part in enumerate(state[name].split(self._block, dim=3)):
                ring[:, block, :, :, : part.shape[3]] = part


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
