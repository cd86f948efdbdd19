"""Interface of learning algorithms, for the trainer, evaluation, acting, checkpoints and tools.

Optional: `analysis.SupportsAnalysis`, `analysis.SupportsValues`, `functional_policy.SupportsExport`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from yamame.collect.experience import TrainedPolicy
from yamame.data.batch import Batch
from yamame.data.sampler import Sampler
from yamame.data.schema import TaskSpec
from yamame.data.store import ReplayStore
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.envs.config import EnvConfig
from yamame.nets.compute import Compute
from yamame.nets.torch_defaults import torch_defaults

Metrics = dict[str, Float[Tensor, ""]]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Replay data of a learner."""

    store: ReplayStore
    """Trajectories that the run collected, newest last."""
    sampler: Sampler
    """Samples relabeled windows of these and of offline trajectories."""


class Algorithm(ABC):
    """A model and its updates from trajectories. Its state is what a checkpoint needs to continue them."""

    model: nn.Module
    """All weights. Policies (`AlgorithmConfig.build_policy`) have copies of those that act."""
    compute: Compute
    generator: torch.Generator
    """Random stream of the updates, on the device of the model. With several ranks each has its own."""
    num_updates: int
    """Number of updates so far."""

    def batches(self, replay: Replay, count: int) -> Iterator[Batch]:
        """Yield `count` batches: windows that the sampler samples, or another selection."""
        return replay.sampler.iter_batches(count)

    def updates_due(self, replay: Replay) -> int | None:
        """Return the number of updates to make now; None: as many as `updates_per_env_step` allows.

        Algorithms on policy derive it from the trials that are new in the store.
        """
        return None

    @abstractmethod
    def update(self, batch: Batch) -> Metrics:
        """Make one gradient step. Metrics stay on the device."""

    def metrics(self) -> dict[str, float]:
        """Return metrics that are logged once per iteration. May synchronize with the device."""
        return {}

    def raise_if_diverged(self) -> None:  # noqa: B027  # an algorithm may have no such check
        """Raise `UserError` if training cannot continue."""

    @abstractmethod
    def broadcast_parameters(self) -> None:
        """Copy weights and statistics of the main rank to all ranks."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return everything the next update depends on; `model` is the state dict of the model."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(ABC):
    """Base class of algorithm configs. The class of the config chooses the algorithm.

    The folder `algorithms/NAME/` with a file `config.py` that defines one is an algorithm, and `--algorithm NAME`
    selects it. Every field needs a default. `agent`, if there is one, is a `NetworksConfig`.
    """

    def run_settings(self, recipe: "AlgorithmConfig", env: EnvConfig, *, env_steps: int) -> Mapping[str, Any]:
        """Return what `--algorithm` changes in a recipe's `RunConfig` besides the algorithm, by path of the field.

        Fields of this config are among them, by paths without prefix: `{"agent": ..., "num_envs": 16}`. Task,
        evaluation and number of steps stay those of the recipe.

        Args:
            recipe: The algorithm of the recipe, or of the default agent.
            env: The task.
            env_steps: Environment steps of the run.
        """
        return {}

    @property
    def is_on_policy(self) -> bool:
        """Whether it learns from the newest trials alone: `RunConfig` then refuses what needs others."""
        return False

    @property
    def unused_replay_fields(self) -> tuple[str, ...]:
        """Fields of `ReplayConfig` that have no effect, and of which `run_settings` restores the defaults."""
        return ()

    @property
    def min_trials(self) -> int:
        """Number of trials that must end before the first update."""
        return 1

    @property
    def needs_stored_data(self) -> bool:
        """Whether it learns from stored data alone: a run without any, or with trials of its own, is then refused."""
        return False

    @property
    @abstractmethod
    def model_width(self) -> int:
        """Width of the largest layers, from which `ComputeConfig` derives whether to compile."""

    @property
    def compiles(self) -> bool:
        """Whether `compute.compile` has an effect."""
        return True

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
        """Return a policy with a copy of the weights of a model, and with empty memory.

        Args:
            model: The networks.
            num_envs: Number of environments that it acts in.
            generator: Samples its actions; on the device of the model.
            collects: It collects trajectories to train from, in any process of a run; off: it acts as in evaluations.
            cuda_graph: On a GPU, it may replay its step as a CUDA graph.
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

    def remarks(self, task: TaskSpec, *, offline_only: bool = False) -> list[str]:
        """Return what is unusual about a task for this agent, one sentence each, to be printed before training.

        Args:
            task: Spaces and horizon.
            offline_only: Whether the run learns from stored data alone.
        """
        return []

    def memory_remarks(self, task: TaskSpec, *, context_length: int) -> list[str]:
        """Return what is unusual about a context length for this agent, as `remarks` does about the task."""
        return []

    def random_weights_remarks(self) -> list[str]:
        """Return what is unusual about a run that starts with random weights, as `remarks` does about the task."""
        return []

    def num_policies(self, model: nn.Module) -> int:
        """Return the number of policies of a model. The last one acts in training."""
        return 1

    def with_policy(self, index: int) -> "AlgorithmConfig":
        """Return the config whose evaluations act with the policy of an index; -1: that of training."""
        return self

    def collecting_state(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the entries of the model's state dict that `build_policy` needs to collect."""
        return self.acting_state(model)

    def acting_state(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the entries of the model's state dict that acting needs, for collectors in other processes."""
        return model.state_dict()


def model_device(model: nn.Module) -> torch.device:
    """Return the device of a model's weights."""
    return next(model.parameters()).device


def build_model(config: AlgorithmConfig, task: TaskSpec, *, context_length: int, seed: int) -> nn.Module:
    """Return a model initialized from `seed`. PyTorch's global random state does not change."""
    with torch_defaults(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return config.build_model(task, context_length=context_length)
