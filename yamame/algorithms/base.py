"""Interface of learning algorithms, for the trainer, evaluation, acting, checkpoints and tools."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float32, Shaped
from torch import Tensor, nn

from yamame.collect.experience import TrainedPolicy
from yamame.data.batch import Batch
from yamame.data.sampler import Sampler
from yamame.data.schema import TaskSpec
from yamame.data.store import LMDBReplayStore
from yamame.data.trajectory import Trajectory
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.nets.compute import Compute
from yamame.nets.introspection import AttentionWeights

Metrics = dict[str, Float[Tensor, ""]]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Replay data of a learner."""

    store: LMDBReplayStore
    """Trajectories that the run collected, newest last."""
    sampler: Sampler
    """Samples relabeled windows of these and of offline trajectories uniformly."""


@runtime_checkable
class Algorithm(Protocol):
    """Learning from trajectories. Environments, replay, collection, evaluation and tools do not depend on it."""

    model: nn.Module
    """All weights. Policies have copies of those that act."""
    compute: Compute
    generator: torch.Generator
    """Random stream of the updates, on the device of the model. With several ranks each has its own."""
    num_updates: int

    def policy(self, *, num_envs: int, generator: torch.Generator) -> TrainedPolicy:
        """Return a policy with the present weights and empty memory; `generator` samples its actions."""
        ...

    def batches(self, replay: Replay, count: int) -> Iterator[Batch]:
        """Yield `count` batches: uniform windows, the trajectories of the latest iteration, or other selections."""
        ...

    def update(self, batch: Batch) -> Metrics:
        """Make one gradient step. Metrics stay on the device."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return metrics that are logged once per iteration. May synchronize with the device."""
        ...

    def raise_if_diverged(self) -> None:
        """Raise `UserError` if training cannot continue."""
        ...

    def broadcast_parameters(self) -> None:
        """Copy weights and statistics of the main rank to all ranks."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return everything the next update depends on; `model` is the state dict of the model."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        ...


@dataclass(frozen=True, kw_only=True)
class ActionDistributions:
    """The policy of the gamma that acts in evaluations, at every timestep."""

    num_choices: tuple[int, ...] = ()
    """Number of choices of each component of a discrete action, side by side in A; empty if continuous."""
    probability_TA: Float32[np.ndarray, "timesteps A"] | None = None
    """Probability of each choice, clipped as for acting, 0 where masked. None for continuous actions."""
    mean_TA: Float32[np.ndarray, "timesteps A"] | None = None
    """Mean of the Gaussian whose tanh is a continuous action. None for discrete actions."""
    std_TA: Float32[np.ndarray, "timesteps A"] | None = None
    """Its standard deviation."""


@dataclass(frozen=True, kw_only=True)
class AgentAnalysis:
    """Action distributions, values and attention of one forward pass over a trajectory.

    T transitions, T + 1 timesteps: action t is chosen at timestep t, the last timestep is where the last action led.
    G gammas (the acting one last), A actions, L layers.
    """

    gammas_G: Float32[np.ndarray, "G"]
    q_TG: Float32[np.ndarray, "T G"] | None
    """Value of the action taken, mean over the critics, in units of the task's reward. None without critics."""
    value_TG: Float32[np.ndarray, "timesteps G"] | None
    """Value of the policy of each gamma: the expectation over a discrete action, or the value of the mode. None without
    critics."""
    action_distributions: ActionDistributions
    attention: AttentionWeights | None
    """Its tokens are timesteps. None if the trajectory encoder has no attention."""
    max_abs_LPT: Float32[np.ndarray, "L P timesteps"] | None
    """Largest absolute activation at each of `PROBE_POINTS` of each layer (paper, figure 14); None like `attention`."""


OBSERVATION, MEMORY = "observation/", "memory/"
"""Prefixes of the names of tensors of a `FunctionalPolicy`: leaves of the observation, and its memory."""


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


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(ABC):
    """Base class of algorithm configs. The class of the config chooses the algorithm."""

    @property
    @abstractmethod
    def model_width(self) -> int:
        """Width of the largest layers, from which `ComputeConfig` derives whether to compile."""

    @abstractmethod
    def build_model(self, task: TaskSpec, *, context_length: int) -> nn.Module:
        """Return the networks for a task, initialized from PyTorch's global random state."""

    @abstractmethod
    def build_policy(
        self,
        model: nn.Module,
        *,
        num_envs: int,
        generator: torch.Generator,
        collects: bool = False,
        cuda_graph: bool = False,
    ) -> TrainedPolicy:
        """Return a policy with the weights of a model, for evaluations, or to collect trajectories to train from.

        With `cuda_graph`, on a GPU it may replay its step as a CUDA graph.
        """

    @abstractmethod
    def build(
        self,
        model: nn.Module,
        *,
        compute: Compute,
        generator: torch.Generator,
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> Algorithm:
        """Return the algorithm; it moves the model to `compute.device`."""

    def analyze(
        self, model: nn.Module, trajectory: Trajectory, *, keep: int | None = None, acting_only: bool = False
    ) -> AgentAnalysis | None:
        """Return action distributions, values and attention of a model along a trajectory, for recordings and figures.

        Args:
            model: The networks. They are left in evaluation mode.
            trajectory: A trajectory of the task.
            keep: Number of largest attention weights kept per timestep; None: limited to a few megabytes.
            acting_only: The model has only the weights of `acting_state`: there are no values.

        Returns:
            The analysis; None if the algorithm has none.
        """
        return None

    def num_policies(self, model: nn.Module) -> int:
        """Return the number of policies of a model. The last one acts in training."""
        return 1

    def with_policy(self, index: int) -> "AlgorithmConfig":
        """Return the config whose evaluations act with the policy of an index; -1: that of training."""
        return self

    def functional_policy(self, model: nn.Module) -> FunctionalPolicy | None:
        """Return the policy of an evaluation as a function of tensors; None if the algorithm has none.

        Raises:
            UserError: If a part of the model cannot be exported.
        """
        return None

    def acting_state(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the entries of the model's state dict that acting needs, for collectors in other processes."""
        return model.state_dict()


def model_device(model: nn.Module) -> torch.device:
    """Return the device of a model's weights."""
    return next(model.parameters()).device


def build_model(config: AlgorithmConfig, task: TaskSpec, *, context_length: int, seed: int) -> nn.Module:
    """Return a model initialized from `seed`. PyTorch's global random state does not change."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return config.build_model(task, context_length=context_length)
