"""Encoders of instructions, given as coordinates or as integers."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from gymnasium import spaces
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from yamame.data.goals import COMPLETED, INSTRUCTION_KEY, NO_GOAL
from yamame.data.spaces import Leaf
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import check_range
from yamame.nets.blocks import MLP, Activation, InputNormalizer, at_least_float32
from yamame.nets.ops import uncompiled
from yamame.nets.timestep.base import LeafEncoderConfig, NormalizingEncoder
from yamame.nets.timestep.tokens import MAX_VOCABULARY, infer_vocabulary


@dataclass(frozen=True, kw_only=True)
class InstructionEncoderConfig(LeafEncoderConfig):
    """Base of the configs of encoders of the leaf `INSTRUCTION_KEY`, which `InstructionWrapper` adds.

    Its rows are sub-goals, `[max_goals, goal_size]`, and its lower bound admits rows of `COMPLETED`. Other leaves of
    that name are encoded by their space.
    """

    @override
    def matches(self, name: str, leaf: Leaf) -> bool:
        if name != INSTRUCTION_KEY or self.unsupported_reason(leaf):
            return False
        return isinstance(leaf, spaces.Box) and bool((leaf.low <= COMPLETED).all())

    @override
    def unsupported_reason(self, leaf: Leaf) -> str:
        is_table = isinstance(leaf, spaces.Box) and len(leaf.shape) == 2
        return "" if is_table else "is not a Box of two dimensions, sub-goals and their numbers"


@dataclass(frozen=True, kw_only=True)
class InstructionCoordinatesConfig(InstructionEncoderConfig):
    """Sizes of the encoder of coordinates. Paper: appendix, table 3, "goal emb"."""

    hidden_sizes: tuple[int, ...] = (64,)
    """Widths of the hidden layers."""
    output_size: int = 32
    """Width of an instruction's vector."""
    normalize: bool = True
    """Divide coordinates by their upper bound; without one, normalize them by the running moments of sub-goals. Differs
    from the paper: not divided there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "hidden_sizes", ge=1)

    @override
    def build(self, leaf: Leaf, activation: Activation) -> "InstructionCoordinateEncoder":
        assert isinstance(leaf, spaces.Box)
        return InstructionCoordinateEncoder(self, leaf, activation)


class InstructionCoordinateEncoder(NormalizingEncoder):
    """Concatenated sub-goals -> MLP -> LayerNorm.

    Coordinates with an upper bound are scaled to [-1, 1], and to [0, 1] if none is negative; others have mean 0 and
    std 1; rows of -1 (no sub-goal) and -3 (completed) are unchanged. They bypass the input normalizer, as in the paper,
    since its running moments would mix the three kinds of rows. Differs from the authors' code in the division by the
    largest coordinate: with raw values of 30 the LayerNorm keeps little but the direction of the whole vector, and
    learning takes three times as long.
    """

    def __init__(self, config: InstructionCoordinatesConfig, leaf: spaces.Box, activation: Activation) -> None:
        super().__init__()
        high = torch.from_numpy(leaf.high).float()
        low = torch.from_numpy(leaf.low).float()
        has_bound = high.isfinite() & (high > 0)
        # a lower bound of -3 is that of completed sub-goals
        largest = torch.maximum(high, torch.where(low.isfinite() & (low < COMPLETED), -low, 0.0))
        self.unit: Tensor
        self.register_buffer("unit", torch.where(config.normalize & has_bound, largest, 1.0), persistent=False)
        self.unbounded: Tensor
        self.register_buffer("unbounded", ~has_bound, persistent=False)
        self.normalizer: InputNormalizer | None = None
        """Moments of sub-goals, for coordinates without a bound; None: all have one."""
        if config.normalize and not has_bound.all():
            self.normalizer = InputNormalizer(leaf.shape[1])
        self.mlp = MLP(math.prod(leaf.shape), config.hidden_sizes, config.output_size, activation)
        self.norm = nn.LayerNorm(config.output_size)

    def forward(self, instruction: Shaped[Tensor, "N slots goal"]) -> Float[Tensor, "N D"]:
        """Return one vector per instruction."""
        x = instruction.to(self.unit.dtype)
        is_sub_goal = _is_sub_goal(instruction)[..., None]
        scaled = torch.where(is_sub_goal, x / self.unit, x)
        if self.normalizer is not None:
            normalized = self.normalizer(instruction.flatten(0, 1), x.dtype).view_as(x)
            scaled = torch.where(self.unbounded & is_sub_goal, normalized, scaled)
        return self.norm(self.mlp(scaled.flatten(1)))

    def update(
        self,
        instruction: Shaped[Tensor, "N slots goal"],
        token_mask_N: Bool[Tensor, "N"],
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        """Update the moments of sub-goals, if coordinates are normalized by them."""
        if self.normalizer is not None:
            is_sub_goal = _is_sub_goal(instruction) & token_mask_N[:, None]
            self.normalizer.update(instruction.flatten(0, 1).double(), is_sub_goal.flatten(), distributed)


def _is_sub_goal(instruction: Shaped[Tensor, "N slots goal"]) -> Bool[Tensor, "N slots"]:
    """Return False for rows that say that there is no sub-goal, or that it was completed."""
    return ((instruction != NO_GOAL) & (instruction != COMPLETED)).any(dim=-1)


@uncompiled  # the number of rows depends on values
def encode_unique_runs(
    encoder: Callable[[Shaped[Tensor, "M ..."]], Float[Tensor, "M D"]], leaf: Shaped[Tensor, "N ..."]
) -> Float[Tensor, "N D"]:
    """Return `encoder(leaf)`, computed once for each run of equal consecutive rows.

    An instruction is then encoded only when it changes. For the CPU: the number of rows depends on values, which a GPU
    would have to synchronize.
    """
    is_new_N = functional.pad((leaf[1:] != leaf[:-1]).flatten(1).any(1), (1, 0), value=True)
    return encoder(leaf[is_new_N]).index_select(0, is_new_N.cumsum(0) - 1)


@dataclass(frozen=True, kw_only=True)
class InstructionTokensConfig(InstructionEncoderConfig):
    """Sizes of the encoder of integers. Paper: appendix, table 3, "goal emb"."""

    embedding_dim: int = 16
    """Width of the embedding of a token."""
    hidden_size: int = 96
    """Width of the recurrent network."""
    output_size: int = 64
    """Width of an instruction's vector."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "embedding_dim", "hidden_size", ge=1)

    @override
    def unsupported_reason(self, leaf: Leaf) -> str:
        reason = "" if infer_vocabulary(leaf) else f"does not hold integers of at most {MAX_VOCABULARY} values"
        return super().unsupported_reason(leaf) or reason

    @override
    def build(self, leaf: Leaf, activation: Activation) -> "InstructionTokenEncoder":
        return InstructionTokenEncoder(self, leaf)


