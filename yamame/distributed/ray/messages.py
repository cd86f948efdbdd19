"""What passes between a learner and its collectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Shaped

from yamame.data.trajectory import Trajectory
from yamame.types import Fault


@dataclass(frozen=True, kw_only=True)
class PolicyWeights:
    """What acting needs of an agent."""

    name: str
    """No other weights are called this, in whatever process they were made."""
    version: int
    """Number of updates behind them."""
    tensors: Mapping[str, Shaped[np.ndarray, "..."]]


@dataclass(frozen=True, kw_only=True)
class CollectRequest:
    """Work for one collector."""

    request_id: int
    """No other order of the same learner has it."""
    weight_sync: int
    """Which refresh of the policy the weights are from, counted by the learner."""
    vector_steps: int
    """At most so many steps of all the collector's environments."""
    seconds: float
    """It ends earlier where it takes longer; one step is made in any case."""
    env_steps: int
    """Environment steps of the whole run so far: the clock of exploration."""
    deterministic: bool


@dataclass(frozen=True, kw_only=True)
class CollectResult:
    """What an order gave."""

    request_id: int
    """The order's."""
    version: int
    """Of the weights that acted."""
    vector_steps: int
    env_steps: int
    """Transitions that were made."""
    trajectories: Sequence[Trajectory]
    """The trials that ended, in their order; they may have begun under earlier orders."""
    num_finished: int
    """How many of them came to their end, and were not cut short by a fault."""
    faults: Sequence[Fault]
    seconds: float
    """Spent on it."""
    idle_seconds: float
    """Spent before it, without an order."""


@dataclass(frozen=True, kw_only=True)
class CollectorFailure:
    """What a collector answers that cannot do what it is told."""

    message: str
    traceback: str = ""
    """Empty where the user can mend it (`UserError`)."""


@dataclass(frozen=True, kw_only=True)
class CollectorInfo:
    """Where a collector is."""

    host: str
    pid: int
