"""Messages between a learner and its collectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Shaped

from yamame.data.trajectory import Trajectory
from yamame.types import Fault


@dataclass(frozen=True, kw_only=True)
class PolicyWeights:
    """Weights of the policy."""

    name: str
    """Unique among all processes."""
    version: int
    """Number of updates made so far."""
    tensors: Mapping[str, Shaped[np.ndarray, "..."]]


@dataclass(frozen=True, kw_only=True)
class CollectRequest:
    """A request to one collector."""

    request_id: int
    """Unique among the requests of a learner."""
    weight_sync: int
    """Number of weight syncs of the learner so far."""
    vector_steps: int
    """Maximum number of steps of all environments of the collector."""
    seconds: float
    """Time limit; at least one step is made."""
    env_steps: int
    """Environment steps of the whole run so far, for the exploration schedule."""
    deterministic: bool


@dataclass(frozen=True, kw_only=True)
class CollectResult:
    """Result of a request."""

    request_id: int
    """Of the request."""
    version: int
    """Of the weights used."""
    vector_steps: int
    env_steps: int
    """Number of transitions."""
    trajectories: Sequence[Trajectory]
    """Trials that ended, in order; they may have started in earlier requests."""
    num_finished: int
    """Number of trials that completed without a fault."""
    faults: Sequence[Fault]
    seconds: float
    """Duration."""
    idle_seconds: float
    """Time without a request before it."""


@dataclass(frozen=True, kw_only=True)
class CollectorFailure:
    """Reply of a collector that failed."""

    message: str
    traceback: str = ""
    """Empty for a `UserError`."""


@dataclass(frozen=True, kw_only=True)
class CollectorInfo:
    """Host and process of a collector."""

    host: str
    pid: int
