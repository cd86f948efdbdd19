"""Transformer over short segments that rewrites a memory of constant size at the end of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from yamame.data.batch import Batch
from yamame.errors import ConfigFieldError, check_range
from yamame.nets.attention import masked_attention, sliding_window_mask
from yamame.nets.blocks import at_least_float32
from yamame.nets.kv_cache import KVCache, KVRingStep
from yamame.nets.layouts import PaddedLayout
from yamame.nets.ops import uncompiled, without_autocast
from yamame.nets.positions import PositionEmbedding
from yamame.nets.sequence.base import TrajectoryEncoderConfig
from yamame.nets.sequence.transformer import TransformerBlock, TransformerConfig
from yamame.types import State


@dataclass(frozen=True, kw_only=True)
class RecurrentMemoryConfig(TrajectoryEncoderConfig):
    """Sizes of the Transformer that rewrites a memory; its blocks are those of the Transformer, all switches on."""

    SIZES: ClassVar[Mapping[str, Mapping[str, Any]]] = TransformerConfig.SIZES

    d_model: int = 256
    """Width of the residual stream, of the memory vectors and of the states."""
    num_layers: int = 3
    """Number of blocks."""
    num_heads: int = 8
    """Number of attention heads. `d_model` must be a multiple of it."""
    d_ff: int = 1024
    """Width of the hidden layer of each block."""
    segment_length: int = 32
    """Timesteps between two rewritings of the memory; at most half of the context."""
    num_summaries: int = 8
    """Number of memory vectors, and of the summary tokens that rewrite them."""

    def __post_init__(self) -> None:
        check_range(self, "d_model", "num_layers", "num_heads", "d_ff", "segment_length", "num_summaries", ge=1)
        if self.d_model % self.num_heads:
            raise ConfigFieldError(
                self, "d_model", f"must be a multiple of num_heads ({self.num_heads}), got {self.d_model}"
            )
        if self.d_model % 2:
            raise ConfigFieldError(self, "d_model", f"must be even, got {self.d_model}")

    @property
    def state_size(self) -> int:
        """Width of the states."""
        return self.d_model

    def build(self, *, input_size: int, attention_window: int, max_timestep: int) -> "RecurrentMemoryTransformer":
        """Return the Transformer. It depends on all timesteps since the start of the window.

        A segment has at most half of `attention_window`, so that training windows rewrite the memory.
        """
        return RecurrentMemoryTransformer(self, input_size=input_size, attention_window=attention_window)


class RecurrentMemoryTransformer(nn.Module):
    """Timestep vectors -> states, each from its own segment of the sequence and from the memory before that segment.

    Source: Recurrent Memory Transformer (Bulatov et al. 2022, section 3). At the end of a segment, summary tokens
    attend to the memory, to the segment and to each other, and their outputs become the memory of the next segment.
    Gradients pass through all segments of a training window. Slots of a segment, in every layer:

        attending         memory   timesteps         summary tokens
        timesteps         all      up to their own   none
        summary tokens    all      all               all

    Positions are sinusoidal and count from the start of a segment, so that a trial of any length has none that training
    had not. Acting keeps the memory and the keys and values of one segment.

    Differs from the paper: timesteps of every layer attend to the memory vectors themselves, which do not pass through
    the blocks as read tokens; and the memory is rewritten through a gate (see `SummaryTokens`).
    """

    visible: Bool[Tensor, "C K"]
    """Which of memory, timesteps and summary tokens the timesteps and then the summary tokens attend to."""
    query_scale: Float[Tensor, "C 1 1"]
    """Factor of the queries of timesteps and summary tokens."""

    def __init__(self, config: RecurrentMemoryConfig, *, input_size: int, attention_window: int) -> None:
        super().__init__()
        self.config = config
        self.segment_length = min(config.segment_length, max(1, attention_window // 2))
        width, summaries = config.d_model, config.num_summaries
        block = TransformerConfig(d_model=width, num_heads=config.num_heads, d_ff=config.d_ff)
        self.embed = nn.Linear(input_size, width)
        self.position = PositionEmbedding("sinusoidal", width, width // config.num_heads, 0)
        self.blocks: list[TransformerBlock] = nn.ModuleList(TransformerBlock(block) for _ in range(config.num_layers))  # type: ignore[assignment]
        self.norm = nn.LayerNorm(width)
        self.summaries = SummaryTokens(summaries, width)
        slots = self.segment_length + summaries
        visible = sliding_window_mask(slots, summaries + slots, summaries + slots, torch.device("cpu"))
        visible[self.segment_length :] = True
        self.register_buffer("visible", visible, persistent=False)
        scale_C11 = torch.ones(slots, 1, 1)
        scale_C11[self.segment_length :] = SummaryTokens.QUERY_SCALE
        self.register_buffer("query_scale", scale_C11, persistent=False)

    def forward(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """Return the states of all tokens. Segments count from the start of each window, with the first memory."""
        layout = PaddedLayout.from_batch(batch)
        x_ND = self._embed(timestep_ND, batch.position_ids)
        return self.norm(layout.unpad(self._encode_segments(layout.pad(x_ND))))

    @uncompiled  # a compiler would unroll the loop
    def _encode_segments(self, x_BLD: Float[Tensor, "B L D"]) -> Float[Tensor, "B L D"]:
        """Return the outputs of the last block, segment by segment of all rows. The last one leaves no memory."""
        memory_BMD = self.summaries.first_memory.expand(len(x_BLD), -1, -1)
        *segments, last_BCD = x_BLD.split(self.segment_length, dim=1)
        outputs = []
        for x_BCD in segments:
            x_BCD = self._encode_segment(torch.cat([x_BCD, self.summaries(memory_BMD)], dim=1), memory_BMD)
            outputs.append(x_BCD[:, : self.segment_length])
            memory_BMD = self.summaries.rewrite(memory_BMD, x_BCD[:, self.segment_length :])
        return torch.cat([*outputs, self._encode_segment(last_BCD, memory_BMD)], dim=1)

    def _encode_segment(
        self, x_BCD: Float[Tensor, "B C D"], memory_BMD: Float[Tensor, "B M D"]
    ) -> Float[Tensor, "B C D"]:
        """Return the outputs of the last block for timesteps, and for summary tokens if they follow."""
        rows, count, summaries = *x_BCD.shape[:2], memory_BMD.shape[1]
        visible_CK = self.visible[:count, : summaries + count]
        for block in self.blocks:
            slots_ND = torch.cat([memory_BMD, x_BCD], dim=1).flatten(0, 1)
            query, key, value = block.project_qkv(slots_ND, None).unflatten(0, (rows, -1)).unbind(2)
            query_BCHF = query[:, summaries:] * self.query_scale[:count].to(query.dtype)
            with without_autocast(x_BCD.device):
                attended_BCHF = masked_attention(query_BCHF, key, value, visible_CK)
            x_ND = block.add_attention_residual(x_BCD.flatten(0, 1), attended_BCHF.flatten(0, 1))
            x_BCD = block.feed_forward(x_ND).unflatten(0, (rows, count))
        return x_BCD

    def initial_state(self, num_envs: int) -> "RecurrentMemoryState":
        """Return an empty memory."""
        config, weight = self.config, next(self.parameters())
        cache = KVCache(
            layers=config.num_layers,
            num_envs=num_envs,
            heads=config.num_heads,
            slots=config.num_summaries + self.segment_length,
            width=config.d_model // config.num_heads,
            like=weight,
            max_blocks=1,
        )
        memory = weight.new_zeros(num_envs, 2, config.num_summaries, config.d_model)
        return RecurrentMemoryState(cache=cache, memory=memory)

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], state: "RecurrentMemoryState"
    ) -> Float[Tensor, "E S"]:
        """Return the states of one more timestep of each environment."""
        device, position_E = timestep_ED.device, time_E % self.segment_length
        state.cache.start(self.config.num_summaries + position_E)
        starts, ends = (np.flatnonzero(position_E == position) for position in (0, self.segment_length - 1))
        return self._step(
            timestep_ED,
            torch.from_numpy(time_E).to(device),
            state,
            starts=torch.from_numpy(starts).to(device) if len(starts) else None,
            ends=torch.from_numpy(ends).to(device) if len(ends) else None,
        )

    def static_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], state: "RecurrentMemoryState"
    ) -> Float[Tensor, "E S"]:
        """Return the states of `step`; summary tokens are computed at every timestep, and discarded within segments."""
        state.cache.start_on_device(self.config.num_summaries + time_E % self.segment_length)
        rows = torch.arange(len(time_E), device=time_E.device)
        return self._step(timestep_ED, time_E, state, starts=rows, ends=rows)

    def _step(
        self,
        timestep_ED: Float[Tensor, "E D"],
        time_E: Int64[Tensor, "E"],
        state: "RecurrentMemoryState",
        *,
        starts: Int64[Tensor, "R"] | None,
        ends: Int64[Tensor, "Q"] | None,
    ) -> Float[Tensor, "E S"]:
        """Return the states. `starts` and `ends` contain the environments at the first and last timestep of a segment.

        They may contain others, for which nothing changes.
        """
        key, value, summaries = state.cache.key, state.cache.value, self.config.num_summaries
        if starts is not None:
            time_R = time_E[starts]
            projected = self._project_memory(self._memory_before(state.memory[starts], time_R))
            for layer, key_value in enumerate(projected):
                for cached_EHSF, now_RHMF in zip((key[layer], value[layer]), key_value, strict=True):
                    cached_EHSF[starts, :, :summaries] = self._at_start(cached_EHSF[starts], now_RHMF, time_R)
        states_ES = self._decode(timestep_ED, time_E, state.cache)
        if ends is not None:
            cached = [(key[layer][ends], value[layer][ends]) for layer in range(len(self.blocks))]
            state.memory[ends] = self._memory_after(state.memory[ends], cached, time_E[ends])
        return states_ES

    def empty_memory(self, timestep_ED: Float[Tensor, "E D"]) -> dict[str, Tensor]:
        """Return empty slots of keys and values `[E, H, slots, F]` for each layer, and two memories `[E, 2, M, D]`."""
        config, num_envs = self.config, timestep_ED.shape[0]
        slots, width = config.num_summaries + self.segment_length, config.d_model // config.num_heads
        names = [f"{kind}/{layer}" for layer in range(config.num_layers) for kind in ("key", "value")]
        memory = timestep_ED.new_zeros(num_envs, 2, config.num_summaries, config.d_model)
        return {name: timestep_ED.new_zeros(num_envs, config.num_heads, slots, width) for name in names} | {
            "memory": memory
        }

    def functional_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], memory: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "E S"], dict[str, Tensor]]:
        """Return the states after one more timestep of each environment, and the slots and memories that follow."""
        summaries, slots = self.config.num_summaries, {}
        projected = self._project_memory(self._memory_before(memory["memory"], time_E))
        for layer, key_value in enumerate(projected):
            for name, now_EHMF in zip((f"key/{layer}", f"value/{layer}"), key_value, strict=True):
                first_EHMF = self._at_start(memory[name], now_EHMF, time_E)
                slots[name] = torch.cat([first_EHMF, memory[name][:, :, summaries:]], dim=2)
        rings = KVRingStep(slots, summaries + time_E % self.segment_length)
        states_ES = self._decode(timestep_ED, time_E, rings)
        cached = [(rings.updated[f"key/{layer}"], rings.updated[f"value/{layer}"]) for layer in range(len(self.blocks))]
        return states_ES, rings.updated | {"memory": self._memory_after(memory["memory"], cached, time_E)}

    def _embed(self, timestep_ND: Float[Tensor, "N D"], time_N: Int64[Tensor, "N"]) -> Float[Tensor, "N S"]:
        return self.embed(timestep_ND) + self.position(time_N % self.segment_length)

    def _decode(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], cache: KVCache | KVRingStep
    ) -> Float[Tensor, "E S"]:
        x_ED = self._embed(timestep_ED, time_E)
        for layer, block in enumerate(self.blocks):
            query, key, value = block.project_qkv(x_ED, None).unbind(1)
            attended = cache.attend(layer, query, key, value)
            x_ED = block.feed_forward(block.add_attention_residual(x_ED, attended))
        return self.norm(x_ED)

    def _memory_before(
        self, memory_E2MD: Float[Tensor, "E 2 M D"], time_E: Int64[Tensor, "E"]
    ) -> Float[Tensor, "E M D"]:
        """Return the memory that the segments of timesteps attend to."""
        segment_E11 = (time_E // self.segment_length)[:, None, None]
        memory_EMD = torch.where(segment_E11 % 2 == 0, memory_E2MD[:, 0], memory_E2MD[:, 1])
        return torch.where(segment_E11 == 0, self.summaries.first_memory, memory_EMD)

    def _memory_after(
        self,
        memory_E2MD: Float[Tensor, "E 2 M D"],
        cached: list[tuple[Float[Tensor, "E H slots F"], Float[Tensor, "E H slots F"]]],
        time_E: Int64[Tensor, "E"],
    ) -> Float[Tensor, "E 2 M D"]:
        """Return both memories; where a segment ends, with that of the next one, from keys and values of each layer.

        Segments use the two in turn, so that the last timestep of a segment can be passed twice.
        """
        before_EMD = self._memory_before(memory_E2MD, time_E)
        num_envs, summaries, _ = before_EMD.shape
        x_ND = self.summaries(before_EMD).flatten(0, 1)
        for block, cached_EHSF in zip(self.blocks, cached, strict=True):
            query, *key_value = block.project_qkv(x_ND, None).unflatten(0, (num_envs, summaries)).unbind(2)
            key, value = (
                torch.cat([old_EHSF.transpose(1, 2), now_EMHF], dim=1)
                for old_EHSF, now_EMHF in zip(cached_EHSF, key_value, strict=True)
            )
            query = query.to(key.dtype) * SummaryTokens.QUERY_SCALE
            attended = masked_attention(query, key, value, self.visible[self.segment_length :])
            x_ND = block.feed_forward(block.add_attention_residual(x_ND, attended.flatten(0, 1)))
        after_EMD = self.summaries.rewrite(before_EMD, x_ND.unflatten(0, (num_envs, summaries)))
        next_segment_E, position_E = time_E // self.segment_length + 1, (time_E + 1) % self.segment_length
        is_next_E2 = next_segment_E[:, None] % 2 == torch.arange(2, device=time_E.device)
        is_written_E2 = is_next_E2 & (position_E == 0)[:, None]
        return torch.where(is_written_E2[:, :, None, None], after_EMD[:, None].to(memory_E2MD.dtype), memory_E2MD)

    def _project_memory(
        self, memory_EMD: Float[Tensor, "E M D"]
    ) -> list[tuple[Float[Tensor, "E H M F"], Float[Tensor, "E H M F"]]]:
        """Return keys and values of the memory in each layer."""
        projected = []
        for block in self.blocks:
            _, key, value = (
                block.project_qkv(memory_EMD.flatten(0, 1), None).unflatten(0, memory_EMD.shape[:2]).unbind(2)
            )
            projected.append((key.transpose(1, 2), value.transpose(1, 2)))
        return projected

    def _at_start(
        self, cached_EHSF: Float[Tensor, "E H slots F"], now_EHMF: Float[Tensor, "E H M F"], time_E: Int64[Tensor, "E"]
    ) -> Float[Tensor, "E H M F"]:
        """Return the memory's slots: new ones where a segment starts, and else those in the cache."""
        is_start_E111 = (time_E % self.segment_length == 0)[:, None, None, None]
        return torch.where(is_start_E111, now_EHMF.to(cached_EHSF.dtype), cached_EHSF[:, :, : now_EHMF.shape[2]])


