"""`VariBAD`: the updates of PPO on hyper-states, then those of the belief in them."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from typing_extensions import override

from yamame.algorithms.base import Algorithm, Metrics, Replay
from yamame.algorithms.ppo.learner import PPO
from yamame.algorithms.varibad.agent import VariBADAgent
from yamame.algorithms.varibad.settings import VariBADLearnerConfig
from yamame.algorithms.varibad.vae import BeliefLearner
from yamame.data.batch import Batch
from yamame.nets.compute import CPU_FLOAT32, Compute


class VariBAD(Algorithm):
    """Bayes-adaptive reinforcement learning by a learned belief (Zintgraf et al. 2020).

    An iteration has the updates of PPO on its trials, then `vae_updates_per_iteration` of belief and decoder, on any
    stored trials. Beliefs so change after PPO has learned from them, and before the policy acts again.

    The agent is moved to `compute.device`, on which `generator` is. Dropout is off.
    """

    def __init__(
        self,
        agent: VariBADAgent,
        config: VariBADLearnerConfig,
        *,
        context_length: int,
        generator: torch.Generator,
        compute: Compute = CPU_FLOAT32,
    ) -> None:
        self.ppo = PPO(agent, config, context_length=context_length, generator=generator, compute=compute)
        self.vae = BeliefLearner(agent, config, context_length=context_length, generator=generator, compute=compute)
        self.model: nn.Module = self.ppo.model
        self.config, self.compute, self.generator = config, compute, generator
        self.num_updates = 0
        self._vae_updates_left = 0
        """Of the iteration whose updates have begun; 0: none has."""

    @override
    def updates_due(self, replay: Replay) -> int:
        of_ppo = self._ppo_updates_due(replay)
        if self._vae_updates_left:
            return of_ppo + self._vae_updates_left
        return of_ppo + self.config.vae_updates_per_iteration if of_ppo else 0

    @override
    def batches(self, replay: Replay, count: int) -> Iterator[Batch]:
        of_ppo = min(count, self._ppo_updates_due(replay))
        if of_ppo and not self._vae_updates_left:
            self._vae_updates_left = self.config.vae_updates_per_iteration
        yield from self.ppo.batches(replay, of_ppo)
        yield from self.vae.batches(replay, count - of_ppo)

    def _ppo_updates_due(self, replay: Replay) -> int:
        is_done = self._vae_updates_left and not self.ppo.trials.is_open
        return 0 if is_done else self.ppo.updates_due(replay)

    @override
    def update(self, batch: Batch) -> Metrics:
        """Make one gradient step of PPO, or of belief and decoder where those of PPO are made."""
        self.num_updates += 1
        if self.ppo.trials.is_open:
            return self.ppo.update(batch)
        self._vae_updates_left -= 1
        return self.vae.update(batch)

    @override
    def metrics(self) -> dict[str, float]:
        metrics = self.ppo.metrics()
        return {**metrics, "optim/nonfinite_updates": metrics["optim/nonfinite_updates"] + self.vae.nonfinite.total}

    @override
    def raise_if_diverged(self) -> None:
        self.ppo.raise_if_diverged()
        self.vae.raise_if_diverged()

    @override
    def broadcast_parameters(self) -> None:
        """There is one rank."""

    @override
    def state_dict(self) -> dict[str, Any]:
        of_ppo = self.ppo.state_dict()
        return {
            "model": of_ppo.pop("model"),
            "ppo": of_ppo,
            "vae": self.vae.state_dict(),
            "updates": self.num_updates,
            "vae_updates_left": self._vae_updates_left,
        }

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ppo.load_state_dict({**state["ppo"], "model": state["model"]})
        self.vae.load_state_dict(state["vae"])
        self.num_updates, self._vae_updates_left = state["updates"], state["vae_updates_left"]
