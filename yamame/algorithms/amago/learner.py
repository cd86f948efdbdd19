"""One update: statistics, targets, losses, one backward pass, one optimizer step."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.losses.base import Loss
from yamame.algorithms.amago.losses.filtered_bc import FilteredBCLoss
from yamame.algorithms.amago.losses.policy_gradient import PolicyGradientLoss
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.algorithms.amago.losses.world_model import WorldModelLoss
from yamame.algorithms.amago.policy import Policy
from yamame.algorithms.amago.value_metrics import value_metrics_by_gamma
from yamame.algorithms.base import Metrics, Replay
from yamame.data.batch import Batch
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import UserError, check_range
from yamame.nets.blocks import power_iteration
from yamame.nets.compute import CPU_FLOAT32, Compute
from yamame.nets.cuda_graph import CudaGraphUpdate
from yamame.nets.ops import load_generator_state, masked_mean
from yamame.nets.optimizer import ClippedAdamW


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """Losses and optimizer. Defaults are the paper's (appendix, table 4)."""

    td: TDLoss = field(default_factory=TDLoss)
    policy_gradient: PolicyGradientLoss = field(default_factory=PolicyGradientLoss)
    filtered_bc: FilteredBCLoss = field(default_factory=FilteredBCLoss)
    world_model: WorldModelLoss = field(default_factory=WorldModelLoss)
    learning_rate: float = 1e-4
    """Step size of AdamW after the warm-up."""
    lr_warmup_updates: int = 500
    """Updates over which the learning rate grows linearly from zero."""
    lr_decay_updates: int = 0
    """Updates by which the learning rate has fallen linearly to a tenth; 0: it stays constant, as in the paper."""
    weight_decay: float = 1e-3
    """Decoupled weight decay of all parameters."""
    max_grad_norm: float = 1.0
    """Largest global norm of the gradient."""
    tau: float = 0.003
    """Share of the online heads mixed into their slow copies at each update (tau)."""
    max_nonfinite_updates: int = 100
    """So many updates in a row with a loss or gradient that is not finite end the run."""

    def __post_init__(self) -> None:
        check_range(self, "learning_rate", "max_grad_norm", gt=0)
        check_range(self, "lr_warmup_updates", "lr_decay_updates", "weight_decay", ge=0)
        check_range(self, "tau", gt=0, le=1)
        check_range(self, "max_nonfinite_updates", ge=1)

    def lr_at(self, update: int) -> float:
        """Step size of an update, counted from 1."""
        warmup = min(1.0, update / max(1, self.lr_warmup_updates))
        decay = 1.0 - 0.9 * min(1.0, update / self.lr_decay_updates) if self.lr_decay_updates else 1.0
        return self.learning_rate * warmup * decay


