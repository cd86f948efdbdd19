"""`Distillation`: one update is a step towards the actions of stored histories."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.base import Algorithm, Metrics
from yamame.algorithms.distillation.agent import DistillationAgent
from yamame.algorithms.distillation.losses import imitation_loss
from yamame.algorithms.divergence import NonfiniteCounter, check_divergence
from yamame.algorithms.dropout import DropoutSeeds
from yamame.algorithms.optimizer import ClippedAdamW, lr_decay
from yamame.data.batch import Batch
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import check_range
from yamame.nets.compute import CPU_FLOAT32, BoundedRunAhead, Compute
from yamame.nets.ops import load_generator_state


@dataclass(frozen=True, kw_only=True)
class DistillationLearnerConfig:
    """Loss and optimizer."""

    label_smoothing: float = 0.0
    """Weight of uniform choices in the labels of discrete actions; 0: the action of the history alone."""
    learning_rate: float = 2e-3
    """Learning rate of AdamW."""
    lr_warmup_updates: int = 100
    """Updates over which the learning rate rises from 0."""
    lr_decay_updates: int = 0
    """Updates over which the learning rate decays to a tenth; 0: constant."""
    weight_decay: float = 1e-4
    """Weight decay of AdamW."""
    max_grad_norm: float = 1.0
    """Maximum global norm of the gradient."""
    max_nonfinite_updates: int = 100
    """Consecutive non-finite updates before training aborts."""

    def __post_init__(self) -> None:
        check_range(self, "label_smoothing", ge=0, lt=1)
        check_range(self, "learning_rate", "max_grad_norm", gt=0)
        check_range(self, "lr_warmup_updates", "lr_decay_updates", "weight_decay", ge=0)
        check_range(self, "max_nonfinite_updates", ge=1)

    def lr_at(self, update: int) -> float:
        """Return the learning rate of an update, counted from 1."""
        warmup = min(1.0, update / max(1, self.lr_warmup_updates))
        return self.learning_rate * warmup * lr_decay(update, self.lr_decay_updates)


class Distillation(Algorithm):
    """Supervised prediction of the next action at every step of windows of histories (Laskin et al. 2022).

    A window that spans several attempts shows how their learner became better. A policy that predicts its actions in a
    new task becomes better there, too, without updates.

    An update makes no host synchronization, and one whose loss or gradient is not finite changes nothing but its
    counter. With several ranks, loss, gradient and statistics are means over the tokens of all ranks' batches. Encoders
    are compiled if `compute.compile`; updates are not captured as CUDA graphs.

    The agent is moved to `compute.device`, on which `generator` is: its seed determines dropout.
    """

    def __init__(
        self,
        agent: DistillationAgent,
        config: DistillationLearnerConfig,
        *,
        generator: torch.Generator,
        compute: Compute = CPU_FLOAT32,
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        self.agent = agent.to(compute.device).train()
        self.model: nn.Module = self.agent
        self.config, self.compute, self.distributed, self.generator = config, compute, distributed, generator
        self.optimizer = ClippedAdamW(
            list(agent.parameters()), weight_decay=config.weight_decay, max_grad_norm=config.max_grad_norm
        )
        self.num_updates = 0
        self._dropout_seeds = DropoutSeeds(agent, generator)
        self._nonfinite = NonfiniteCounter(compute.device)
        self._last_batch: Batch | None = None
        self._encode: Callable[[Tensor, Batch], Tensor] = agent.encode
        if compute.compile:
            self._encode = torch.compile(agent.encode)
        self._run_ahead = BoundedRunAhead(compute.device)

    @override
    def update(self, batch: Batch) -> Metrics:
        self.num_updates += 1
        self._last_batch = batch
        self.optimizer.lr.fill_(self.config.lr_at(self.num_updates))
        self._dropout_seeds.set(self.num_updates)
        metrics = self._update(batch.to(self.compute.device, non_blocking=True))
        self._run_ahead.wait()
        return metrics

    def _update(self, batch: Batch) -> Metrics:
        agent, mask_N = self.agent, batch.loss_mask
        # 1. tokens -> predictions; statistics are put back at the end if the update is not finite
        statistics = list(agent.buffers())
        before = [value.clone() for value in statistics]
        features_NF = agent.features(batch)
        agent.update_statistics(features_NF, batch, self.distributed)
        self.optimizer.zero_grad()
        with self.compute.autocast():
            policy = agent.actor(self._encode(features_NF, batch), batch.action_mask)
        # 2. the mean over the transitions of all ranks, of which this rank has a term
        loss_N = imitation_loss(policy, batch.action, self.config.label_smoothing)
        total = mask_N.sum().to(loss_N.dtype)
        self.distributed.all_reduce_sum_(total)
        total = total.clamp(min=1)
        loss = _sum(loss_N, mask_N) / total
        # 3. a step, unless loss or gradient are not finite
        loss.backward()
        mean_loss = loss.detach().clone()
        self.distributed.all_reduce_sum_(mean_loss, *self.optimizer.grads_to_sum(self.distributed))
        norm, finite = self.optimizer.step(mean_loss)
        for value, old in zip(statistics, before, strict=True):
            value.copy_(torch.where(finite, value, old))
        self._nonfinite.count(finite)
        return {"loss/imitation": mean_loss, "optim/grad_norm": norm}

    @override
    def metrics(self) -> dict[str, float]:
        return {"optim/nonfinite_updates": float(self._nonfinite.total)}

    @override
    def raise_if_diverged(self) -> None:
        """Raise `UserError` after `max_nonfinite_updates` consecutive non-finite updates. Synchronizes the device."""
        check_divergence(self._nonfinite.consecutive, self.config.max_nonfinite_updates, self._last_batch)

    @override
    def broadcast_parameters(self) -> None:
        self.distributed.broadcast_(*self.agent.state_dict().values())

    @override
    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "updates": self.num_updates,
            **self._nonfinite.state_dict(),
        }

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.agent.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        load_generator_state(self.generator, state["generator"])
        self.num_updates = state["updates"]
        self._nonfinite.load_state_dict(state)
        self.broadcast_parameters()


def _sum(value_N: Float[Tensor, "N"], mask_N: Tensor) -> Float[Tensor, ""]:
    return torch.where(mask_N, value_N, 0.0).sum()