class InstructionTokenEncoder(nn.Module):
    """Embedding -> tanh recurrence over the tokens of all sub-goals in order -> linear -> LayerNorm.

    The bounds of the leaf define the vocabulary, which includes -1 (no sub-goal) and -3 (completed). Differs from the
    authors' code, which has 257 tokens for every task and PyTorch's initial recurrent weight. Here it is orthogonal:
    the active sub-goal comes before all others, and PyTorch's weight forgets about half of a token at every step.
    """

    def __init__(self, config: InstructionTokensConfig, leaf: Leaf) -> None:
        super().__init__()
        vocabulary = infer_vocabulary(leaf)
        assert vocabulary is not None
        self.vocabulary = vocabulary
        self.embedding = nn.Embedding(vocabulary.size, config.embedding_dim)
        self.input = nn.Linear(config.embedding_dim, config.hidden_size)
        self.recurrence = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        nn.init.orthogonal_(self.recurrence.weight)
        self.output = nn.Linear(config.hidden_size, config.output_size)
        self.norm = nn.LayerNorm(config.output_size)

    def forward(self, instruction: Shaped[Tensor, "N slots goal"]) -> Float[Tensor, "N D"]:
        """Return one vector per instruction."""
        if instruction.device.type == "cpu" and not torch.compiler.is_exporting():
            return encode_unique_runs(self._encode, instruction)
        return self._encode(instruction)

    def _encode(self, instruction: Shaped[Tensor, "N slots goal"]) -> Float[Tensor, "N D"]:
        token_NL = self.vocabulary.to_indices(instruction).flatten(1)
        input_VH = at_least_float32(self.input(self.embedding.weight))  # once per token of the vocabulary
        first_NH, *rest = functional.embedding(token_NL, input_VH).unbind(1)
        state_NH = torch.tanh(first_NH)
        for input_NH in rest:
            state_NH = torch.tanh(input_NH + self.recurrence(state_NH))
        return self.norm(self.output(state_NH))
