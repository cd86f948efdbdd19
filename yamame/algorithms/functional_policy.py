"""A step of a policy as a function of tensors, which `yamame export` writes as a graph; algorithms may support it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from jaxtyping import Shaped
from torch import Tensor, nn

OBSERVATION, MEMORY = "observation/", "memory/"
"""Prefixes of the names of tensors of a `FunctionalPolicy`: leaves of the observation, and its memory."""


def without_prefix(prefix: str, tensors: Mapping[str, Shaped[Tensor, "E ..."]]) -> dict[str, Shaped[Tensor, "E ..."]]:
    """Return the tensors whose names start with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


class FunctionalPolicy(nn.Module, ABC):
    """`Policy.act` for E environments as a function of tensors, which can be exported. Nothing is changed in place."""

    @abstractmethod
    def empty_memory(self, num_envs: int) -> dict[str, Shaped[Tensor, "E ..."]]:
        """Return the memory before the first timestep, by names without prefix."""

    @abstractmethod
    def forward(self, inputs: Mapping[str, Shaped[Tensor, "E ..."]]) -> dict[str, Shaped[Tensor, "E ..."]]:
        """Return the action and the next memory. The size of E does not matter.

        Args:
            inputs: The fields of `PolicyInput` by name, its leaves as `observation/LEAF`; `action_mask` in place of the
                leaf `ACTION_MASK_KEY`; the memory as `memory/NAME`, ignored where `time` is 0; `deterministic` (bool
                `[E]`): the mode instead of a sample; `seed` (int64 `[E]`): with the time, determines the sample.

        Returns:
            `policy_action` (as `Policy.act` returns it), the next memory as `memory/NAME`, and tensors that describe
            the distribution of the action, such as `probability` `[E, A]`, or `mean` and `std` of the Gaussian whose
            tanh is a continuous action.
        """


class SupportsExport(ABC):
    """Mix-in of an `AlgorithmConfig` whose policies can be exported."""

    @abstractmethod
    def functional_policy(self, model: nn.Module) -> FunctionalPolicy:
        """Return the policy of an evaluation as a function of tensors.

        Raises:
            UserError: If a part of the model cannot be exported.
        """
