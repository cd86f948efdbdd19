"""`ActionEmbedding`: discrete actions with many choices as inputs of networks."""

import math
from itertools import accumulate

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

EMBEDDING_SIZE = 32
"""Width of the vector of an action."""


class ActionEmbedding(nn.Module):
    """The sum of a learned vector for the choice of each of C components.

    Args:
        sizes: Number of choices of each component.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(sum(sizes), EMBEDDING_SIZE) / math.sqrt(len(sizes)))
        self.first_C: Tensor
        self.register_buffer("first_C", torch.tensor([0, *accumulate(sizes)][:-1]), persistent=False)

    def forward(self, choice: Int64[Tensor, "*shape C"], *, detach_weights: bool = False) -> Float[Tensor, "*shape D"]:
        """Return one vector per action. With `detach_weights`, no gradients reach the table."""
        table = self.table.detach() if detach_weights else self.table
        index_XC = (choice + self.first_C).flatten(0, -2)
        if torch.compiler.is_exporting() or index_XC.shape[1] == 1:
            vectors_XD = functional.embedding(index_XC, table).sum(1)
        else:
            vectors_XD = functional.embedding_bag(index_XC, table, mode="sum")
        return vectors_XD.unflatten(0, choice.shape[:-1])
