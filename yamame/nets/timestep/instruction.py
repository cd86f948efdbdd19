"""Which leaf shows an instruction."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from gymnasium import spaces
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from yamame.data.goals import COMPLETED, INSTRUCTION_KEY
from yamame.data.spaces import Leaf
from yamame.errors import check_range
from yamame.nets.blocks import MLP, Activation, at_least_float32
from yamame.nets.timestep.base import LeafEncoderConfig
from yamame.nets.timestep.tokens import MAX_VOCABULARY, infer_vocabulary


@dataclass(frozen=True, kw_only=True)
class InstructionEncoderConfig(LeafEncoderConfig):
    """Base of the configs of encoders of instructions: what `Instructed` environments show as `INSTRUCTION_KEY`.

    Sub-goals are the rows of such a leaf, `[slots, goal]`; its lower bound leaves room for rows of `COMPLETED`. Any
    other leaf that happens to have the name is left to the encoders of its space.
    """

    def matches(self, name: str, leaf: Leaf) -> bool:
        """See the class."""
        if name != INSTRUCTION_KEY or self.unsupported_reason(leaf):
            return False
        return isinstance(leaf, spaces.Box) and bool((leaf.low <= COMPLETED).all())

    def unsupported_reason(self, leaf: Leaf) -> str:
        """Anything but rows of numbers."""
        is_table = isinstance(leaf, spaces.Box) and len(leaf.shape) == 2
        return "" if is_table else "is no Box of two dimensions, sub-goals and the numbers of each"


@dataclass(frozen=True, kw_only=True)
class InstructionCoordinatesConfig(InstructionEncoderConfig):
    """Sizes of the network for instructions of coordinates. Source: the paper's appendix, table 3, "goal emb"."""

    hidden_sizes: tuple[int, ...] = (64,)
    """Widths of the hidden layers."""
    output_size: int = 32
    """Width of what is made of an instruction."""
    normalize: bool = True
    """Divide coordinates by their largest value, where the space has one; off: as they are, like in the paper."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "hidden_sizes", ge=1)

    def build(self, leaf: Leaf, activation: Activation) -> "InstructionCoordinateEncoder":
        """The network for instructions of this shape."""
        assert isinstance(leaf, spaces.Box)
        return InstructionCoordinateEncoder(self, leaf, activation)


class InstructionCoordinateEncoder(nn.Module):
    """All sub-goals side by side -> MLP -> LayerNorm.

    Coordinates enter between 0 and 1, rows of -1 (no sub-goal) and -3 (completed) as they are. They bypass the input
    normaliser, as in the paper, whose running moments would mix the rows' three meanings. Differs from the authors'
    code in the division by the largest coordinate: behind raw numbers of 30 the LayerNorm sees little but the
    direction of the whole vector, and the side on which a goal lies is learned some three times more slowly.
    """

    def __init__(self, config: InstructionCoordinatesConfig, leaf: spaces.Box, activation: Activation) -> None:
        super().__init__()
        largest = torch.from_numpy(leaf.high).float()
        has_largest = config.normalize & largest.isfinite() & (largest > 0)
        self.unit: Tensor
        self.register_buffer("unit", torch.where(has_largest, largest, 1.0), persistent=False)
        self.mlp = MLP(math.prod(leaf.shape), config.hidden_sizes, config.output_size, activation)
        self.norm = nn.LayerNorm(config.output_size)

    def forward(self, instruction: Shaped[Tensor, "N slots goal"]) -> Float[Tensor, "N D"]:
        """One vector an instruction."""
        x = instruction.to(self.unit.dtype)
        return self.norm(self.mlp(torch.where(x > 0, x / self.unit, x).flatten(1)))


@torch.compiler.disable  # type: ignore[untyped-decorator]  # the number of rows follows from what is in them
def encode_unique_runs(
    encoder: Callable[[Shaped[Tensor, "M ..."]], Float[Tensor, "M D"]], leaf: Shaped[Tensor, "N ..."]
) -> Float[Tensor, "N D"]:
    """`encoder(leaf)`, computed for the first of each run of equal neighbours.

    Timesteps of a window are neighbours, so that an instruction is encoded as often as it changes. For a CPU: a GPU
    would have to wait for the number of rows, and nothing could be recorded.
    """
    begins_N = functional.pad((leaf[1:] != leaf[:-1]).flatten(1).any(1), (1, 0), value=True)
    return encoder(leaf[begins_N]).index_select(0, begins_N.cumsum(0) - 1)


@dataclass(frozen=True, kw_only=True)
class InstructionTokensConfig(InstructionEncoderConfig):
    """Sizes of the network for instructions of integers. Source: the paper's appendix, table 3, "goal emb"."""

    embedding_dim: int = 16
    """Numbers that stand for a word."""
    hidden_size: int = 96
    """Width of the recurrent network that reads them."""
    output_size: int = 64
    """Width of what is made of an instruction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "embedding_dim", "hidden_size", ge=1)

    def unsupported_reason(self, leaf: Leaf) -> str:
        """Anything but rows of integers of a bounded range."""
        known = infer_vocabulary(leaf)
        return super().unsupported_reason(leaf) or (
            "" if known else f"does not hold integers of a range of at most {MAX_VOCABULARY}"
        )

    def build(self, leaf: Leaf, activation: Activation) -> "InstructionTokenEncoder":
        """The network for such instructions."""
        return InstructionTokenEncoder(self, leaf)


class InstructionTokenEncoder(nn.Module):
    """Embedding -> tanh recurrence over the words of all sub-goals in order -> linear -> LayerNorm.

    -1 (no sub-goal) and -3 (completed) are words like any other: the vocabulary is what the leaf's bounds allow.
    Differs from the authors' code, which has 257 words whatever the task, in that; and in the recurrent weight, which
    is orthogonal at the start: the active sub-goal is read before all later ones, and PyTorch's own weights forget
    about half of a word with every further one.
    """

    def __init__(self, config: InstructionTokensConfig, leaf: Leaf) -> None:
        super().__init__()
        known = infer_vocabulary(leaf)
        assert known is not None
        self.vocabulary = known
        self.embedding = nn.Embedding(known.size, config.embedding_dim)
        self.input = nn.Linear(config.embedding_dim, config.hidden_size)
        self.recurrence = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        nn.init.orthogonal_(self.recurrence.weight)
        self.output = nn.Linear(config.hidden_size, config.output_size)
        self.norm = nn.LayerNorm(config.output_size)

    def forward(self, instruction: Shaped[Tensor, "N slots goal"]) -> Float[Tensor, "N D"]:
        """One vector an instruction."""
        if instruction.device.type == "cpu":
            return encode_unique_runs(self._read, instruction)
        return self._read(instruction)

    def _read(self, instruction: Shaped[Tensor, "N slots goal"]) -> Float[Tensor, "N D"]:
        token_NL = self.vocabulary.to_indices(instruction).flatten(1)
        word_VH = at_least_float32(self.input(self.embedding.weight))  # the same at every place: once a word
        first_NH, *rest = functional.embedding(token_NL, word_VH).unbind(1)
        state_NH = torch.tanh(first_NH)
        for word_NH in rest:
            state_NH = torch.tanh(word_NH + self.recurrence(state_NH))
        return self.norm(self.output(state_NH))
