"""The seams between stations, on one page: what each must offer and nothing of how."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float, Shaped, UInt8
from torch import Tensor

from yamame.data.actions import NativeActionSpace, PolicyActionSpace
from yamame.data.batch import Batch, LossOutput, Predictions
from yamame.data.step import EpisodeStep, PolicyInput, TrialStep
from yamame.data.trajectory import Trajectory


@runtime_checkable
class EpisodeVectorEnv(Protocol):
    """E environments stepped together, episode by episode; they never reset on their own.

    `action_space` is what the policy sees: Discrete, flat MultiDiscrete, or flat Box in [-1, 1] (rescaled).
    Observations are flat dicts of leaves `[E, ...]`; where there are action masks, the leaf `ACTION_MASK_KEY` is one more.
    """

    num_envs: int
    observation_space: spaces.Space[Any]
    action_space: PolicyActionSpace
    env_action_space: NativeActionSpace
    """The action space as the environment declares it."""

    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """Begin an episode in the rows of `mask`, on a new task where `new_task`; other rows come back unchanged."""
        ...

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """One transition of every environment. Rows whose episode has ended must be reset first."""
        ...

    def close(self) -> None:
        """Give back what the environments hold."""
        ...


@runtime_checkable
class RenderableVectorEnv(EpisodeVectorEnv, Protocol):
    """Environments the first of which can be looked at."""

    @property
    def render_fps(self) -> float:
        """How fast pictures are meant to follow each other."""
        ...

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """What the first environment looks like now; `UserError` where it has no picture."""
        ...


@runtime_checkable
class TrialVectorEnv(Protocol):
    """E trials stepped together: one task each, memory kept from attempt to attempt, a new task at every trial."""

    num_envs: int
    observation_space: spaces.Space[Any]
    action_space: PolicyActionSpace
    env_action_space: NativeActionSpace
    """The action space as the environment declares it."""
    horizon: int
    """Largest number of transitions in a trial."""

    def reset(self) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """Begin a new trial everywhere."""
        ...

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> TrialStep:
        """One transition of every trial; ended ones begin anew."""
        ...

    def close(self) -> None:
        """Give back what the environments hold."""
        ...


@runtime_checkable
class ActingPolicy(Protocol):
    """Chooses actions for E environments, remembering what each saw since its trial began."""

    version: int

    @property
    def extras(self) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """Quantities of the last act that learning needs (log-probability, value); stored in `Trajectory.extras`."""
        ...

    def act(self, step: PolicyInput, *, deterministic: bool) -> Shaped[np.ndarray, "E ..."]:
        """Actions: integers `[E]` or `[E, C]`, or float32 `[E, A]` in [-1, 1]; none that `ACTION_MASK_KEY` forbids."""
        ...


@runtime_checkable
class ReplayStore(Protocol):
    """Durable trajectories, first in first out."""

    def append(self, trajectory: Trajectory) -> int:
        """Keep a trajectory; its id, larger than every earlier one."""
        ...

    def ids(self) -> Sequence[int]:
        """Ids of what is kept, oldest first."""
        ...

    def get(self, trajectory_id: int, *, lazy: bool = False) -> Trajectory:
        """The trajectory of an id; with `on_demand`, some of its leaves may be such."""
        ...

    def evict(self, keep: int) -> int:
        """Drop the oldest until at most `keep` are left; how many were dropped."""
        ...


@runtime_checkable
class BatchSource(Protocol):
    """Training batches, prepared ahead."""

    def batches(self, count: int) -> Iterator[Batch]:
        """`count` batches drawn from what is stored now."""
        ...


@runtime_checkable
class TrajectoryEncoder(Protocol):
    """Timestep vectors over time -> states; causal within each segment. Acting keeps its memory in an opaque state."""

    def __call__(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """States of all tokens of a batch."""
        ...

    def initial_state(self, num_envs: int) -> Any:
        """Empty memory of E environments."""
        ...

    def step(self, timestep_ED: Float[Tensor, "E D"], time_E: Tensor, state: Any) -> Float[Tensor, "E S"]:
        """State of one more timestep of each environment; `state` is updated in place, and emptied where time is 0."""
        ...


@runtime_checkable
class Loss(Protocol):
    """Predictions -> a number per token. Knows no optimizer, reduces nothing over tokens."""

    @property
    def weight(self) -> float:
        """What the loss is multiplied by in the sum."""
        ...

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        """The unweighted loss of every token."""
        ...