class Learner:
    """Holds the optimizer; `update` is the method's one training step.

    On a GPU nothing in an update waits for the host: counters of skipped updates live beside the weights, and
    `check` reads them. Raises `UserError` for a world-model loss without the head that it teaches.

    With several `ranks`, each updates with a batch of its own and all come to the same: losses, gradients and
    statistics are means over the tokens of all batches, as if these were one. The gradient is summed once, when it is
    whole: an update's backward pass comes in pieces. Updates are not recorded then (`compute.cuda_graph`).
    """

    def __init__(
        self,
        agent: Agent,
        config: LearnerConfig,
        *,
        generator: torch.Generator,
        compute: Compute = CPU_FLOAT32,
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        if config.world_model.weight and agent.world_model is None:
            raise UserError("a world-model loss needs its head: make the agent with world_model=True")
        self.agent = agent.to(compute.device).train()
        self.model: nn.Module = self.agent
        self.config = config
        self.compute = compute
        self.distributed = distributed
        self.generator = generator
        """On the agent's device."""
        self.optimizer = ClippedAdamW(
            [p for p in agent.parameters() if p.requires_grad],
            weight_decay=config.weight_decay,
            max_grad_norm=config.max_grad_norm,
        )
        self.num_updates = 0
        self._drops_out = any(isinstance(module, nn.Dropout) and module.p > 0 for module in agent.modules())
        self._losses: dict[str, Loss] = {
            "td": config.td,
            "policy_gradient": config.policy_gradient,
            "filtered_bc": config.filtered_bc,
        }
        if config.world_model.weight:
            self._losses["world_model"] = config.world_model
        self._num_nonfinite = torch.zeros((), dtype=torch.int64, device=compute.device)
        self._consecutive_nonfinite = torch.zeros_like(self._num_nonfinite)
        compiled = torch.compile if compute.compile else _as_it_is
        self._encode, self._target_values = compiled(agent.encode), compiled(agent.target_values)
        self._losses_of_tokens = compiled(self._sum_losses)
        self._update: Callable[[Batch], Metrics] = self._update_eagerly
        if compute.cuda_graph and distributed.is_single_process:
            self._update = CudaGraphUpdate(self._update_eagerly, generator)

    @property
    def num_nonfinite(self) -> int:
        """Updates that changed nothing because their loss or gradient was not finite."""
        return int(self._num_nonfinite)

    @property
    def consecutive_nonfinite(self) -> int:
        """Those since the last one that did."""
        return int(self._consecutive_nonfinite)

    def policy(self, *, num_envs: int, generator: torch.Generator) -> Policy:
        """Return a policy with the present weights."""
        return Policy(self.agent, num_envs=num_envs, generator=generator)

    def batches(self, replay: Replay, count: int) -> Iterator[Batch]:
        """Yield batches of uniformly sampled, relabeled windows."""
        return replay.sampler.iter_batches(count)

    def update(self, batch: Batch) -> Metrics:
        """One gradient step on a batch; numbers worth logging (tensors: reading them is the caller's choice).

        An update whose loss or gradient is not finite changes no parameter and no statistic, and is counted. Dropout
        draws from PyTorch's own random stream, which begins anew at every update, so that updates can be repeated.
        """
        self.num_updates += 1
        self.optimizer.lr.fill_(self.config.lr_at(self.num_updates))
        if self._drops_out:
            torch.manual_seed((self.generator.initial_seed() + self.num_updates) % 2**63)
        return self._update(batch)

    def metrics(self) -> dict[str, float]:
        """Return the number of non-finite updates and what PopArt knows of the values of single discounts."""
        values = value_metrics_by_gamma(self.agent, self.config.td.reward_scale)
        return {"optim/nonfinite_updates": float(self.num_nonfinite), **values}

    def raise_if_diverged(self) -> None:
        """Raise `UserError` after `max_nonfinite_updates` of them in a row. Waits for the device."""
        if self.consecutive_nonfinite >= self.config.max_nonfinite_updates:
            raise UserError(
                f"{self.consecutive_nonfinite} updates in a row had a loss or gradient that is not finite: "
                "look for huge rewards or observations, or lower --learner.learning-rate"
            )

    def _update_eagerly(self, batch: Batch) -> Metrics:
        agent, config = self.agent, self.config
        batch = batch.to(self.compute.device, non_blocking=True)
        statistics = agent.running_stats()
        statistics_before = [value.clone() for value in statistics]
        power_iteration(agent.trajectory_encoder)
        features_NF = agent.features(batch)
        agent.update_normalizers(features_NF, batch, self.distributed)
        with self.compute.autocast():
            state_ND = self._encode(features_NF, batch)

        pieces = _chunks(len(batch.reward), self.compute.chunk_tokens)
        td_target_NG = self._td_target(batch, state_ND.detach(), pieces)
        agent.value_code.update(td_target_NG, batch.loss_mask, self.distributed)
        num_valid = self._num_valid(batch, state_ND.dtype)
        self.optimizer.zero_grad()
        total, state_gradient_ND, metrics = self._backward_heads(
            batch,
            state_ND.detach(),
            agent.value_code.normalize(td_target_NG),
            agent.observation_deltas(features_NF),
            pieces,
            num_valid,
        )
        state_ND.backward(state_gradient_ND)
        target_mean = masked_mean(td_target_NG[:, -1], batch.loss_mask) * (batch.loss_mask.sum() / num_valid)
        self.distributed.all_reduce_sum_(*self.optimizer.grads, total, target_mean, *metrics.values())

        norm, finite = self.optimizer.step(total)
        agent.update_targets(config.tau * finite.to(norm.dtype))
        for value, before in zip(statistics, statistics_before, strict=True):
            value.copy_(torch.where(finite, value, before))
        self._num_nonfinite += ~finite
        self._consecutive_nonfinite.add_(1).mul_(~finite)
        scale = config.td.reward_scale
        return metrics | {
            "optim/grad_norm": norm,
            "critic/td_target_mean": target_mean / scale,
            **{name: value / scale for name, value in agent.value_code.metrics().items()},
        }

    def _num_valid(self, batch: Batch, dtype: torch.dtype) -> Float[Tensor, ""]:
        """Valid tokens of all ranks; 1 where there are none."""
        count = batch.loss_mask.sum().to(dtype)
        self.distributed.all_reduce_sum_(count)
        return count.clamp(min=1)

    def _td_target(self, batch: Batch, state_ND: Float[Tensor, "N D"], pieces: Sequence[slice]) -> Float[Tensor, "N G"]:
        """Targets of all tokens, in units of scaled reward."""
        noise, mask = self.agent.target_actor.sample_noise(state_ND, self.generator), batch.action_mask
        with self.compute.autocast():
            values = [self._target_values(state_ND[piece], _part(mask, piece), _part(noise, piece)) for piece in pieces]
        return self.config.td.td_target(batch, torch.cat(values), self.agent.gammas_G, self.generator)

    def _backward_heads(
        self,
        batch: Batch,
        state_ND: Float[Tensor, "N D"],
        td_target_NG: Float[Tensor, "N G"],
        target_delta_NO: Float[Tensor, "N O"] | None,
        pieces: Sequence[slice],
        num_valid: Float[Tensor, ""],
    ) -> tuple[Float[Tensor, ""], Float[Tensor, "N D"], Metrics]:
        """(the loss, its gradient with respect to the states, metrics); the heads' own gradients are left in them.
        All are this rank's part of a sum over ranks.

        Heads look at each token alone, so they go through the tokens piece by piece: what they keep for the backward
        pass, most of an update's memory at long context, is that of one piece.
        """
        noise = self.agent.actor.sample_noise(state_ND, self.generator)
        total, gradients = state_ND.new_zeros(()), []
        metrics: Metrics = {}
        for piece in pieces:
            tokens, state = batch.slice_tokens(piece), state_ND[piece].requires_grad_()
            with self.compute.autocast():
                loss, measured = self._losses_of_tokens(
                    state, tokens, td_target_NG[piece], _part(noise, piece), _part(target_delta_NO, piece)
                )
            share = tokens.loss_mask.sum() / num_valid
            (loss * share).backward()
            gradients.append(state.grad if state.grad is not None else torch.zeros_like(state))
            total = total + loss.detach() * share
            metrics = {name: metrics.get(name, 0.0) + value * share for name, value in measured.items()}
        return total, torch.cat(gradients), metrics

    def _sum_losses(
        self,
        state_ND: Float[Tensor, "N D"],
        batch: Batch,
        td_target_NG: Float[Tensor, "N G"],
        noise_NGA: Float[Tensor, "N G A"] | None,
        target_delta_NO: Float[Tensor, "N O"] | None,
    ) -> tuple[Float[Tensor, ""], Metrics]:
        """The weighted sum of all losses, averaged over the valid tokens."""
        predictions = self.agent.predict(state_ND, batch, td_target_NG, noise_NGA, target_delta_NO)
        total = state_ND.new_zeros(())
        metrics: Metrics = {}
        for name, loss in self._losses.items():
            output = loss(batch, predictions)
            mean = masked_mean(output.per_token, batch.loss_mask)
            total = total + loss.weight * mean
            metrics |= {
                f"loss/{name}": mean.detach(),
                **output.metrics,
            }
        return total, metrics

    def broadcast_parameters(self) -> None:
        """Take over weights and statistics of the first rank; all ranks together, before the first update."""
        self.distributed.broadcast_(*self.agent.state_dict().values())

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on."""
        return {
            "model": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "updates": self.num_updates,
            "skipped": self.num_nonfinite,
            "consecutive_nonfinite": self.consecutive_nonfinite,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self.agent.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        load_generator_state(self.generator, state["generator"])
        self.num_updates = state["updates"]
        self._num_nonfinite.fill_(state["skipped"])
        self._consecutive_nonfinite.fill_(state["consecutive_nonfinite"])
        self.broadcast_parameters()


def _chunks(num_tokens: int, largest: int) -> list[slice]:
    """Slices of nearly equal size, at most `largest`, that make up all tokens."""
    count = -(-num_tokens // largest)
    size = -(-num_tokens // count)
    return [slice(begin, min(begin + size, num_tokens)) for begin in range(0, num_tokens, size)]


def _part(whole: Shaped[Tensor, "N ..."] | None, piece: slice) -> Shaped[Tensor, "n ..."] | None:
    return None if whole is None else whole[piece]


def _as_it_is(function: Any) -> Any:
    return function
