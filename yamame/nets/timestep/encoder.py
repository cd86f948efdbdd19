"""Timestep encoder: an observation with its previous action and reward -> one vector."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from yamame.data.actions import ACTION_MASK_KEY, PolicyActionSpace, action_size, num_choices
from yamame.data.spaces import Leaf, stored_shape
from yamame.discovery import classes_in, module_names
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import ConfigFieldError, UserError, check_range
from yamame.nets import timestep
from yamame.nets.action_embedding import EMBEDDING_SIZE, ActionEmbedding
from yamame.nets.blocks import MLP, Activation, InputNormalizer, concat_one_hot
from yamame.nets.ops import uncompiled
from yamame.nets.timestep.base import LeafEncoderConfig, NormalizingEncoder
from yamame.nets.timestep.image import ImageEncoderConfig
from yamame.nets.timestep.instruction import (
    InstructionCoordinatesConfig,
    InstructionTokensConfig,
)
from yamame.nets.timestep.text import TextEncoderConfig
from yamame.nets.timestep.tokens import MAX_VOCABULARY, TokenEncoderConfig

VECTOR_KIND = "vector"
"""Kind of a leaf that is passed on as plain numbers."""
IMAGE_KIND = "image"
NUM_SIDE_FEATURES = 3
"""Reset flag, previous reward and time, in this order after the observation in `TimestepEncoder.features`."""
MANY_NUMBERS = 4096
"""Numbers of a leaf without an encoder from which on it is worth a remark."""


def _other_encoders() -> tuple[LeafEncoderConfig, ...]:
    """Return the leaf encoders of this folder that have no field of their own in `TimestepEncoderConfig`."""
    classes: list[type[LeafEncoderConfig]] = []
    for name in module_names(timestep):
        classes += classes_in(timestep, name, LeafEncoderConfig)  # type: ignore[type-abstract]
    own = {ImageEncoderConfig, *(each.default_factory for each in fields(TimestepEncoderConfig))}
    return tuple(each() for each in classes if each not in own)


@dataclass(frozen=True, kw_only=True)
class TimestepEncoderConfig:
    """Sizes of the timestep encoder. The space of an observation's leaf selects the leaf's encoder."""

    hidden_sizes: tuple[int, ...] = (512, 512)
    """Widths of the hidden layers."""
    output_size: int = 200
    """Width of a timestep's vector."""
    activation: Activation = "leaky_relu"
    """Activation of the hidden layers."""
    normalize_time: bool = True
    """Normalize the time like the other features (paper). False: the fraction of the horizon as it is. While trials get
    longer, a normalized time is far above all earlier values, and what was learned does not hold there."""
    observe_time: bool = True
    """Observe the time. False: a zero in its place, so that nothing but the order of timesteps tells how much of the
    trial is over."""
    encoder_overrides: tuple[str, ...] = ()
    """Encoders of single leaves as LEAF=KIND, such as `image=tokens` for MiniGrid. Kinds are vector, image, tokens,
    text, instruction_tokens, instruction_coordinates and the names of further files in yamame/nets/timestep/."""
    image: ImageEncoderConfig = field(default_factory=partial(ImageEncoderConfig, plain=True))
    tokens: TokenEncoderConfig = field(default_factory=TokenEncoderConfig)
    text: TextEncoderConfig = field(default_factory=TextEncoderConfig)
    instruction_tokens: InstructionTokensConfig = field(default_factory=InstructionTokensConfig)
    instruction_coordinates: InstructionCoordinatesConfig = field(default_factory=InstructionCoordinatesConfig)
    other: tuple[LeafEncoderConfig, ...] = field(default_factory=_other_encoders)
    """Further leaf encoders, which take precedence over those above: by default those of new files in
    yamame/nets/timestep/."""
    chunk_elements: int = 1 << 22
    """Pixels, tokens or characters of a leaf per chunk while training. Activations of further chunks are recomputed in
    the backward pass, which bounds the memory."""

    def __post_init__(self) -> None:
        check_range(self, "hidden_sizes", "output_size", "chunk_elements", ge=1)
        kinds = [VECTOR_KIND, *self.leaf_encoders()]
        for entry in self.encoder_overrides:
            leaf, equals, kind = entry.rpartition("=")
            if not (leaf and equals and kind in kinds):
                raise ConfigFieldError(
                    self, "encoder_overrides", f"must be LEAF=KIND with {', '.join(kinds)} as kind, got {entry!r}"
                )

    def leaf_encoders(self) -> dict[str, LeafEncoderConfig]:
        """Return the leaf encoders by kind, in the order in which they are matched."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        own = {kind: value for kind, value in values.items() if isinstance(value, LeafEncoderConfig)}
        return {type(encoder).__module__.rpartition(".")[2]: encoder for encoder in self.other} | own

    def map_leaf_encoders(self, change: Callable[[LeafEncoderConfig], LeafEncoderConfig]) -> "TimestepEncoderConfig":
        """Return the config with a function applied to every leaf encoder."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        changed: dict[str, Any] = {
            name: change(value) for name, value in values.items() if isinstance(value, LeafEncoderConfig)
        }
        return replace(self, other=tuple(map(change, self.other)), **changed)

    def resolve_encoders(self, leaves: Mapping[str, Leaf]) -> dict[str, str]:
        """Return the kind of each leaf: the override, or the first leaf encoder that matches, or vector.

        Raises:
            ConfigFieldError: If an override names a missing leaf or a kind that the leaf cannot have.
            UserError: If a leaf has more categories than can be embedded.
        """
        encoders = self.leaf_encoders()
        overrides: dict[str, str] = {}
        for entry in self.encoder_overrides:
            name, _, kind = entry.rpartition("=")
            if name not in leaves:
                raise ConfigFieldError(
                    self, "encoder_overrides", f"names {name!r}, but the observation has {', '.join(leaves)}"
                )
            if kind in encoders:
                reason = encoders[kind].unsupported_reason(leaves[name])
            else:
                reason = "is a text" if isinstance(leaves[name], spaces.Text) else ""
            if reason:
                raise ConfigFieldError(self, "encoder_overrides", f"says {entry!r}, but {name!r} {reason}")
            overrides[name] = kind
        defaults = {
            name: next((kind for kind, encoder in encoders.items() if encoder.matches(name, leaf)), VECTOR_KIND)
            for name, leaf in leaves.items()
        }
        kinds = defaults | overrides
        for name, kind in kinds.items():
            if kind == VECTOR_KIND and max(_categories(leaves[name]), default=0) > MAX_VOCABULARY:
                raise UserError(
                    f"observation {name!r} has {max(_categories(leaves[name])):,} categories, of which at most "
                    f"{MAX_VOCABULARY:,} can be embedded: group them, or declare a Box of integers if they are numbers"
                )
        return kinds

    def remarks(self, leaves: Mapping[str, Leaf]) -> list[str]:
        """Return one sentence for each leaf that may be meant to be encoded in another way."""
        flag = "--agent.timestep-encoder.encoder-overrides"
        remarks: list[str] = []
        chosen = {entry.rpartition("=")[0] for entry in self.encoder_overrides}
        for name, kind in self.resolve_encoders(leaves).items():
            leaf = leaves[name]
            if name in chosen:
                continue
            shape = " x ".join(map(str, stored_shape(leaf)))
            if kind == VECTOR_KIND and (reason := self.image.missing_reason(leaf)):
                remarks.append(
                    f"observation {name!r} ({shape}) {reason}: it is not encoded as an image but enters the network as "
                    f"{spaces.flatdim(leaf):,} numbers"
                )
            elif kind == VECTOR_KIND and name != ACTION_MASK_KEY and spaces.flatdim(leaf) >= MANY_NUMBERS:
                remarks.append(
                    f"observation {name!r} ({shape}) enters the network as {spaces.flatdim(leaf):,} numbers: for "
                    f"another encoder pass {flag} {name}=image or {name}=tokens"
                )
            elif kind == IMAGE_KIND and len(leaf.shape or ()) == 2:
                remarks.append(
                    f"observation {name!r} ({shape}) is encoded as an image: if it is a table of numbers, pass "
                    f"{flag} {name}={VECTOR_KIND}"
                )
        return remarks

    def build(
        self, leaves: Mapping[str, Leaf], action_space: PolicyActionSpace, *, embeds: bool = False
    ) -> "TimestepEncoder":
        """Return the encoder for these spaces; with `embeds`, the choices of the previous action are embedded.

        Raises `ConfigFieldError` if `encoder_overrides` does not fit the spaces.
        """
        return TimestepEncoder(self, leaves, action_space, embeds=embeds)


