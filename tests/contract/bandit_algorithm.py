"""A second, tiny algorithm in one file: importance-weighted policy gradient without memory; and a task for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from yamame.algorithms.base import Algorithm, AlgorithmConfig, Metrics
from yamame.data.batch import Batch
from yamame.data.schema import TaskSpec
from yamame.data.step import PolicyInput
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.nets.compute import Compute
from yamame.types import State


class ContextualBandit(gymnasium.Env[np.ndarray, np.int64]):
    """Four steps; the observation is a one-hot context, and the action of the same index is rewarded with 1."""

    observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: np.int64) -> Any:
        reward = float(action == self._context)
        self._steps += 1
        return self._observe(), reward, False, self._steps == 4, {}

    def _observe(self) -> np.ndarray:
        self._context = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self._context]


@dataclass(frozen=True, kw_only=True)
class BanditConfig(AlgorithmConfig):
    """Raises the probability of actions that earned more than 1 / 3."""

    learning_rate: float = 0.3

    @property
    def model_width(self) -> int:
        return 3

    def build_model(self, task: TaskSpec, *, context_length: int) -> nn.Module:
        assert isinstance(task.action_space, spaces.Discrete) and task.observation_space.shape is not None
        return nn.Linear(task.observation_space.shape[0], int(task.action_space.n))

    def build_policy(
        self,
        model: nn.Module,
        *,
        num_envs: int,
        generator: torch.Generator,
        collects: bool = False,
        cuda_graph: bool = False,
    ) -> "BanditPolicy":
        return BanditPolicy(model, generator)

    def build(
        self,
        model: nn.Module,
        *,
        compute: Compute,
        generator: torch.Generator,
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> Algorithm:
        return Bandit(self, model, compute, generator)


class BanditPolicy:
    """Samples from a softmax; its extras are the log-probabilities of its actions."""

    explores_E = None

    def __init__(self, model: nn.Module, generator: torch.Generator) -> None:
        self.generator = generator
        self.log_prob = np.zeros(0, np.float32)
        self.load_weights(model, version=0)

    def act(self, step: PolicyInput, *, deterministic: bool = False) -> Shaped[np.ndarray, "E ..."]:
        log_prob = log_probabilities(self.state, torch.from_numpy(step.observation["observation"]))
        action = torch.multinomial(log_prob.exp(), 1, generator=self.generator)[:, 0]
        action = log_prob.argmax(dim=1) if deterministic else action
        self.log_prob = log_prob.gather(1, action[:, None])[:, 0].numpy()
        return action.numpy()

    def extras(
        self,
        action: Shaped[np.ndarray, "E ..."],
        epsilon_E: Float[np.ndarray, "E"],
        repeated_E: Bool[np.ndarray, "E"],
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        return {"log_prob": self.log_prob}

    def load_weights(self, model: Any, *, version: int) -> None:
        self.version, self.state = version, {name: value.clone() for name, value in model.state_dict().items()}

    def reset(self) -> None:
        pass

    def state_dict(self) -> State:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: State) -> None:
        self.generator.set_state(state["generator"])


class Bandit(Algorithm):
    """Stochastic gradient descent on -importance weight x (reward - 1 / 3)."""

    def __init__(self, config: BanditConfig, model: nn.Module, compute: Compute, generator: torch.Generator) -> None:
        self.model, self.compute, self.generator, self.num_updates = model, compute, generator, 0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate)

    def update(self, batch: Batch) -> Metrics:
        log_prob = self.model(batch.observation["observation"]).log_softmax(dim=1)
        ratio = (log_prob.gather(1, batch.action[:, None])[:, 0] - batch.extras["log_prob"]).exp().clamp(max=2.0)
        loss = -(ratio * (batch.reward - 1 / 3))[batch.loss_mask].mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.num_updates += 1
        return {"loss/bandit": loss.detach()}

    def broadcast_parameters(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "num_updates": self.num_updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.num_updates = state["num_updates"]


def log_probabilities(state: Mapping[str, Tensor], observation: Tensor) -> Tensor:
    """Return the log-softmax of the linear layer."""
    return nn.functional.linear(observation, state["weight"], state["bias"]).log_softmax(dim=1)
