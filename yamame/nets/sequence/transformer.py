"""The paper's Transformer: causal, long-context, stabilized for RL."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from yamame.data.batch import Batch
from yamame.errors import ConfigFieldError, check_range
from yamame.nets import introspection
from yamame.nets.attention import attend, group_windows
from yamame.nets.blocks import Activation, SigmaLinear, get_activation
from yamame.nets.introspection import AttentionWeights, EncoderTrace, attend_with_weights
from yamame.nets.kv_cache import KVCache, KVRingStep
from yamame.nets.positions import PositionEmbedding, PositionKind, Rotation, rotate
from yamame.nets.running_max import FeatureRing, RunningMax
from yamame.nets.sequence.base import TrajectoryEncoderConfig
from yamame.types import State


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(TrajectoryEncoderConfig):
    """Sizes and switches of the Transformer. With all switches off it is a plain pre-LayerNorm Transformer."""

    SIZES: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"d_model": 32, "d_ff": 128, "num_layers": 1, "num_heads": 2},
        "small": {"d_model": 64, "d_ff": 256, "num_layers": 2, "num_heads": 4},
        "base": {"d_model": 256, "d_ff": 1024, "num_layers": 3, "num_heads": 8},
        "large": {"d_model": 384, "d_ff": 1536, "num_layers": 6, "num_heads": 12},
    }

    d_model: int = 256
    """Width of the residual stream and of the states."""
    num_layers: int = 3
    """Number of blocks."""
    num_heads: int = 8
    """Number of attention heads. `d_model` must be a multiple of it."""
    d_ff: int = 1024
    """Width of the hidden layer of each block."""
    dropout: float = 0.0
    """Dropout on the embedding and on the feed-forward output. Differs from the paper: 0.05 there, 0 here for speed."""
    position_embedding: PositionKind = "sinusoidal"
    """Position embedding of the timestep's index in its trial."""
    activation: Activation = "leaky_relu"
    """Activation of the feed-forward layers."""
    sigma_reparam: bool = True
    """Apply sigmaReparam to the four linear layers of a block."""
    normformer: bool = True
    """LayerNorms after attention and inside the feed-forward network (NormFormer)."""
    head_scaling: bool = True
    """Learned factor for each attention head."""
    token_shift: bool = False
    """Add the previous timestep to each token's embedding, so that one token holds an action and its outcome.
    Differs from the paper: not in it."""
    num_running_maxima: int = 0
    """Number of linear features of the timesteps whose maxima over the window are added to the states (`RunningMax`):
    what was seen once is found whatever was seen since. 0: none (paper)."""

    def __post_init__(self) -> None:
        check_range(self, "d_model", "num_layers", "num_heads", "d_ff", ge=1)
        check_range(self, "num_running_maxima", ge=0)
        check_range(self, "dropout", ge=0, lt=1)
        if self.d_model % self.num_heads:
            raise ConfigFieldError(
                self, "d_model", f"must be a multiple of num_heads ({self.num_heads}), got {self.d_model}"
            )
        if self.d_model % 2:
            raise ConfigFieldError(self, "d_model", f"must be even, got {self.d_model}")
        if "rotary" in self.position_embedding and self.d_model // self.num_heads % 2:
            raise ConfigFieldError(
                self, "d_model", f"/ num_heads must be even for rotary positions, got {self.d_model} / {self.num_heads}"
            )

    @property
    def state_size(self) -> int:
        """Width of the states."""
        return self.d_model

    def build(self, *, input_size: int, attention_window: int, max_timestep: int) -> "Transformer":
        """Return the Transformer."""
        return Transformer(self, input_size=input_size, attention_window=attention_window, max_timestep=max_timestep)