class TimestepEncoder(nn.Module):
    """[normalized vector features, encoded leaves] -> MLP -> LayerNorm. Paper: appendix A.

    The action mask and leaves without elements are left out.
    """

    def __init__(
        self,
        config: TimestepEncoderConfig,
        leaves: Mapping[str, Leaf],
        action_space: PolicyActionSpace,
        *,
        embeds: bool = False,
    ) -> None:
        super().__init__()
        used = {name: leaf for name, leaf in leaves.items() if name != ACTION_MASK_KEY and 0 not in stored_shape(leaf)}
        encoders = config.leaf_encoders()
        kind_of = config.resolve_encoders(used)
        encoder_of = {name: encoders[kind] for name, kind in kind_of.items() if kind != VECTOR_KIND}
        vector_leaves = {name: leaf for name, leaf in used.items() if name not in encoder_of}
        self.one_hot_sizes = {name: _categories(leaf) for name, leaf in vector_leaves.items()}
        """Number of choices of each component of the leaves without an encoder; empty: the leaf is flattened."""
        self.num_action_choices = num_choices(action_space)
        self.observation_size = sum(spaces.flatdim(leaf) for leaf in vector_leaves.values())
        """Number of vector features of the observation, which come first."""
        self.action_embedding = ActionEmbedding(self.num_action_choices) if embeds else None
        num_choices_embedded = len(self.num_action_choices) if embeds else 0
        sides_end = self.observation_size + NUM_SIDE_FEATURES
        self.num_features = sides_end + (num_choices_embedded or action_size(action_space))
        """F."""
        self.output_size = config.output_size
        """Width of a timestep's vector."""
        self.observes_time = config.observe_time
        self.unscaled_F: Tensor
        is_time_F = torch.arange(self.num_features) == sides_end - 1
        self.register_buffer("unscaled_F", is_time_F & (not config.normalize_time), persistent=False)
        inputs = self.num_features + sum(encoder.output_size for encoder in encoder_of.values())
        inputs += EMBEDDING_SIZE - num_choices_embedded if embeds else 0
        self.normalizer = InputNormalizer(self.num_features)
        self.input_size = inputs
        """Width of `inputs`."""
        self.mlp = MLP(inputs, config.hidden_sizes, config.output_size, config.activation)
        self.norm = nn.LayerNorm(config.output_size)
        self.encoded = tuple(encoder_of)
        """Names of the leaves with an encoder, in the order of `leaf_encoders`."""
        self.leaf_encoders = nn.ModuleList(
            encoder.build(used[name], config.activation) for name, encoder in encoder_of.items()
        )
        self.chunk_elements = config.chunk_elements

    def features(
        self,
        *,
        observation: Mapping[str, Shaped[Tensor, "N ..."]],
        previous_action: Shaped[Tensor, "N ..."],
        previous_reward: Float[Tensor, "N"],
        episode_start: Bool[Tensor, "N"],
        time: Int64[Tensor, "N"],
        horizon: Float[Tensor, "#N"],
    ) -> Float[Tensor, "N F"]:
        """Return the vector features of each timestep: [leaves, reset flag, previous reward, time, previous action].

        In float64, in which the normalizer subtracts offsets. Discrete leaves and actions are one-hot vectors, choices
        that are embedded are numbers from 1, other leaves are flattened, and time is a fraction of the horizon.
        Previous action and reward are zero at time 0. Paper: appendix A; the order is that of the authors' code.
        Differs from their 2023 code in the previous action of a trial's first step: zeros instead of ones or -2.
        """
        dtype = self.normalizer.mean.dtype
        features = [_flat(observation[name], sizes).to(dtype) for name, sizes in self.one_hot_sizes.items()]
        fraction = time.to(dtype) / horizon.clamp(min=1.0)  # padding has no horizon
        if not self.observes_time:
            fraction = torch.zeros_like(fraction)
        has_previous = time > 0
        reward = torch.where(has_previous, previous_reward.to(dtype), 0.0)
        side = torch.stack([episode_start.to(dtype), reward, fraction], dim=1)
        if self.action_embedding is None:
            action = _flat(previous_action, self.num_action_choices).to(dtype)
        else:
            action = previous_action.reshape(len(time), -1).to(dtype) + 1.0
        return torch.cat([*features, side, torch.where(has_previous[:, None], action, 0.0)], dim=1)

    def update_normalizers(
        self,
        features_NF: Float[Tensor, "N F"],
        observation: Mapping[str, Shaped[Tensor, "N ..."]],
        token_mask_N: Bool[Tensor, "N"],
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        """Update the running moments of numbers, of sub-goals without bounds and of pixels from a batch."""
        self.normalizer.update(features_NF, token_mask_N, distributed)
        for name, encoder in zip(self.encoded, self.leaf_encoders, strict=True):
            if isinstance(encoder, NormalizingEncoder):
                encoder.update(observation[name], token_mask_N, distributed)

    def normalized(self, features_NF: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        """Return the features, normalized but for a time that is not, as inputs of the network."""
        dtype = self.norm.weight.dtype
        return torch.where(self.unscaled_F, features_NF.to(dtype), self.normalizer(features_NF, dtype))

    def forward(
        self, features_NF: Float[Tensor, "N F"], observation: Mapping[str, Shaped[Tensor, "N ..."]]
    ) -> Float[Tensor, "N D"]:
        """Return one vector per timestep. `observation` holds the leaves as they are stored, such as bytes."""
        return self.norm(self.mlp(self.inputs(features_NF, observation)))

    def inputs(
        self, features_NF: Float[Tensor, "N F"], observation: Mapping[str, Shaped[Tensor, "N ..."]]
    ) -> Float[Tensor, "N inputs"]:
        """Return what the MLP sees: normalized vector features and encoded leaves."""
        x_NF = self.normalized(features_NF)
        encoded = [self._encode(index, observation[name]) for index, name in enumerate(self.encoded)]
        if self.action_embedding is not None:
            first = self.observation_size + NUM_SIDE_FEATURES
            choice_NC = features_NF[:, first:].long()
            action_ND = self.action_embedding((choice_NC - 1).clamp(min=0))
            encoded.append(torch.where(choice_NC[:, :1] > 0, action_ND, 0.0))
            x_NF = x_NF[:, :first]
        return torch.cat([x_NF, *encoded], dim=1) if encoded else x_NF

    def _encode(self, index: int, leaf: Shaped[Tensor, "N ..."]) -> Float[Tensor, "N d"]:
        encoder: nn.Module = self.leaf_encoders[index]
        if torch.compiler.is_exporting():  # any number of timesteps
            return encoder(leaf)
        timesteps = max(1, self.chunk_elements // leaf.shape[1:].numel())
        return encoder(leaf) if len(leaf) <= timesteps else _in_chunks(encoder, leaf, timesteps)


def _categories(leaf: Leaf) -> tuple[int, ...]:
    """Return the number of categories of each component of a leaf; empty for other leaves."""
    return num_choices(leaf) if isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete) else ()


def _flat(value: Shaped[Tensor, "N ..."], one_hot_sizes: tuple[int, ...]) -> Shaped[Tensor, "N f"]:
    return concat_one_hot(value, one_hot_sizes) if one_hot_sizes else value.reshape(value.shape[0], -1)


@uncompiled  # recompiles for each number of chunks
def _in_chunks(encoder: nn.Module, leaf: Shaped[Tensor, "N ..."], timesteps: int) -> Float[Tensor, "N d"]:
    """Apply an encoder chunk by chunk with activation checkpointing. Leaf encoders use no random numbers."""
    chunks = leaf.split(timesteps)
    return torch.cat([checkpoint(encoder, chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks])
