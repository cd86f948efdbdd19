"""The timestep encoder: everything that is seen at one instant -> one vector."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

import torch
from gymnasium import spaces
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from yamame.data.actions import ACTION_MASK_KEY, PolicyActionSpace
from yamame.data.spaces import Leaf, stored_shape
from yamame.errors import ConfigFieldError, check_range
from yamame.nets.blocks import MLP, Activation, InputNormalizer
from yamame.nets.timestep.base import LeafEncoderConfig
from yamame.nets.timestep.image import ImageEncoderConfig
from yamame.nets.timestep.instruction import InstructionCoordinatesConfig, InstructionTokensConfig
from yamame.nets.timestep.text import TextEncoderConfig
from yamame.nets.timestep.tokens import TokenEncoderConfig
from yamame.nets.timestep.vector import VectorFeatures

VECTOR_KIND = "vector"
"""The kind of a leaf that enters as plain numbers."""


@dataclass(frozen=True, kw_only=True)
class TimestepEncoderConfig:
    """Sizes of the timestep encoder. What becomes of each leaf of an observation follows from its space."""

    hidden_sizes: tuple[int, ...] = (512, 512)
    """Widths of the hidden layers."""
    output_size: int = 200
    """Width of the output: one vector a timestep."""
    activation: Activation = "leaky_relu"
    """Activation of the hidden layers."""
    encoder_overrides: tuple[str, ...] = ()
    """Leaves that are to be read in another way than their space suggests: LEAF=KIND, with vector, image, tokens,
    text, instruction_tokens or instruction_coordinates as kind, such as `image=tokens` for MiniGrid."""
    image: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)
    tokens: TokenEncoderConfig = field(default_factory=TokenEncoderConfig)
    text: TextEncoderConfig = field(default_factory=TextEncoderConfig)
    instruction_tokens: InstructionTokensConfig = field(default_factory=InstructionTokensConfig)
    instruction_coordinates: InstructionCoordinatesConfig = field(default_factory=InstructionCoordinatesConfig)
    chunk_elements: int = 1 << 22
    """Pixels, tokens or characters of a leaf that are encoded at once while training: memory is bounded by computing
    further ones twice."""

    def __post_init__(self) -> None:
        check_range(self, "hidden_sizes", "output_size", "chunk_elements", ge=1)
        kinds = [VECTOR_KIND, *self.leaf_encoders()]
        for entry in self.encoder_overrides:
            leaf, equals, kind = entry.rpartition("=")
            if not (leaf and equals and kind in kinds):
                raise ConfigFieldError(
                    self, "encoder_overrides", f"must be LEAF=KIND with {', '.join(kinds)} as kind, not {entry!r}"
                )

    def leaf_encoders(self) -> dict[str, LeafEncoderConfig]:
        """Kind -> config."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {kind: value for kind, value in values.items() if isinstance(value, LeafEncoderConfig)}

    def resolve_encoders(self, leaves: Mapping[str, Leaf]) -> dict[str, str]:
        """Leaf -> kind: the user's word, or the first leaf encoder that claims it, or vector.

        Raises `ConfigFieldError` for a name that is no leaf's and for a kind that a leaf cannot have.
        """
        encoders = self.leaf_encoders()
        told: dict[str, str] = {}
        for entry in self.encoder_overrides:
            name, _, kind = entry.rpartition("=")
            if name not in leaves:
                raise ConfigFieldError(
                    self, "encoder_overrides", f"names {name!r}, but the observation has {', '.join(leaves)}"
                )
            obstacle = encoders[kind].unsupported_reason(leaves[name]) if kind in encoders else _no_vector(leaves[name])
            if obstacle:
                raise ConfigFieldError(self, "encoder_overrides", f"says {entry!r}, but {name!r} {obstacle}")
            told[name] = kind
        claimed = {
            name: next((kind for kind, encoder in encoders.items() if encoder.matches(name, leaf)), VECTOR_KIND)
            for name, leaf in leaves.items()
        }
        return claimed | told

    def build(self, leaves: Mapping[str, Leaf], action_space: PolicyActionSpace) -> "TimestepEncoder":
        """The encoder for these spaces. Raises `ConfigFieldError` where `kinds` does not fit them."""
        return TimestepEncoder(self, leaves, action_space)


class TimestepEncoder(nn.Module):
    """[normalised vector features, what each leaf encoder makes of its leaf] -> MLP -> LayerNorm.

    Source: the paper's appendix A. The leaf of action masks and leaves without any number in them are left out.
    """

    def __init__(
        self, config: TimestepEncoderConfig, leaves: Mapping[str, Leaf], action_space: PolicyActionSpace
    ) -> None:
        super().__init__()
        seen = {name: leaf for name, leaf in leaves.items() if name != ACTION_MASK_KEY and 0 not in stored_shape(leaf)}
        encoders = config.leaf_encoders()
        kind_of = config.resolve_encoders(seen)
        encoder_of = {name: encoders[kind] for name, kind in kind_of.items() if kind != VECTOR_KIND}
        self.vector = VectorFeatures(
            {name: leaf for name, leaf in seen.items() if name not in encoder_of}, action_space
        )
        inputs = self.vector.size + sum(encoder.output_size for encoder in encoder_of.values())
        self.normalizer = InputNormalizer(self.vector.size)
        self.mlp = MLP(inputs, config.hidden_sizes, config.output_size, config.activation)
        self.norm = nn.LayerNorm(config.output_size)
        self.encoded = tuple(encoder_of)
        """Names of the leaves that have an encoder, in the order of `leaf_encoders`."""
        self.leaf_encoders = nn.ModuleList(
            encoder.build(seen[name], config.activation) for name, encoder in encoder_of.items()
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
        """The vector part of the input of each timestep, before normalisation."""
        return self.vector(
            observation=observation,
            previous_action=previous_action,
            previous_reward=previous_reward,
            episode_start=episode_start,
            time=time,
            horizon=horizon,
            dtype=self.normalizer.mean.dtype,
        )

    def forward(
        self, features_NF: Float[Tensor, "N F"], observation: Mapping[str, Shaped[Tensor, "N ..."]]
    ) -> Float[Tensor, "N D"]:
        """One vector a timestep. `observation` holds the leaves as they are stored: bytes stay bytes until here."""
        x_NF = self.normalizer(features_NF)
        parts = [self._encode(index, observation[name]) for index, name in enumerate(self.encoded)]
        return self.norm(self.mlp(torch.cat([x_NF, *parts], dim=1) if parts else x_NF))

    def _encode(self, index: int, leaf: Shaped[Tensor, "N ..."]) -> Float[Tensor, "N d"]:
        encoder: nn.Module = self.leaf_encoders[index]
        timesteps = max(1, self.chunk_elements // leaf.shape[1:].numel())
        return encoder(leaf) if len(leaf) <= timesteps else _in_pieces(encoder, leaf, timesteps)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # a compiler would make one program for each number of pieces
def _in_pieces(encoder: nn.Module, leaf: Shaped[Tensor, "N ..."], timesteps: int) -> Float[Tensor, "N d"]:
    """`encoder(leaf)`, of which only the inputs and outputs are kept for the backward pass, and what one piece needs.

    Nothing in a leaf encoder is drawn at random, so no state of generators has to be kept.
    """
    pieces = leaf.split(timesteps)
    return torch.cat([checkpoint(encoder, piece, use_reentrant=False, preserve_rng_state=False) for piece in pieces])


def _no_vector(leaf: Leaf) -> str:
    return "is a text" if isinstance(leaf, spaces.Text) else ""
