"""Transformer with a bounded window and attention sinks: acting costs the same at every timestep of any trial."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from yamame.data.batch import Batch
from yamame.errors import ConfigFieldError, check_range
from yamame.nets.attention import attend, group_windows
from yamame.nets.layouts import PaddedLayout
from yamame.nets.ops import uncompiled
from yamame.nets.positions import PositionEmbedding, rotate
from yamame.nets.sequence.base import TrajectoryEncoderConfig
from yamame.nets.sequence.transformer import TransformerBlock, TransformerConfig
from yamame.types import State


@dataclass(frozen=True, kw_only=True)
class WindowedTransformerConfig(TrajectoryEncoderConfig):
    """Sizes of the Transformer with a bounded window. Its blocks are those of the Transformer, with all switches on."""

    SIZES: ClassVar[Mapping[str, Mapping[str, Any]]] = TransformerConfig.SIZES

    d_model: int = 256
    """Width of the residual stream and of the states."""
    num_layers: int = 3
    """Number of blocks."""
    num_heads: int = 8
    """Number of attention heads. `d_model` must be a multiple of it, and the width of a head even."""
    d_ff: int = 1024
    """Width of the hidden layer of each block."""
    window: int = 128
    """Timesteps that each one attends to, its own included, besides the sinks."""
    num_sinks: int = 4
    """First timesteps of a trial that every later one attends to; at most half of the context."""

    def __post_init__(self) -> None:
        check_range(self, "d_model", "num_layers", "num_heads", "d_ff", "window", ge=1)
        check_range(self, "num_sinks", ge=0)
        if self.d_model % (2 * self.num_heads):
            raise ConfigFieldError(
                self, "d_model", f"must be a multiple of 2 * num_heads ({2 * self.num_heads}), got {self.d_model}"
            )

    @property
    def state_size(self) -> int:
        """Width of the states."""
        return self.d_model

    def build(self, *, input_size: int, attention_window: int, max_timestep: int) -> "WindowedTransformer":
        """Return the Transformer. Sinks and window together have at most `attention_window` timesteps."""
        return WindowedTransformer(self, input_size=input_size, attention_window=attention_window)


class WindowedTransformer(nn.Module):
    """Timestep vectors -> states, each from the last `window` timesteps and the first `num_sinks` ones of every layer.

    Source: StreamingLLM (Xiao et al. 2024, section 3.2): first tokens that stay in the cache keep the softmax as it was
    in training. Positions are rotary, and those of sinks are positions in the cache: a sink that has left the window is
    as far away as if it came directly before it. So every distance is below `num_sinks + window`, however long the
    trial, and a trial that is longer than those of training has no distance that training had not.

    Training sees what acting sees: the first timesteps of a training window are its sinks. Where the window starts in
    the middle of a trial, these are not the first timesteps of the trial, which acting keeps.
    """

    def __init__(self, config: WindowedTransformerConfig, *, input_size: int, attention_window: int) -> None:
        super().__init__()
        self.config = config
        self.num_sinks = min(config.num_sinks, attention_window // 2)
        self.window = min(config.window, attention_window - self.num_sinks)
        block = TransformerConfig(d_model=config.d_model, num_heads=config.num_heads, d_ff=config.d_ff)
        self.embed = nn.Linear(input_size, config.d_model)
        self.position = PositionEmbedding("rotary", config.d_model, config.d_model // config.num_heads, 0)
        self.blocks: list[TransformerBlock] = nn.ModuleList(TransformerBlock(block) for _ in range(config.num_layers))  # type: ignore[assignment]
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """Return the states of all tokens, from rows padded to the length of the longest window.

        In a batch of windows that are no longer than sinks and window together this is plain causal attention.
        """
        if batch.max_seqlen <= self.num_sinks + self.window:
            groups = group_windows(batch)
            return self._encode(
                timestep_ND,
                batch.position_ids,
                lambda _, sink_query, qkv: attend(qkv, batch, batch.max_seqlen, groups),
                all_near=True,
            )
        layout = PaddedLayout.from_batch(batch)

        def attend_rows(_: int, sink_query_NHF: Tensor, qkv_N3HF: Tensor) -> Tensor:
            sink_query, query, key, value = (
                layout.pad(x_NHF.flatten(1)).unflatten(2, x_NHF.shape[1:])
                for x_NHF in (sink_query_NHF, *qkv_N3HF.unbind(1))
            )
            with torch.autocast(timestep_ND.device.type, enabled=False):
                out_BLHF = sink_attention(query, sink_query, key, value, num_sinks=self.num_sinks, window=self.window)
            return layout.unpad(out_BLHF.flatten(2)).view(sink_query_NHF.shape)

        return self._encode(timestep_ND, batch.position_ids, attend_rows)

    def initial_state(self, num_envs: int) -> "WindowState":
        """Return an empty memory."""
        shape = (self.config.num_layers, num_envs, *self._slots())
        weight = next(self.parameters())
        return WindowState(key=weight.new_zeros(shape), value=weight.new_zeros(shape))

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], state: "WindowState"
    ) -> Float[Tensor, "E S"]:
        """Return the states of one more timestep of each environment."""
        return self.static_step(timestep_ED, torch.from_numpy(time_E).to(timestep_ED.device), state)

    def static_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], state: "WindowState"
    ) -> Float[Tensor, "E S"]:
        """Return the states of `step`; each attends to all slots of its memory, the empty ones masked."""
        row_E, slot_E = torch.arange(len(time_E), device=time_E.device), self._slot(time_E)

        def attend_slots(layer: int, sink_query_EHF: Tensor, qkv_E3HF: Tensor) -> Tensor:
            query_EHF, key_EHF, value_EHF = qkv_E3HF.unbind(1)
            state.key[layer][row_E, :, slot_E] = key_EHF.to(state.key.dtype)
            state.value[layer][row_E, :, slot_E] = value_EHF.to(state.value.dtype)
            return self._attend_slots(query_EHF, sink_query_EHF, state.key[layer], state.value[layer], time_E)

        return self._encode(timestep_ED, time_E, attend_slots)

    def empty_memory(self, timestep_ED: Float[Tensor, "E D"]) -> dict[str, Tensor]:
        """Return empty slots of keys and values `[E, H, slots, F]` for each layer."""
        names = [f"{kind}/{layer}" for layer in range(self.config.num_layers) for kind in ("key", "value")]
        return {name: timestep_ED.new_zeros((timestep_ED.shape[0], *self._slots())) for name in names}

    def functional_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], memory: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "E S"], dict[str, Tensor]]:
        """Return the states after one more timestep of each environment, and the slots that contain it."""
        heads, _, width = self._slots()
        slot_EH1F = self._slot(time_E)[:, None, None, None].expand(-1, heads, 1, width)
        updated: dict[str, Tensor] = {}

        def attend_slots(layer: int, sink_query_EHF: Tensor, qkv_E3HF: Tensor) -> Tensor:
            query_EHF, key_EHF, value_EHF = qkv_E3HF.unbind(1)
            for name, now_EHF in ((f"key/{layer}", key_EHF), (f"value/{layer}", value_EHF)):
                updated[name] = memory[name].scatter(2, slot_EH1F, now_EHF[:, :, None])
            return self._attend_slots(
                query_EHF, sink_query_EHF, updated[f"key/{layer}"], updated[f"value/{layer}"], time_E
            )

        return self._encode(timestep_ED, time_E, attend_slots), updated

    def _encode(
        self,
        x_ND: Float[Tensor, "N D"],
        position_N: Int64[Tensor, "N"],
        attention: Callable[[int, Tensor, Tensor], Tensor],
        *,
        all_near: bool = False,
    ) -> Float[Tensor, "N S"]:
        """Return the states, given attention as a function of layer, query of the sinks, and query, key and value.

        `all_near`: no position is beyond sinks and window, so that both queries are the same.
        """
        x_ND = self.embed(x_ND)
        rotation = self.position.rotation(position_N, x_ND.dtype)
        near_N = position_N.clamp(max=self.num_sinks + self.window - 1)
        sink_rotation = self.position.rotation(near_N, x_ND.dtype)
        assert rotation is not None and sink_rotation is not None
        for layer, block in enumerate(self.blocks):
            unturned_N3HF = block.project_qkv(x_ND, None)
            qkv_N3HF = rotate(unturned_N3HF, rotation)
            sink_query = qkv_N3HF[:, 0] if all_near else rotate(unturned_N3HF[:, :1], sink_rotation[:, :1])[:, 0]
            attended = attention(layer, sink_query, qkv_N3HF)
            x_ND = block.feed_forward(block.add_attention_residual(x_ND, attended))
        return self.norm(x_ND)

    def _slots(self) -> tuple[int, int, int]:
        """Return heads, slots and width of the memory of a layer and environment: sinks, then a ring."""
        heads = self.config.num_heads
        return heads, self.num_sinks + self.window, self.config.d_model // heads

    def _slot(self, time_E: Int64[Tensor, "E"]) -> Int64[Tensor, "E"]:
        ring_E = self.num_sinks + (time_E - self.num_sinks) % self.window
        return torch.where(time_E < self.num_sinks, time_E, ring_E)

    def _attend_slots(
        self, query_EHF: Tensor, sink_query_EHF: Tensor, key_EHSF: Tensor, value_EHSF: Tensor, time_E: Tensor
    ) -> Float[Tensor, "E H F"]:
        key_BSF, value_BSF = key_EHSF.flatten(0, 1), value_EHSF.flatten(0, 1)
        scale, sinks = query_EHF.shape[2] ** -0.5, self.num_sinks
        query_B1F, sink_query_B1F = ((x * scale).flatten(0, 1)[:, None] for x in (query_EHF, sink_query_EHF))
        score_B1S = torch.cat(
            [
                torch.bmm(sink_query_B1F, key_BSF[:, :sinks].transpose(1, 2)),
                torch.bmm(query_B1F, key_BSF[:, sinks:].transpose(1, 2)),
            ],
            dim=2,
        )
        is_empty_ES = torch.arange(key_BSF.shape[1], device=time_E.device) > time_E[:, None]
        is_empty_B1S = is_empty_ES.repeat_interleave(query_EHF.shape[1], dim=0)[:, None]
        weight_B1S = score_B1S.masked_fill(is_empty_B1S, -torch.inf).softmax(-1)
        return torch.bmm(weight_B1S, value_BSF).view(query_EHF.shape)


@dataclass(frozen=True, kw_only=True)
class WindowState:
    """Memory of an acting Transformer with a bounded window. Slots beyond an environment's own time are masked."""

    key: Float[Tensor, "layers E H slots F"]
    value: Float[Tensor, "layers E H slots F"]

    def state_dict(self) -> State:
        """Return copies of all tensors."""
        return {"key": self.key.clone(), "value": self.value.clone()}

    def load_state_dict(self, state: State) -> None:
        """Restore the tensors of `state_dict`."""
        self.key.copy_(state["key"])
        self.value.copy_(state["value"])


