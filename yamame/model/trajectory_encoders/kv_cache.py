"""Memory of an acting Transformer: keys and values of the last timesteps of E environments."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional


class KVCache:
    """A preallocated ring per environment. Timestep t lies in slot t mod C, so a full ring forgets its oldest.

    Environments may be at different times; what lies beyond an environment's own time is masked, so beginning a
    trial (time 0) needs no clearing.
    """

    def __init__(self, *, layers: int, num_envs: int, heads: int, slots: int, width: int, like: Tensor) -> None:
        self.key = like.new_zeros(layers, num_envs, heads, slots, width)
        self.value = like.new_zeros(layers, num_envs, heads, slots, width)
        self.slots = slots
        self.rows = torch.arange(num_envs, device=like.device)

    def attend(
        self,
        layer: int,
        query_EHF: Float[Tensor, "E H F"],
        key_EHF: Float[Tensor, "E H F"],
        value_EHF: Float[Tensor, "E H F"],
        time_E: Int64[Tensor, "E"],
    ) -> Float[Tensor, "E H F"]:
        """Write one timestep of a layer and average the values that each environment remembers, itself included."""
        slot_E = time_E % self.slots
        self.key[layer, self.rows, :, slot_E] = key_EHF
        self.value[layer, self.rows, :, slot_E] = value_EHF
        used = min(int(time_E.max()) + 1, self.slots)
        remembered_ES = torch.arange(used, device=time_E.device) <= time_E[:, None]
        out = functional.scaled_dot_product_attention(
            query_EHF[:, :, None],
            self.key[layer, :, :, :used],
            self.value[layer, :, :, :used],
            attn_mask=None if bool(remembered_ES.all()) else remembered_ES[:, None, None],
        )
        return out[:, :, 0]
