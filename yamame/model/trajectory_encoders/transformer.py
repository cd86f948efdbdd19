"""The method's Transformer: causal, long-context, made stable for RL."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from yamame.model.blocks.mlp import Activation, activation_function
from yamame.model.blocks.sigma_linear import SigmaLinear
from yamame.model.trajectory_encoders.attention import attend
from yamame.model.trajectory_encoders.config import TrajectoryEncoderConfig
from yamame.model.trajectory_encoders.explanation import Attention, Explanation, affordable, largest, look_and_tell
from yamame.model.trajectory_encoders.kv_cache import KVCache
from yamame.model.trajectory_encoders.positions import PositionEmbedding, Positions, rotate
from yamame.model.trajectory_encoders.token_shift import LastTimesteps, TokenShift
from yamame.records.batch import Batch
from yamame.records.errors import FieldError
from yamame.records.limits import check_limits
from yamame.records.resumable import State


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(TrajectoryEncoderConfig):
    """Sizes and switches of the Transformer. The plain pre-LayerNorm one has all switches off."""

    width: int = 256
    """Width of the residual stream (d_model) and of the states."""
    layers: int = 3
    """Number of blocks."""
    heads: int = 8
    """Attention heads; the width must be a multiple of it."""
    feedforward: int = 1024
    """Width of the hidden layer in each block."""
    dropout: float = 0.0
    """Dropout on the embedding and on the feed-forward output. The paper uses 0.05; off by default, for speed."""
    positions: Positions = "sinusoidal"
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
        check_limits(self, "width", "layers", "heads", "feedforward", at_least=1)
        check_limits(self, "dropout", at_least=0, below=1)
        if self.width % self.heads:
            raise FieldError(
                self, "width", f"is {self.width}, no multiple of the {self.heads} heads: change one of them"
            )
        if self.width % 2:
            raise FieldError(self, "width", f"must be even, not {self.width}")
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise FieldError(self, "width", f"{self.width} / {self.heads} heads must be even for rotary positions")

    @property
    def state_size(self) -> int:
        """Width of the states."""
        return self.width

    def build(self, *, inputs: int, memory_length: int, max_time: int) -> "Transformer":
        """The Transformer."""
        return Transformer(self, inputs=inputs, memory_length=memory_length, max_time=max_time)


class Transformer(nn.Module):
    """Timestep vectors -> states. Source: paper section 3, figure 2 and appendix A."""

    def __init__(self, config: TransformerConfig, *, inputs: int, memory_length: int, max_time: int) -> None:
        super().__init__()
        self.config = config
        self.inputs = inputs
        self.memory_length = memory_length
        self.embed = nn.Linear(inputs, config.width)
        self.token_shift = TokenShift(inputs, config.width) if config.token_shift else None
        self.position = PositionEmbedding(config.positions, config.width, max_time)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks: list[Block] = nn.ModuleList(Block(config) for _ in range(config.layers))  # type: ignore[assignment]
        self.norm = nn.LayerNorm(config.width)

    def forward(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """States of all tokens; each sees its own segment up to itself."""
        x_ND = self.dropout(self._enter(timestep_ND, batch))
        for block in self.blocks:
            query, key, value = block.project(x_ND, batch.time)
            x_ND = block.finish(x_ND, attend(query, key, value, batch, self.memory_length))
        return self.norm(x_ND)

    @torch.no_grad()
    def explain(self, timestep_TD: Float[Tensor, "T D"], batch: Batch, *, keep: int | None) -> Explanation:
        """See `ExplainedEncoder`: the same blocks, with attention as plain products whose weights can be read."""
        keep = keep or affordable(len(timestep_TD), heads=len(self.blocks) * self.config.heads)
        x_TD = self._enter(timestep_TD, batch)
        weights, keys, magnitudes = [], [], []
        for block in self.blocks:
            query, key, value = block.project(x_TD, batch.time)
            found, weight_HTS, key_HTS = look_and_tell(query, key, value, memory_length=self.memory_length, keep=keep)
            with_found_TD = block.take_in(x_TD, found)
            x_TD = block.feed_forward(with_found_TD)
            weights.append(weight_HTS)
            keys.append(key_HTS)
            magnitudes.append(torch.stack([largest(x) for x in (query, key, value, with_found_TD, x_TD)]))
        return Explanation(
            state_TD=self.norm(x_TD),
            attention=Attention(
                weight_LHTS=np.stack(weights), key_LHTS=np.stack(keys), memory_length=self.memory_length
            ),
            largest_LPT=torch.stack(magnitudes).numpy(),
        )

    def initial_state(self, num_envs: int) -> "TransformerMemory":
        """Nothing remembered."""
        config, weight = self.config, next(self.parameters())
        cache = KVCache(
            layers=config.layers,
            num_envs=num_envs,
            heads=config.heads,
            slots=self.memory_length,
            width=config.width // config.heads,
            like=weight,
        )
        last = LastTimesteps(num_envs, self.inputs, like=weight) if self.token_shift else None
        return TransformerMemory(cache=cache, last=last)

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], state: "TransformerMemory"
    ) -> Float[Tensor, "E S"]:
        """State of one more timestep of each environment."""
        state.cache.begin(time_E)
        time = torch.from_numpy(time_E).to(timestep_ED.device)
        x_ED = self.embed(timestep_ED) + self.position(time)
        if self.token_shift is not None and state.last is not None:
            x_ED = x_ED + self.token_shift.step(timestep_ED, time_E, state.last)
        for layer, block in enumerate(self.blocks):
            query, key, value = block.project(x_ED, time)
            x_ED = block.finish(x_ED, state.cache.attend(layer, query, key, value))
        return self.norm(x_ED)

    def _enter(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        x_NS = self.embed(timestep_ND) + self.position(batch.time)
        return x_NS if self.token_shift is None else x_NS + self.token_shift(timestep_ND, batch.position)


@dataclass(frozen=True, kw_only=True)
class TransformerMemory:
    """What an acting Transformer remembers."""

    cache: KVCache
    last: LastTimesteps | None
    """None without token shift."""

    def state_dict(self) -> State:
        """All of it."""
        return {**self.cache.state_dict(), "last": None if self.last is None else self.last.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Go on where `state_dict` was taken. Checkpoints that know nothing of token shift have none."""
        self.cache.load_state_dict(state)
        if self.last is not None:
            self.last.load_state_dict(state["last"])