_CHUNK = 128
"""Queries that attend together."""


@uncompiled  # a compiler would unroll the loop
def sink_attention(
    query_BLHF: Float[Tensor, "B L H F"],
    sink_query_BLHF: Float[Tensor, "B L H F"],
    key_BLHF: Float[Tensor, "B L H F"],
    value_BLHF: Float[Tensor, "B L H F"],
    *,
    num_sinks: int,
    window: int,
) -> Float[Tensor, "B L H F"]:
    """Causal attention within rows, to the first `num_sinks` slots and to the last `window` of the others.

    `sink_query` has the positions from which the queries attend to the sinks. Time and memory are linear in the length.
    """
    length, device = query_BLHF.shape[1], query_BLHF.device
    query, sink_query, key, value = (x.transpose(1, 2) for x in (query_BLHF, sink_query_BLHF, key_BLHF, value_BLHF))
    query, sink_query = query * query.shape[3] ** -0.5, sink_query * query.shape[3] ** -0.5
    sinks = min(num_sinks, length)
    outputs = []
    for start in range(0, length, _CHUNK):
        end = min(start + _CHUNK, length)
        first = min(max(sinks, start - window + 1), end)
        slot = torch.cat([torch.arange(sinks, device=device), torch.arange(first, end, device=device)])
        visible_CK = _visible(torch.arange(start, end, device=device), slot, sinks, window)
        score_BHCK = torch.cat(
            [
                sink_query[:, :, start:end] @ key[:, :, :sinks].transpose(2, 3),
                query[:, :, start:end] @ key[:, :, first:end].transpose(2, 3),
            ],
            dim=3,
        )
        weight_BHCK = score_BHCK.masked_fill(~visible_CK, -torch.inf).softmax(dim=3)
        outputs.append(
            weight_BHCK[..., :sinks] @ value[:, :, :sinks] + weight_BHCK[..., sinks:] @ value[:, :, first:end]
        )
    return torch.cat(outputs, dim=2).transpose(1, 2)


def _visible(query: Int64[Tensor, "C"], slot: Int64[Tensor, "K"], sinks: int, window: int) -> Bool[Tensor, "C K"]:
    """Return where a query attends to a slot: never to later ones, always to sinks, and to others in the window."""
    distance_CK = query[:, None] - slot
    return (distance_CK >= 0) & ((slot < sinks) | (distance_CK < window))
