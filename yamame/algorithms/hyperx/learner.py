"""`HyperX`: variBAD whose PPO learns from rewards with bonuses for exploration."""

from typing import Any

import torch
from typing_extensions import override

from yamame.algorithms.base import Metrics
from yamame.algorithms.hyperx.agent import HyperXAgent
from yamame.algorithms.hyperx.bonuses import ExplorationBonuses
from yamame.algorithms.hyperx.settings import HyperXLearnerConfig
from yamame.algorithms.varibad.learner import VariBAD
from yamame.data.batch import Batch
from yamame.nets.compute import CPU_FLOAT32, Compute


class HyperX(VariBAD):
    """Exploration in hyper-states (Zintgraf et al. 2021).

    An iteration is one of variBAD. PPO computes advantages from normalized rewards plus bonuses; stored and reported
    rewards are those of the task. The batch of stored trials of each update of the belief then trains the predictor,
    too.
    """

    def __init__(
        self,
        agent: HyperXAgent,
        config: HyperXLearnerConfig,
        *,
        context_length: int,
        generator: torch.Generator,
        compute: Compute = CPU_FLOAT32,
    ) -> None:
        super().__init__(agent, config, context_length=context_length, generator=generator, compute=compute)
        seed = generator.initial_seed() % 2**32
        self.bonuses = ExplorationBonuses(agent, config, vae=self.vae, compute=compute, seed=seed)
        self.ppo.training_rewards = self.bonuses.training_rewards

    @override
    def update(self, batch: Batch) -> Metrics:
        """Make one gradient step of PPO, or, where those are made, of belief and decoder and then of the predictor."""
        is_ppo = self.ppo.trials.is_open
        metrics = super().update(batch)
        return metrics if is_ppo else {**metrics, **self.bonuses.update(batch)}

    @override
    def metrics(self) -> dict[str, float]:
        metrics = {**super().metrics(), **self.bonuses.metrics()}
        metrics["optim/nonfinite_updates"] += self.bonuses.nonfinite.total + self.bonuses.nonfinite_bonuses.total
        return metrics

    @override
    def raise_if_diverged(self) -> None:
        super().raise_if_diverged()
        self.bonuses.raise_if_diverged()

    @override
    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "bonuses": self.bonuses.state_dict()}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.bonuses.load_state_dict(state["bonuses"])
