"""Instructions whose sub-goals are words of a closed vocabulary -> vectors: read one word after the other."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from yamame.model.blocks.mlp import Activation
from yamame.model.blocks.precision import at_least_float32
from yamame.model.timestep_encoders.instruction import InstructionEncoderConfig
from yamame.model.timestep_encoders.repeats import encode_unique_runs
from yamame.model.timestep_encoders.vocabulary import LARGEST_VOCABULARY, infer_vocabulary
from yamame.records.limits import check_range
from yamame.records.spaces import Leaf


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
            "" if known else f"does not hold integers of a range of at most {LARGEST_VOCABULARY}"
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
