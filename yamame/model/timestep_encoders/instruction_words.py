"""Instructions whose sub-goals are words of a closed vocabulary -> vectors: read one word after the other."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from yamame.model.blocks.mlp import Activation
from yamame.model.blocks.precision import at_least_float32
from yamame.model.timestep_encoders.instruction import InstructionEncoderConfig
from yamame.model.timestep_encoders.repeats import once_each
from yamame.model.timestep_encoders.vocabulary import LARGEST_VOCABULARY, vocabulary
from yamame.records.limits import check_limits
from yamame.records.spaces import Leaf


@dataclass(frozen=True, kw_only=True)
class InstructionWordsConfig(InstructionEncoderConfig):
    """Sizes of the network for instructions of integers. Source: the paper's appendix, table 3, "goal emb"."""

    embedding: int = 16
    """Numbers that stand for a word."""
    hidden: int = 96
    """Width of the recurrent network that reads them."""
    width: int = 64
    """Width of what is made of an instruction."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(self, "embedding", "hidden", at_least=1)

    def obstacle(self, leaf: Leaf) -> str:
        """Anything but rows of integers of a bounded range."""
        known = vocabulary(leaf)
        return super().obstacle(leaf) or (
            "" if known else f"does not hold integers of a range of at most {LARGEST_VOCABULARY}"
        )

    def build(self, leaf: Leaf, activation: Activation) -> "InstructionWords":
        """The network for such instructions."""
        return InstructionWords(self, leaf)


class InstructionWords(nn.Module):
    """Embedding -> tanh recurrence over the words of all sub-goals in order -> linear -> LayerNorm.

    -1 (no sub-goal) and -3 (completed) are words like any other: the vocabulary is what the leaf's bounds allow.
    Differs from the authors' code, which has 257 words whatever the task, in that; and in the recurrent weight, which
    is orthogonal at the start: the active sub-goal is read before all later ones, and PyTorch's own weights forget
    about half of a word with every further one.
    """

    def __init__(self, config: InstructionWordsConfig, leaf: Leaf) -> None:
        super().__init__()
        known = vocabulary(leaf)
        assert known is not None
        self.vocabulary = known
        self.embedding = nn.Embedding(known.size, config.embedding)
        self.input = nn.Linear(config.embedding, config.hidden)
        self.recurrence = nn.Linear(config.hidden, config.hidden, bias=False)
        nn.init.orthogonal_(self.recurrence.weight)
        self.output = nn.Linear(config.hidden, config.width)
        self.norm = nn.LayerNorm(config.width)

    def forward(self, instruction: Shaped[Tensor, "N slots goal"]) -> Float[Tensor, "N D"]:
        """One vector an instruction."""
        if instruction.device.type == "cpu":
            return once_each(self._read, instruction)
        return self._read(instruction)

    def _read(self, instruction: Shaped[Tensor, "N slots goal"]) -> Float[Tensor, "N D"]:
        token_NL = self.vocabulary.tokens(instruction).flatten(1)
        word_VH = at_least_float32(self.input(self.embedding.weight))  # the same at every place: once a word
        first_NH, *rest = functional.embedding(token_NL, word_VH).unbind(1)
        state_NH = torch.tanh(first_NH)
        for word_NH in rest:
            state_NH = torch.tanh(word_NH + self.recurrence(state_NH))
        return self.norm(self.output(state_NH))