class SummaryTokens(nn.Module):
    """The first memory of a sequence, inputs of the summary tokens, and what their outputs make of the memory.

    Differs from the paper: a gate keeps features of the memory, and queries are scaled, since with sigmaReparam all
    attention starts even. The mean of 32 timesteps has a small trace of each; with the factor each head of a summary
    token starts with a few of them. A bit that is shown once, 100 timesteps before it is needed, is then learned in 33
    and 132 updates (two seeds of three; the third does not within 150) instead of not within 250.
    """

    QUERY_SCALE: ClassVar[float] = 16.0
    """Factor of the queries of summary tokens."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.first_memory = nn.Parameter(0.02 * torch.randn(count, width))
        self.embedding = nn.Parameter(0.02 * torch.randn(count, width))
        self.norm = nn.LayerNorm(width)
        self.keep = nn.Linear(width, width)

    def forward(self, memory_BMD: Float[Tensor, "B M D"]) -> Float[Tensor, "B M D"]:
        """Return the inputs of the summary tokens."""
        return memory_BMD + self.embedding

    def rewrite(self, memory_BMD: Float[Tensor, "B M D"], output_BMD: Float[Tensor, "B M D"]) -> Float[Tensor, "B M D"]:
        """Return the next memory, from the outputs of the summary tokens in the last block."""
        summary_BMD = at_least_float32(self.norm(output_BMD))
        keep_BMD = at_least_float32(self.keep(summary_BMD)).sigmoid()
        return torch.lerp(summary_BMD, memory_BMD.to(summary_BMD.dtype), keep_BMD)


@dataclass(frozen=True, kw_only=True)
class RecurrentMemoryState:
    """Memory of an acting Transformer with a recurrent memory. Its size does not depend on time."""

    cache: KVCache
    """Keys and values of the memory, and then of the segment's timesteps."""
    memory: Float[Tensor, "E 2 M D"]
    """Memory before segments with an even and with an odd number."""

    def state_dict(self) -> State:
        """Return copies of all tensors."""
        return {**self.cache.state_dict(), "memory": self.memory.clone()}

    def load_state_dict(self, state: State) -> None:
        """Restore the tensors of `state_dict`."""
        self.cache.load_state_dict(state)
        self.memory.copy_(state["memory"])
