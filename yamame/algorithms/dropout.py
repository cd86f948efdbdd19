"""`DropoutSeeds`: reproducible dropout, which depends on the seed of a run and the number of updates alone."""

import torch
from torch import nn


class DropoutSeeds:
    """Seeds PyTorch's global random stream, from which dropout samples, before every update. Without dropout, nothing.

    Args:
        model: Networks that are trained.
        generator: Random stream of the updates, whose initial seed is that of the run.
    """

    def __init__(self, model: nn.Module, generator: torch.Generator) -> None:
        self._generator = generator
        self._drops_out = any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())

    def set(self, num_updates: int) -> None:
        """Set the seed of an update, by its number."""
        if self._drops_out:
            torch.manual_seed((self._generator.initial_seed() + num_updates) % 2**63)