class Block(nn.Module):
    """Attention and feed-forward around a residual stream, cut in two where tokens meet (`project` | `finish`)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width, linear = config.width, SigmaLinear if config.sigma_reparam else nn.Linear
        norm = nn.LayerNorm if config.normformer else _no_norm
        self.heads, self.rotary = config.heads, config.positions == "rotary"
        self.norm_in = nn.LayerNorm(width)
        self.query_key_value = linear(width, 3 * width, bias=False)
        self.head_scale = nn.Parameter(torch.ones(config.heads, 1)) if config.head_scaling else None
        self.attention_out = linear(width, width)
        self.norm_attention = norm(width)
        self.norm_feedforward = nn.LayerNorm(width)
        self.feedforward_in = linear(width, config.feedforward)
        self.activation = activation_function(config.activation)
        self.norm_hidden = norm(config.feedforward)
        self.feedforward_out = linear(config.feedforward, width)
        self.dropout = nn.Dropout(config.dropout)

    def project(self, x_ND: Float[Tensor, "N D"], time_N: Int64[Tensor, "N"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values `[N, H, F]`."""
        joint = self.query_key_value(self.norm_in(x_ND)).view(x_ND.shape[0], 3, self.heads, -1)
        query, key, value = joint.unbind(1)
        if self.rotary:
            query, key = rotate(query, time_N), rotate(key, time_N)
        return query, key, value

    def finish(self, x_ND: Float[Tensor, "N D"], attended_NHF: Float[Tensor, "N H F"]) -> Float[Tensor, "N D"]:
        """The block's output, given what attention found."""
        return self.feed_forward(self.take_in(x_ND, attended_NHF))

    def take_in(self, x_ND: Float[Tensor, "N D"], attended_NHF: Float[Tensor, "N H F"]) -> Float[Tensor, "N D"]:
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
