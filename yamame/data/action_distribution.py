"""Distributions of actions in the action space of the environment."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Float64

from yamame.data.actions import ActionLeaf, NativeActionSpace, nest_action, num_choices, num_components, to_env_action
from yamame.data.spaces import walk_space

_NODES_Q = np.linspace(-8.0, 8.0, 257)
_WEIGHTS_Q = np.exp(-0.5 * _NODES_Q**2) / np.exp(-0.5 * _NODES_Q**2).sum()
"""Of the trapezoidal rule for expectations under a standard normal distribution. It is exact to 1e-6 for the tanh of
Gaussians with a standard deviation of up to e^2, the largest of a policy."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PolicyParameters:
    """Parameters of the action distributions of E environments, in the action space of the policy."""

    probability_EA: Float32[np.ndarray, "E A"] | None = None
    """Of the choices of all components, side by side. None for continuous actions."""
    mean_EA: Float32[np.ndarray, "E A"] | None = None
    """Mean of the Gaussian whose tanh is a continuous action. None for discrete actions."""
    std_EA: Float32[np.ndarray, "E A"] | None = None
    """Its standard deviation."""


class SupportsDistribution(ABC):
    """Mix-in of policies that return the distribution of the actions that they chose."""

    @abstractmethod
    def last_parameters(self) -> PolicyParameters:
        """Return the parameters from which the last call of `act` chose. For policies that have acted."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ActionDistribution:
    """Distribution of an action, or of one leaf of a Dict or Tuple, in the space and units of the environment.

    Arrays of several environments have them as first dimension.
    """

    probability: Any = None
    """Discrete: an array with the probability of each choice, from `start` on. MultiDiscrete and MultiBinary: a tuple
    of such arrays, one for each component. They are clipped as for acting, and 0 where a mask forbids the choice. None
    for continuous actions."""
    mean: Any = None
    """Mean of a continuous action, in the shape of its Box. None for discrete actions."""
    std: Any = None
    """Its standard deviation, each dimension on its own."""
    mode: Any = None
    """The action of a Box with `deterministic=True`; None for discrete actions. A Box of integers has it rounded, mean
    and deviation before rounding."""


def to_env_distribution(space: NativeActionSpace, parameters: PolicyParameters, *, single: bool) -> Any:
    """Convert parameters to distributions, nested as an environment's action space is.

    Args:
        space: Action space of the environment.
        parameters: Those of the policy.
        single: Leave out the dimension of the environments, of which there is one.
    """
    convert: Callable[[ActionLeaf, PolicyParameters], ActionDistribution]
    leaves = walk_space(space)
    if parameters.probability_EA is None:
        convert, sizes = _continuous, [num_components(leaf) for _, leaf in leaves]
    else:
        convert, sizes = _discrete, [sum(num_choices(leaf)) for _, leaf in leaves]
    ends = [0, *accumulate(sizes)]
    converted = {}
    for (keys, leaf), start, end in zip(leaves, ends, ends[1:], strict=False):
        arrays = {
            name: None if array is None else array[:1, start:end] if single else array[:, start:end]
            for name, array in vars(parameters).items()
        }
        converted[keys] = _without_batch(convert(leaf, PolicyParameters(**arrays)), single)  # type: ignore[arg-type]
    return nest_action(space, converted)


def _discrete(leaf: ActionLeaf, parameters: PolicyParameters) -> ActionDistribution:
    assert parameters.probability_EA is not None
    parts = np.split(parameters.probability_EA, list(accumulate(num_choices(leaf)))[:-1], axis=1)
    return ActionDistribution(probability=parts[0] if isinstance(leaf, spaces.Discrete) else tuple(parts))


def _continuous(leaf: ActionLeaf, parameters: PolicyParameters) -> ActionDistribution:
    assert isinstance(leaf, spaces.Box) and parameters.mean_EA is not None and parameters.std_EA is not None
    mean_EA, std_EA = parameters.mean_EA.astype(np.float64), parameters.std_EA.astype(np.float64)
    tanh_mean_EA, tanh_std_EA = _tanh_moments(mean_EA, std_EA)
    shape = (len(mean_EA), *leaf.shape)
    low, high = leaf.low.astype(np.float64), leaf.high.astype(np.float64)
    return ActionDistribution(
        mean=low + (tanh_mean_EA.reshape(shape) + 1.0) / 2.0 * (high - low),
        std=tanh_std_EA.reshape(shape) / 2.0 * (high - low),
        mode=to_env_action(leaf, np.tanh(parameters.mean_EA)),
    )


def _tanh_moments(
    mean_EA: Float64[np.ndarray, "E A"], std_EA: Float64[np.ndarray, "E A"]
) -> tuple[Float64[np.ndarray, "E A"], Float64[np.ndarray, "E A"]]:
    """Return mean and standard deviation of the tanh of Gaussians."""
    tanh_EAQ = np.tanh(mean_EA[..., None] + std_EA[..., None] * _NODES_Q)
    tanh_mean_EA = tanh_EAQ @ _WEIGHTS_Q
    variance_EA = (tanh_EAQ - tanh_mean_EA[..., None]) ** 2 @ _WEIGHTS_Q
    return tanh_mean_EA, np.sqrt(variance_EA)


def _without_batch(distribution: ActionDistribution, single: bool) -> ActionDistribution:
    if not single:
        return distribution

    def first(value: Any) -> Any:
        return tuple(part[0] for part in value) if isinstance(value, tuple) else None if value is None else value[0]

    return ActionDistribution(**{name: first(value) for name, value in vars(distribution).items()})
