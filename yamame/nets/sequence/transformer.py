"""The method's Transformer: causal, long-context, made stable for RL."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from yamame.data.batch import Batch
from yamame.errors import ConfigFieldError, check_range
from yamame.nets.blocks import Activation, SigmaLinear, at_least_float32, get_activation
from yamame.nets.sequence.attention import attend
from yamame.nets.sequence.base import TrajectoryEncoderConfig
from yamame.nets.sequence.introspection import (
    AttentionWeights,
    EncoderTrace,
    attend_with_weights,
    max_abs,
    max_kept_weights,
)
from yamame.nets.sequence.kv_cache import KVCache
from yamame.nets.sequence.token_shift import ShiftState, TokenShift
from yamame.types import State

PositionKind = Literal["sinusoidal", "learned", "rotary"]


class PositionEmbedding(nn.Module):
    """Vector to add to a timestep's embedding, by its true time in the trial (0 everywhere for rotary positions).

    Sinusoidal: sine on even, cosine on odd dimensions, base 10,000. Learned: a table of `max_time + 1` rows.
    """

    def __init__(self, kind: PositionKind, width: int, max_timestep: int) -> None:
        super().__init__()
        self.kind = kind
        self.table = nn.Embedding(max_timestep + 1, width) if kind == "learned" else None
        if self.table is not None:
            nn.init.normal_(self.table.weight, std=0.02)
        self.turns_per_step: Tensor
        self.register_buffer("turns_per_step", _turns_per_step(width, torch.device("cpu")), persistent=False)

    def forward(self, time_N: Int64[Tensor, "N"]) -> Float[Tensor, "N D"] | float:
        """The embedding of each time."""
        if self.table is not None:
            return self.table(time_N)
        if self.kind == "rotary":
            return 0.0
        angle = _angles(time_N, self.turns_per_step, torch.float32)
        return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)


def apply_rotary(x: Float[Tensor, "N H F"], time_N: Int64[Tensor, "N"]) -> Float[Tensor, "N H F"]:
    """Rotary positions (Su et al. 2021): pairs of features turned by an angle that grows with time.

    The product of two rotated vectors depends on their times only through the difference.
    """
    exact = at_least_float32(x)
    angle = _angles(time_N, _turns_per_step(x.shape[2], x.device), exact.dtype)[:, None]
    even, odd = exact[..., 0::2], exact[..., 1::2]
    turned = torch.stack([even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()], dim=3)
    return turned.flatten(2).to(x.dtype)


def _angles(
    time_N: Int64[Tensor, "N"], turns_per_step: Float[Tensor, "half"], dtype: torch.dtype
) -> Float[Tensor, "N half"]:
    """The angle of each pair of dimensions, less whole turns: in float64, as float32 errs by 0.004 at time 100,000."""
    return (time_N[:, None] * turns_per_step).frac_().to(dtype) * math.tau


def _turns_per_step(width: int, device: torch.device) -> Float64[Tensor, "half"]:
    """1 / (2 pi 10,000^(2 i / width)) of pair i."""
    pair = torch.arange(0, width, 2, dtype=torch.float64, device=device)
    return torch.exp(pair * (-math.log(10_000.0) / width)) / math.tau


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(TrajectoryEncoderConfig):
    """Sizes and switches of the Transformer. The plain pre-LayerNorm one has all switches off."""

    d_model: int = 256
    """Width of the residual stream (d_model) and of the states."""
    num_layers: int = 3
    """Number of blocks."""
    num_heads: int = 8
    """Attention heads; the width must be a multiple of it."""
    d_ff: int = 1024
    """Width of the hidden layer in each block."""
    dropout: float = 0.0
    """Dropout on the embedding and on the feed-forward output. The paper uses 0.05; off by default, for speed."""
    position_embedding: PositionKind = "sinusoidal"
    """Position embedding, by true time in the trial."""
    activation: Activation = "leaky_relu"
    """Activation of the feed-forward layers."""
    sigma_reparam: bool = True
    """Sigma-reparametrise the four linear layers of a block."""
    normformer: bool = True
    """LayerNorms after attention and inside the feed-forward (NormFormer)."""
    head_scaling: bool = True
    """A learned factor for each attention head."""
    token_shift: bool = False
    """Each token also carries the timestep before it, so that what was done somewhere and what came of it stand in one.
    Differs from the paper: not in it."""

    def __post_init__(self) -> None:
        check_range(self, "d_model", "num_layers", "num_heads", "d_ff", ge=1)
        check_range(self, "dropout", ge=0, lt=1)
        if self.d_model % self.num_heads:
            raise ConfigFieldError(
                self, "d_model", f"is {self.d_model}, no multiple of the {self.num_heads} heads: change one of them"
            )
        if self.d_model % 2:
            raise ConfigFieldError(self, "d_model", f"must be even, not {self.d_model}")
        if self.position_embedding == "rotary" and self.d_model // self.num_heads % 2:
            raise ConfigFieldError(
                self, "d_model", f"{self.d_model} / {self.num_heads} heads must be even for rotary positions"
            )

    @property
    def state_size(self) -> int:
        """Width of the states."""
        return self.d_model

    def build(self, *, input_size: int, attention_window: int, max_timestep: int) -> "Transformer":
        """The Transformer."""
        return Transformer(self, inputs=input_size, memory_length=attention_window, max_time=max_timestep)


class Transformer(nn.Module):
    """Timestep vectors -> states. Source: paper section 3, figure 2 and appendix A."""

    def __init__(self, config: TransformerConfig, *, inputs: int, memory_length: int, max_time: int) -> None:
        super().__init__()
        self.config = config
        self.inputs = inputs
        self.memory_length = memory_length
        self.embed = nn.Linear(inputs, config.d_model)
        self.token_shift = TokenShift(inputs, config.d_model) if config.token_shift else None
        self.position = PositionEmbedding(config.position_embedding, config.d_model, max_time)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks: list[TransformerBlock] = nn.ModuleList(TransformerBlock(config) for _ in range(config.num_layers))  # type: ignore[assignment]
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """States of all tokens; each sees its own segment up to itself."""
        x_ND = self.dropout(self._enter(timestep_ND, batch))
        for block in self.blocks:
            query, key, value = block.project_qkv(x_ND, batch.time)
            x_ND = block.forward_post_attention(x_ND, attend(query, key, value, batch, self.memory_length))
        return self.norm(x_ND)

    @torch.no_grad()
    def explain(self, timestep_TD: Float[Tensor, "T D"], batch: Batch, *, keep: int | None) -> EncoderTrace:
        """See `SupportsExplain`: the same blocks, with attention as plain products whose weights can be read."""
        keep = keep or max_kept_weights(len(timestep_TD), heads=len(self.blocks) * self.config.num_heads)
        x_TD = self._enter(timestep_TD, batch)
        weights, keys, magnitudes = [], [], []
        for block in self.blocks:
            query, key, value = block.project_qkv(x_TD, batch.time)
            found, weight_HTS, key_HTS = attend_with_weights(
                query, key, value, memory_length=self.memory_length, keep=keep
            )
            with_found_TD = block.add_attention_residual(x_TD, found)
            x_TD = block.feed_forward(with_found_TD)
            weights.append(weight_HTS)
            keys.append(key_HTS)
            magnitudes.append(torch.stack([max_abs(x) for x in (query, key, value, with_found_TD, x_TD)]))
        return EncoderTrace(
            state_TD=self.norm(x_TD),
            attention=AttentionWeights(
                weight_LHTS=np.stack(weights), key_LHTS=np.stack(keys), memory_length=self.memory_length
            ),
            max_abs_LPT=torch.stack(magnitudes).numpy(),
        )

    def initial_state(self, num_envs: int) -> "TransformerState":
        """Nothing remembered."""
        config, weight = self.config, next(self.parameters())
        cache = KVCache(
            layers=config.num_layers,
            num_envs=num_envs,
            heads=config.num_heads,
            slots=self.memory_length,
            width=config.d_model // config.num_heads,
            like=weight,
        )
        last = ShiftState(num_envs, self.inputs, like=weight) if self.token_shift else None
        return TransformerState(cache=cache, last=last)

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], state: "TransformerState"
    ) -> Float[Tensor, "E S"]:
        """State of one more timestep of each environment."""
        state.cache.start(time_E)
        time = torch.from_numpy(time_E).to(timestep_ED.device)
        x_ED = self.embed(timestep_ED) + self.position(time)
        if self.token_shift is not None and state.last is not None:
            x_ED = x_ED + self.token_shift.step(timestep_ED, time_E, state.last)
        for layer, block in enumerate(self.blocks):
            query, key, value = block.project_qkv(x_ED, time)
            x_ED = block.forward_post_attention(x_ED, state.cache.attend(layer, query, key, value))
        return self.norm(x_ED)

    def _enter(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        x_NS = self.embed(timestep_ND) + self.position(batch.time)
        return x_NS if self.token_shift is None else x_NS + self.token_shift(timestep_ND, batch.position_ids)


@dataclass(frozen=True, kw_only=True)
class TransformerState:
    """What an acting Transformer remembers."""

    cache: KVCache
    last: ShiftState | None
    """None without token shift."""

    def state_dict(self) -> State:
        """All of it."""
        return {**self.cache.state_dict(), "last": None if self.last is None else self.last.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Go on where `state_dict` was taken. Checkpoints that know nothing of token shift have none."""
        self.cache.load_state_dict(state)
        if self.last is not None:
            self.last.load_state_dict(state["last"])