class Transformer(nn.Module):
    """Timestep vectors -> states. Paper: section 3, figure 2 and appendix A."""

    def __init__(self, config: TransformerConfig, *, input_size: int, attention_window: int, max_timestep: int) -> None:
        super().__init__()
        self.config = config
        self.input_size = input_size
        self.attention_window = attention_window
        self.embed = nn.Linear(input_size, config.d_model)
        self.token_shift = TokenShift(input_size, config.d_model) if config.token_shift else None
        head_width = config.d_model // config.num_heads
        self.position = PositionEmbedding(config.position_embedding, config.d_model, head_width, max_timestep)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks: list[TransformerBlock] = nn.ModuleList(TransformerBlock(config) for _ in range(config.num_layers))  # type: ignore[assignment]
        self.running_max: RunningMax | None = None
        if config.num_running_maxima:
            self.running_max = RunningMax(
                input_size=input_size,
                num_features=config.num_running_maxima,
                state_size=config.d_model,
                slots=attention_window,
            )
        self.norm = nn.LayerNorm(config.d_model)

    def forward(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """Return the states of all tokens. Each attends to its own segment up to itself."""
        x_ND = self.dropout(self._embed(timestep_ND, batch))
        rotation, layout = self.position.rotation(batch.time, x_ND.dtype), group_windows(batch)
        for block in self.blocks:
            attended = attend(block.project_qkv(x_ND, rotation), batch, self.attention_window, layout)
            x_ND = block.feed_forward(block.add_attention_residual(x_ND, attended))
        return self.norm(x_ND if self.running_max is None else x_ND + self.running_max(timestep_ND, batch))

    @torch.no_grad()
    def explain(self, timestep_TD: Float[Tensor, "T D"], batch: Batch, *, keep: int | None) -> EncoderTrace:
        """Run `forward` on one window with attention as matrix products, and return the weights (`SupportsExplain`)."""
        num_heads = len(self.blocks) * self.config.num_heads
        keep = keep or max(16, introspection.MAX_WEIGHTS // (len(timestep_TD) * num_heads))
        x_TD = self._embed(timestep_TD, batch)
        rotation = self.position.rotation(batch.time, x_TD.dtype)
        weights, keys, max_abs_values = [], [], []
        for block in self.blocks:
            query, key, value = block.project_qkv(x_TD, rotation).unbind(1)
            attended, weight_HTS, key_HTS = attend_with_weights(
                query, key, value, attention_window=self.attention_window, keep=keep
            )
            residual_TD = block.add_attention_residual(x_TD, attended)
            x_TD = block.feed_forward(residual_TD)
            weights.append(weight_HTS)
            keys.append(key_HTS)
            probed = (query, key, value, residual_TD, x_TD)
            max_abs_values.append(torch.stack([x.flatten(1).abs().amax(dim=1).float().cpu() for x in probed]))
        return EncoderTrace(
            state_TD=self.norm(x_TD if self.running_max is None else x_TD + self.running_max(timestep_TD, batch)),
            attention=AttentionWeights(
                weight_LHTS=np.stack(weights), key_LHTS=np.stack(keys), attention_window=self.attention_window
            ),
            max_abs_LPT=torch.stack(max_abs_values).numpy(),
        )

    def initial_state(self, num_envs: int) -> "TransformerState":
        """Return an empty memory."""
        config, weight = self.config, next(self.parameters())
        cache = KVCache(
            layers=config.num_layers,
            num_envs=num_envs,
            heads=config.num_heads,
            slots=self.attention_window,
            width=config.d_model // config.num_heads,
            like=weight,
        )
        shift = ShiftState(num_envs, self.input_size, like=weight) if self.token_shift else None
        ring = FeatureRing(self.running_max.empty_ring(num_envs, weight)) if self.running_max else None
        return TransformerState(cache=cache, shift=shift, ring=ring)

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], state: "TransformerState"
    ) -> Float[Tensor, "E S"]:
        """Return the states of one more timestep of each environment."""
        state.cache.start(time_E)
        time = torch.from_numpy(time_E).to(timestep_ED.device)
        return self._step(timestep_ED, time, state, used=int(time_E.max()) + 1)

    def static_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], state: "TransformerState"
    ) -> Float[Tensor, "E S"]:
        """Return the states of `step`; each attends to all slots of its ring, the empty ones masked."""
        state.cache.start_on_device(time_E)
        return self._step(timestep_ED, time_E, state, used=self.attention_window)

    def _step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], state: "TransformerState", *, used: int
    ) -> Float[Tensor, "E S"]:
        x_ED = self.embed(timestep_ED) + self.position(time_E)
        if self.token_shift is not None and state.shift is not None:
            x_ED = x_ED + self.token_shift.before(state.shift.swap(timestep_ED, time_E))
        x_ED = self._decode(x_ED, time_E, state.cache)
        if self.running_max is not None and state.ring is not None:
            x_ED = x_ED + self.running_max.step(timestep_ED, time_E, state.ring, used=used)
        return self.norm(x_ED)

    def empty_memory(self, timestep_ED: Float[Tensor, "E D"]) -> dict[str, Tensor]:
        """Return empty rings of keys and values `[E, H, slots, F]` for each layer, and the last timestep."""
        config, num_envs = self.config, timestep_ED.shape[0]
        ring = (num_envs, config.num_heads, self.attention_window, config.d_model // config.num_heads)
        names = [f"{kind}/{layer}" for layer in range(config.num_layers) for kind in ("key", "value")]
        shift = {} if self.token_shift is None else {"timestep": torch.zeros_like(timestep_ED)}
        maxima = {} if self.running_max is None else {"features": self.running_max.empty_ring(num_envs, timestep_ED)}
        return {name: timestep_ED.new_zeros(ring) for name in names} | shift | maxima

    def functional_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], memory: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "E S"], dict[str, Tensor]]:
        """Return the states after one more timestep of each environment, and the rings that contain it."""
        x_ED = self.embed(timestep_ED) + self.position(time_E)
        shift = {}
        if self.token_shift is not None:
            x_ED = x_ED + self.token_shift.before(torch.where((time_E == 0)[:, None], 0.0, memory["timestep"]))
            shift = {"timestep": timestep_ED}
        rings, maxima = KVRingStep(memory, time_E), {}
        x_ED = self._decode(x_ED, time_E, rings)
        if self.running_max is not None:
            added_ES, features = self.running_max.functional_step(timestep_ED, time_E, memory["features"])
            x_ED, maxima = x_ED + added_ES, {"features": features}
        return self.norm(x_ED), rings.updated | shift | maxima

    def _decode(
        self, x_ED: Float[Tensor, "E S"], time_E: Int64[Tensor, "E"], cache: KVCache | KVRingStep
    ) -> Float[Tensor, "E S"]:
        rotation = self.position.rotation(time_E, x_ED.dtype)
        for layer, block in enumerate(self.blocks):
            query, key, value = block.project_qkv(x_ED, rotation).unbind(1)
            attended = cache.attend(layer, query, key, value)
            x_ED = block.feed_forward(block.add_attention_residual(x_ED, attended))
        return x_ED

    def _embed(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        x_NS = self.embed(timestep_ND) + self.position(batch.time)
        return x_NS if self.token_shift is None else x_NS + self.token_shift(timestep_ND, batch.position_ids)


@dataclass(frozen=True, kw_only=True)
class TransformerState:
    """Memory of an acting Transformer."""

    cache: KVCache
    shift: "ShiftState | None"
    """None without token shift."""
    ring: FeatureRing | None
    """None without `num_running_maxima`."""

    def state_dict(self) -> State:
        """Return copies of all tensors."""
        parts = {"shift": self.shift, "ring": self.ring}
        return {
            **self.cache.state_dict(),
            **{name: None if part is None else part.state_dict() for name, part in parts.items()},
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the tensors of `state_dict`."""
        self.cache.load_state_dict(state)
        if self.shift is not None:
            self.shift.load_state_dict(state["shift"])
        if self.ring is not None:
            self.ring.load_state_dict(state["ring"])


class TransformerBlock(nn.Module):
    """Pre-LayerNorm block: `project_qkv`, attention by the caller, `add_attention_residual` and `feed_forward`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        width, linear = config.d_model, SigmaLinear if config.sigma_reparam else nn.Linear
        norm = nn.LayerNorm if config.normformer else nn.Identity
        self.heads = config.num_heads
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

    def project_qkv(self, x_ND: Float[Tensor, "N D"], rotation: Rotation | None) -> Float[Tensor, "N 3 H F"]:
        """Return queries, keys and values, the first two rotated."""
        qkv_N3HF = self.query_key_value(self.norm_in(x_ND)).view(x_ND.shape[0], 3, self.heads, -1)
        return qkv_N3HF if rotation is None else rotate(qkv_N3HF, rotation)

    def add_attention_residual(
        self, x_ND: Float[Tensor, "N D"], attended_NHF: Float[Tensor, "N H F"]
    ) -> Float[Tensor, "N D"]:
        """Add the result of attention to the residual stream."""
        if self.head_scale is not None:
            attended_NHF = attended_NHF * self.head_scale
        return x_ND + self.norm_attention(self.attention_out(attended_NHF.flatten(1)))

    def feed_forward(self, x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        """Add the output of the feed-forward network to the residual stream."""
        hidden = self.norm_hidden(self.activation(self.feedforward_in(self.norm_feedforward(x_ND))))
        return x_ND + self.dropout(self.feedforward_out(hidden))


class TokenShift(nn.Module):
    """Linear map of the previous timestep, which is added to a timestep's embedding; zero at the start of a window.

    A token then holds an observation, the action taken there and its outcome, so that an induction head needs one
    layer instead of two. Source: RWKV. Differs from the paper: not in it.
    """

    def __init__(self, input_size: int, width: int) -> None:
        super().__init__()
        self.before = nn.Linear(input_size, width, bias=False)

    def forward(self, timestep_ND: Float[Tensor, "N D"], position_N: Int64[Tensor, "N"]) -> Float[Tensor, "N S"]:
        """Return the addition to each token's embedding. `position_N` is 0 at the start of a window."""
        before_ND = torch.where((position_N > 0)[:, None], timestep_ND.roll(1, dims=0), 0.0)
        added_NS: Tensor = self.before(before_ND)
        return added_NS


class ShiftState:
    """Last timestep of each environment. A timestep that is passed twice replaces its first version."""

    def __init__(self, num_envs: int, width: int, *, like: Tensor) -> None:
        self.before_ED, self.now_ED = like.new_zeros(2, num_envs, width)
        self.time_E = torch.full((num_envs,), -1, device=like.device)

    def swap(self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"]) -> Float[Tensor, "E D"]:
        """Store the current timesteps in place and return the previous ones, zeros at the start of a trial."""
        torch.where((time_E == self.time_E)[:, None], self.before_ED, self.now_ED, out=self.before_ED)
        self.before_ED.masked_fill_((time_E == 0)[:, None], 0.0)
        self.now_ED.copy_(timestep_ED)
        self.time_E.copy_(time_E)
        return self.before_ED

    def state_dict(self) -> State:
        """Return copies of all tensors."""
        return {name: tensor.clone() for name, tensor in vars(self).items()}

    def load_state_dict(self, state: State) -> None:
        """Restore the tensors of `state_dict`."""
        for name, tensor in vars(self).items():
            setattr(self, name, state[name].to(tensor).clone())
