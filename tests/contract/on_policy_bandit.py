"""An on-policy variant of the second algorithm: epochs over the trajectories of the newest iteration."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from bandit_algorithm import Bandit, BanditConfig
from torch import nn

from yamame.algorithms.base import Algorithm, Metrics, Replay
from yamame.data.batch import Batch, Window, pack
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.nets.compute import Compute

EPOCHS = 2


@dataclass(frozen=True, kw_only=True)
class OnPolicyConfig(BanditConfig):
    """Discards trajectories after one iteration."""

    def build(
        self,
        model: nn.Module,
        *,
        compute: Compute,
        generator: torch.Generator,
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> Algorithm:
        return OnPolicyBandit(self, model, compute, generator)


class OnPolicyBandit(Bandit):
    """Passes over the newest trajectories `EPOCHS` times, each time in another order."""

    first_id = 0
    """Id of the first trajectory of the newest iteration."""

    def batches(self, replay: Replay, count: int) -> Iterator[Batch]:
        newest = [replay.store.get(each) for each in replay.store.ids() if each >= self.first_id]
        for epoch in range(EPOCHS):
            order = torch.randperm(len(newest), generator=self.generator)
            for number, part in enumerate(order.chunk(count // EPOCHS)):
                self.is_first = epoch == number == 0
                windows = [Window(trajectory=newest[i], start=0, length=len(newest[i])) for i in part.tolist()]
                yield pack(windows, pad_tokens_to_multiple_of=1)
        self.first_id = replay.store.total_appended

    def update(self, batch: Batch) -> Metrics:
        with torch.no_grad():
            log_prob = self.model(batch.observation["observation"]).log_softmax(dim=1)
            log_ratio = log_prob.gather(1, batch.action[:, None])[:, 0] - batch.extras["log_prob"]
            error = log_ratio[batch.loss_mask].abs().max()
        name = "first_batch" if self.is_first else "later_batches"
        return {**super().update(batch), f"log_ratio/{name}": error, "batch/transitions": batch.loss_mask.sum().float()}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "first_id": self.first_id}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.first_id = state["first_id"]