class TransformerBlock(nn.Module):
    """Attention and feed-forward around a residual stream, cut in two where tokens meet (`project` | `finish`)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width, linear = config.d_model, SigmaLinear if config.sigma_reparam else nn.Linear
        norm = nn.LayerNorm if config.normformer else _no_norm
        self.heads, self.rotary = config.num_heads, config.position_embedding == "rotary"
        self.norm_in = nn.LayerNorm(width)
        self.query_key_value = linear(width, 3 * width, bias=False)
        self.head_scale = nn.Parameter(torch.ones(config.num_heads, 1)) if config.head_scaling else None
        self.attention_out = linear(width, width)
        self.norm_attention = norm(width)
        self.norm_feedforward = nn.LayerNorm(width)
        self.feedforward_in = linear(width, config.d_ff)
        self.activation = get_activation(config.activation)
        self.norm_hidden = norm(config.d_ff)
        self.feedforward_out = linear(config.d_ff, width)
        self.dropout = nn.Dropout(config.dropout)

    def project_qkv(self, x_ND: Float[Tensor, "N D"], time_N: Int64[Tensor, "N"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values `[N, H, F]`."""
        joint = self.query_key_value(self.norm_in(x_ND)).view(x_ND.shape[0], 3, self.heads, -1)
        query, key, value = joint.unbind(1)
        if self.rotary:
            query, key = apply_rotary(query, time_N), apply_rotary(key, time_N)
        return query, key, value

    def forward_post_attention(
        self, x_ND: Float[Tensor, "N D"], attended_NHF: Float[Tensor, "N H F"]
    ) -> Float[Tensor, "N D"]:
        """The block's output, given what attention found."""
        return self.feed_forward(self.add_attention_residual(x_ND, attended_NHF))

    def add_attention_residual(
        self, x_ND: Float[Tensor, "N D"], attended_NHF: Float[Tensor, "N H F"]
    ) -> Float[Tensor, "N D"]:
        """The residual stream with what attention found."""
        if self.head_scale is not None:
            attended_NHF = attended_NHF * self.head_scale
        return x_ND + self.norm_attention(self.attention_out(attended_NHF.flatten(1)))

    def feed_forward(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """The residual stream with what the feed-forward layers make of it."""
        hidden = self.norm_hidden(self.activation(self.feedforward_in(self.norm_feedforward(x_ND))))
        return x_ND + self.dropout(self.feedforward_out(hidden))


def _no_norm(width: int) -> nn.Identity:
    return nn.Identity(width)
