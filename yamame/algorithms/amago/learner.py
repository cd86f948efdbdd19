"""`Learner`: one update is statistics, targets, losses, one backward pass, one optimizer step."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.amago.agent import OWN_OPTIMIZER, Agent
from yamame.algorithms.amago.gradient_norms import gradient_norms
from yamame.algorithms.amago.heads import Heads
from yamame.algorithms.amago.heads_learner import HeadsLearner
from yamame.algorithms.amago.losses.base import Loss
from yamame.algorithms.amago.losses.filtered_bc import FilteredBCLoss
from yamame.algorithms.amago.losses.policy_gradient import PolicyGradientLoss
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.algorithms.amago.losses.world_model import WorldModelLoss
from yamame.algorithms.amago.novelty import NoveltyLearner
from yamame.algorithms.amago.separate_heads import UPDATE_INTERVAL, SeparateLearner
from yamame.algorithms.base import Algorithm, Metrics
from yamame.algorithms.divergence import NonfiniteCounter, check_divergence
from yamame.algorithms.dropout import DropoutSeeds
from yamame.algorithms.optimizer import ClippedAdamW, lr_decay, wide_layer_lr_scales
from yamame.data.batch import Batch
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import UserError, check_range
from yamame.nets.blocks import power_iteration, sigma_layers
from yamame.nets.compute import CPU_FLOAT32, BoundedRunAhead, Compute, CudaGraphUpdate
from yamame.nets.ops import load_generator_state, masked_mean

_MAX_GAMMAS = 6
"""Maximum number of gammas with metrics of their own."""
GRADIENT_NORM_INTERVAL = 500
"""Updates between measurements of the gradient norm of each loss, which take as long as a few updates."""


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """Losses and optimizer. Paper: appendix, table 4."""

    td: TDLoss = field(default_factory=TDLoss)
    policy_gradient: PolicyGradientLoss = field(default_factory=PolicyGradientLoss)
    filtered_bc: FilteredBCLoss = field(default_factory=FilteredBCLoss)
    world_model: WorldModelLoss = field(default_factory=WorldModelLoss)
    extra_losses: tuple[Loss, ...] = ()
    """Further losses. The four above have fields of their own, so that their flags are the same in every recipe."""
    learning_rate: float = 1e-4
    """Learning rate of AdamW after the warm-up."""
    lr_warmup_updates: int = 500
    """Updates of the linear warm-up."""
    lr_decay_updates: int = 0
    """Updates over which the learning rate decays linearly to a tenth; 0: constant (paper)."""
    wide_layer_inputs: int = 0
    """Linear layers of the timestep encoder with N inputs, more than these, have a learning rate of these / N times the
    others': with one learning rate, an observation of many numbers makes their outputs move far in a step. 0: one
    learning rate (paper)."""
    weight_decay: float = 1e-3
    """Decoupled weight decay: a step multiplies weights by 1 - learning rate * weight decay, but not those of
    `agent.separate_gamma` and of the policy of novelty."""
    max_grad_norm: float = 1.0
    """Maximum global norm of the gradient."""
    tau: float = 0.003
    """Target network update rate."""
    averaging_rate: float = 0.0
    """Update rate of moving averages of the weights, with which the policy acts: returns vary less from update to
    update. 0: the present weights act (paper)."""
    frozen: tuple[Literal["timestep_encoder", "trajectory_encoder"], ...] = ()
    """Encoders that keep their weights and statistics, for runs that start from another one (`init_from`)."""
    max_nonfinite_updates: int = 100
    """Consecutive non-finite updates before training aborts."""

    def __post_init__(self) -> None:
        check_range(self, "learning_rate", "max_grad_norm", gt=0)
        check_range(self, "lr_warmup_updates", "lr_decay_updates", "wide_layer_inputs", "weight_decay", ge=0)
        check_range(self, "tau", gt=0, le=1)
        check_range(self, "averaging_rate", ge=0, le=1)
        check_range(self, "max_nonfinite_updates", ge=1)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """All losses of the sum; the world model only with a weight."""
        world_model = (self.world_model,) if self.world_model.weight else ()
        return (self.td, self.policy_gradient, self.filtered_bc, *world_model, *self.extra_losses)

    @property
    def is_pessimistic(self) -> bool:
        """Whether targets are minima over critics, as configured. Without a policy gradient they are means."""
        return self.td.critic_reduction == "min" and self.policy_gradient.weight > 0

    def lr_at(self, update: int) -> float:
        """Return the learning rate of an update, counted from 1."""
        warmup = min(1.0, update / max(1, self.lr_warmup_updates))
        return self.learning_rate * warmup * lr_decay(update, self.lr_decay_updates)


class Learner(Algorithm):
    """Updates the agent.

    An update makes no host synchronization, but for novelty: counters of non-finite updates are tensors, which
    `raise_if_diverged` reads. With several ranks, losses, gradients and statistics are means over the tokens of all
    ranks' batches; the gradient is all-reduced once, and updates are not captured as CUDA graphs.

    Args:
        agent: Networks, which are moved to `compute.device`.
        config: Losses and optimizer.
        generator: Samples the actions and subsets of critics in targets and losses; on `compute.device`.
        compute: Device, precision and compilation.
        distributed: This process among the learners.

    Raises:
        UserError: If there is a world-model loss, or an averaging rate, and the agent was made without its part.
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
        if config.averaging_rate and agent.averaged is None:
            raise UserError("an averaging rate needs moving averages: make the agent with averaged=True")
        self.agent = agent.to(compute.device).train()
        for name in config.frozen:
            getattr(agent, name).requires_grad_(False)
        self.model: nn.Module = self.agent
        self.config = config
        self.compute = compute
        self.distributed = distributed
        self.generator = generator
        parameters = [
            p for name, p in agent.named_parameters() if p.requires_grad and not name.startswith(OWN_OPTIMIZER)
        ]
        self.optimizer = ClippedAdamW(
            parameters,
            weight_decay=config.weight_decay,
            max_grad_norm=config.max_grad_norm,
            lr_scales=wide_layer_lr_scales(agent.timestep_encoder, parameters, config.wide_layer_inputs),
        )
        self._targets, self._averages = self.agent.targets(), self.agent.averages()
        self._running_stats = self.agent.running_stats()
        learned = self.agent.trajectory_encoder if "trajectory_encoder" not in config.frozen else None
        self._sigma_layers = [] if learned is None else sigma_layers(learned)
        self.num_updates = 0
        self._dropout_seeds = DropoutSeeds(agent, generator)
        self._losses = config.losses
        self._gradient_norms: Metrics = {}
        self._nonfinite = NonfiniteCounter(compute.device)
        self._last_batch: Batch | None = None
        self._novelty: NoveltyLearner | None = None
        if agent.novelty is not None:
            self._novelty = NoveltyLearner(
                agent.novelty, agent.timestep_encoder, generator=generator, distributed=distributed
            )
        self._heads = HeadsLearner(
            agent,
            td=config.td,
            losses=config.losses,
            is_pessimistic=config.is_pessimistic,
            policy_gradient=config.policy_gradient.weight > 0 or bool(config.extra_losses),
            compute=compute,
        )
        self._separate: SeparateLearner | None = None
        if agent.separate is not None:
            self._separate = SeparateLearner(
                agent.separate,
                td=config.td,
                policy_gradient=config.policy_gradient,
                filtered_bc=config.filtered_bc,
                compute=compute,
                max_grad_norm=config.max_grad_norm,
                distributed=distributed,
            )
        self._encode: Callable[..., Tensor] = torch.compile(agent.encode) if compute.compile else agent.encode
        self._run_ahead = BoundedRunAhead(compute.device)
        self._update: Callable[[Batch], Metrics] = self._update_eagerly
        self._update_all: Callable[[Batch], Metrics] = partial(self._update_eagerly, with_separate=True)
        if compute.cuda_graph and distributed.is_single_process:
            self._update = CudaGraphUpdate(self._update, generator)
            self._update_all = CudaGraphUpdate(self._update_all, generator)

    @property
    def _optimizers(self) -> Sequence[ClippedAdamW]:
        return [self.optimizer] if self._separate is None else [self.optimizer, self._separate.optimizer]

    @property
    def num_nonfinite(self) -> int:
        """Number of updates that were skipped because their loss or gradient was not finite."""
        return self._nonfinite.total

    @property
    def consecutive_nonfinite(self) -> int:
        """Number of such updates since the last finite one."""
        return self._nonfinite.consecutive

    @override
    def update(self, batch: Batch) -> Metrics:
        """Make one gradient step; return metrics as tensors.

        An update whose loss or gradient is not finite changes no parameter and no statistic, and is counted. PyTorch's
        global random state, from which dropout samples, is seeded at every update, so that updates are reproducible.
        """
        self.num_updates += 1
        self._last_batch = batch
        for optimizer in self._optimizers:
            optimizer.lr.fill_(self.config.lr_at(self.num_updates))
        self._dropout_seeds.set(self.num_updates)
        has_separate = self._separate is not None and self.num_updates % UPDATE_INTERVAL == 0
        metrics = (self._update_all if has_separate else self._update)(batch)
        if self.num_updates % GRADIENT_NORM_INTERVAL == 1:  # after it: before the first one there are no statistics
            self._dropout_seeds.set(self.num_updates)
            self._gradient_norms = self._measure_gradient_norms(batch)
        if self._novelty is not None and self._novelty.is_due(batch, self.num_updates):
            metrics = metrics | self._novelty.update(batch.to(self.compute.device, non_blocking=True))
        self._run_ahead.wait()
        return metrics

    @override
    def metrics(self) -> dict[str, float]:
        """Return the number of non-finite updates, the value code's metrics of some gammas, and gradient norms.

        With PopArt: `critic/td_target_mean_gamma_<gamma>` and `critic/popart_std_gamma_<gamma>`, in units of reward.
        The gradient norms of the losses, `optim/grad_norm_<loss>`, are at most `GRADIENT_NORM_INTERVAL` updates old.
        """
        agent, scale = self.agent, self.config.td.reward_scale
        shown = np.linspace(0, len(agent.gammas) - 1, min(len(agent.gammas), _MAX_GAMMAS)).round().astype(int)
        heads: list[tuple[Heads, Iterable[int]]] = [(agent, shown)]
        heads += [] if agent.separate is None else [(agent.separate, (0,))]
        values: dict[str, float] = {}
        for part, indices in heads:
            gammas = part.gammas_G.tolist()
            for name, row_G in part.value_code.metrics_by_gamma().items():
                row = (row_G / scale).tolist()
                values |= {f"{name}_gamma_{gammas[index]:.6g}": row[index] for index in indices}
        norms = {name: float(norm) for name, norm in self._gradient_norms.items()}
        novelty = {} if self._novelty is None else self._novelty.metrics()
        return {"optim/nonfinite_updates": float(self.num_nonfinite), **values, **norms, **novelty}

    @override
    def raise_if_diverged(self) -> None:
        """Raise `UserError` after `max_nonfinite_updates` consecutive non-finite updates. Synchronizes the device."""
        check_divergence(self.consecutive_nonfinite, self.config.max_nonfinite_updates, self._last_batch)

    def _update_eagerly(self, batch: Batch, *, with_separate: bool = False) -> Metrics:
        """Make one gradient step. Everything that it changes is a persistent tensor, so that it can be captured."""
        agent, config = self.agent, self.config
        batch = batch.to(self.compute.device, non_blocking=True)
        # 1. tokens -> states; the statistics that move here are put back at the end if the update is not finite
        stats_before = [value.clone() for value in self._running_stats]
        power_iteration(self._sigma_layers)
        features_NF = agent.features(batch)
        agent.update_normalizers(
            features_NF, batch, self.distributed, of_inputs="timestep_encoder" not in config.frozen
        )
        with self.compute.autocast():
            state_ND = self._encode(features_NF, batch)

        # 2. targets of the critics, from the target networks, and the statistics by which they are normalized (PopArt)
        target_noise = agent.target_actor.sample_noise(state_ND, self.generator)
        td_target_NG = self._heads.td_target(batch, state_ND.detach(), target_noise, self.generator)
        agent.value_code.update(td_target_NG, batch.loss_mask, self.distributed)
        num_transitions = batch.loss_mask.sum().to(state_ND.dtype)
        self.distributed.all_reduce_sum_(num_transitions)
        num_transitions = num_transitions.clamp(min=1)
        # 3. backward through the heads, chunk by chunk, and then once through the encoders
        self.optimizer.zero_grad()
        noise = agent.policy_noise(state_ND, self.generator)
        total, state_gradient_ND, metrics = self._heads.backward(
            batch,
            state_ND.detach(),
            agent.value_code.normalize(td_target_NG),
            agent.observation_deltas(features_NF),
            noise=noise,
            num_transitions=num_transitions,
        )
        if state_ND.requires_grad:  # not if both encoders are frozen
            state_ND.backward(state_gradient_ND)
        target_mean = masked_mean(td_target_NG[:, -1], batch.loss_mask) * (batch.loss_mask.sum() / num_transitions)
        grads = self.optimizer.grads_to_sum(self.distributed)
        self.distributed.all_reduce_sum_(*grads, total, target_mean, *metrics.values())

        # 4. one step for all parameters, then what follows them; on the device, an update that is not finite is undone
        norm, finite = self.optimizer.step(total)
        self._targets.update(config.tau * finite.to(norm.dtype))
        if finite.is_cuda or not finite:  # a GPU would have to wait for the value
            for value, before in zip(self._running_stats, stats_before, strict=True):
                value.copy_(torch.where(finite, value, before))
        if self._averages is not None:
            self._averages.update(config.averaging_rate * finite.to(norm.dtype))
        agent.absorb_value_scale()
        self._nonfinite.count(finite)
        if with_separate and self._separate is not None:
            metrics |= self._separate.update(
                batch,
                state_ND.detach(),
                target_noise_NGA=target_noise,
                noise_NGA=noise,
                generator=self.generator,
                num_transitions=num_transitions,
                tau=min(1.0, UPDATE_INTERVAL * config.tau),
                averaging_rate=min(1.0, UPDATE_INTERVAL * config.averaging_rate),
            )
        scale = config.td.reward_scale
        return metrics | {
            "optim/grad_norm": norm,
            "critic/td_target_mean": target_mean / scale,
            **{name: value / scale for name, value in agent.value_code.metrics().items()},
            **agent.value_code.unitless_metrics(),
        }

    def _measure_gradient_norms(self, batch: Batch) -> Metrics:
        """Return the norm of the gradient of each loss. The random streams of updates are not used."""
        agent, batch = self.agent, batch.to(self.compute.device, non_blocking=True)
        generator = torch.Generator(self.compute.device).manual_seed(self.num_updates)
        features_NF = agent.features(batch)
        with self.compute.autocast():
            state_ND = agent.encode(features_NF, batch)
        target_noise = agent.target_actor.sample_noise(state_ND, generator)
        td_target_NG = self._heads.td_target(batch, state_ND.detach(), target_noise, generator)
        return gradient_norms(
            agent,
            self._losses,
            self.optimizer.parameters,
            batch=batch,
            features_NF=features_NF,
            state_ND=state_ND,
            td_target_NG=agent.value_code.normalize(td_target_NG),
            chunks=self._heads.chunks(batch),
            generator=generator,
            compute=self.compute,
        )

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
            **({} if self._separate is None else {"separate_optimizer": self._separate.optimizer.state_dict()}),
            **({} if self._novelty is None else {"novelty_optimizer": self._novelty.state_dict()}),
            "gradient_norms": {name: float(norm) for name, norm in self._gradient_norms.items()},
        }

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.agent.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        load_generator_state(self.generator, state["generator"])
        self.num_updates = state["updates"]
        self._nonfinite.load_state_dict(state)
        if self._separate is not None:
            self._separate.optimizer.load_state_dict(state["separate_optimizer"])
        if self._novelty is not None:
            self._novelty.load_state_dict(state["novelty_optimizer"])
        self._gradient_norms = {name: torch.tensor(norm) for name, norm in state["gradient_norms"].items()}
        self.broadcast_parameters()
