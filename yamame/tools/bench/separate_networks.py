"""The learner of recurrent off-policy agents with separate networks, to compare speeds (paper, figures 6 and 29).

Actor and critics have a timestep encoder and a GRU each, and both have target copies, as in Ni et al. 2022; one gamma,
two critics, two optimizers. An update encodes the batch four times, where the shared encoder of the method encodes it
once.
"""

import copy
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.losses.td import TargetValues, TDLoss
from yamame.algorithms.amago.optimizer import ClippedAdamW
from yamame.algorithms.base import build_model
from yamame.data.batch import Batch
from yamame.nets.compute import Compute
from yamame.nets.ops import masked_mean
from yamame.tools.bench.measure import BenchResult, time_updates
from yamame.tools.bench.options import BatchOptions, pack_windows, run_config
from yamame.training.components import resolve_run_compute

SEPARATE_GRU = "separate-gru"
TAU, LEARNING_RATE = 0.005, 3e-4


class SeparateNetworksLearner:
    """Updates an actor and critics that share nothing, by the gradients of an actor loss and a TD loss.

    The agents are used in part: `actor` without its critics, `critic` without its actor.
    """

    def __init__(self, actor: Agent, critic: Agent, *, generator: torch.Generator, compute: Compute) -> None:
        self.compute, self.generator, self.td = compute, generator, TDLoss()
        self.actor, self.critic = actor.to(compute.device), critic.to(compute.device)
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        encoders = ("timestep_encoder", "trajectory_encoder")
        self._actor_optimizer = _optimizer(self.actor, (*encoders, "actor"))
        self._critic_optimizer = _optimizer(self.critic, (*encoders, "critic"))

    def update(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Make one step of both; return the TD loss and the actor loss."""
        batch = batch.to(self.compute.device)
        with self.compute.autocast():
            with torch.no_grad():
                next_policy = self.target_actor.actor(_encode(self.target_actor, batch))
                next_state = _encode(self.target_critic, batch)
                next_q = self.target_critic.critic.policy_q(next_state, next_policy, None, self.critic.value_code)
            target_NG = self.td.td_target(batch, TargetValues(next_q, None, None), self.critic.gammas_G, self.generator)
            state_ND = _encode(self.critic, batch)
            all_q = self.critic.critic(state_ND).squeeze(-1)
            q_NKG = all_q.gather(3, batch.action.view(-1, 1, 1, 1).expand(*all_q.shape[:3], 1)).squeeze(-1)
            td_loss = masked_mean((q_NKG - target_NG[:, None]).square().mean((1, 2)), batch.loss_mask)
        _step(self._critic_optimizer, td_loss)
        with self.compute.autocast():
            policy = self.actor.actor(_encode(self.actor, batch))
            q_policy = self.critic.critic.policy_q(state_ND.detach(), policy, None, self.critic.value_code)
            actor_loss = -masked_mean(q_policy.amin(1).mean(1), batch.loss_mask)
        _step(self._actor_optimizer, actor_loss)
        with torch.no_grad():
            for target, online in ((self.target_actor, self.actor), (self.target_critic, self.critic)):
                torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), TAU)
        return td_loss.detach(), actor_loss.detach()


@dataclass(frozen=True, kw_only=True)
class SeparateNetworksBench(BatchOptions):
    """Updates per second of separate recurrent networks on one synthetic batch, as those of `LearnerBench`."""

    encoder: Literal["separate-gru"] = "separate-gru"  # type: ignore[assignment]

    def run(self) -> BenchResult:
        """Run the benchmark."""
        self.use_threads()
        learner = self.make_learner()
        compute, device = learner.compute, learner.compute.device
        batch = pack_windows(self, run_config(self.as_shared(), self.network.task(self.context)).replay).to(device)
        self.print_warmup(compute, "update")
        times = time_updates(lambda: learner.update(batch), warmup=self.warmup, repeats=self.repeats, device=device)
        transitions = int(batch.loss_mask.sum())
        samples = {
            "updates_per_second": [1.0 / each for each in times.seconds],
            "tokens_per_second": [transitions / each for each in times.seconds],
        }
        scalars = {
            "tokens_per_update": transitions,
            "warmup_seconds": times.warmup_seconds,
            "peak_memory_bytes": times.peak_memory_bytes,
        }
        return self.result("learner", compute, samples, scalars)

    def make_learner(self) -> SeparateNetworksLearner:
        """Return the learner, with networks as wide and as deep as those of the shared GRU."""
        config = run_config(self.as_shared(), self.network.task(self.context))
        assert isinstance(config.algorithm, AMAGOConfig)
        agent = config.algorithm.agent
        agent = replace(agent, multi_gamma=False, popart=False, critic=replace(agent.critic, num_critics=2))
        algorithm = replace(config.algorithm, agent=agent)
        envs = config.env.build(1, self.seed)
        task = config.env.task_spec(envs)
        envs.close()
        actor, critic = (
            build_model(algorithm, task, context_length=self.context, seed=seed) for seed in (self.seed, self.seed + 1)
        )
        assert isinstance(actor, Agent) and isinstance(critic, Agent)
        compute = resolve_run_compute(config)
        generator = torch.Generator(compute.device).manual_seed(self.seed)
        return SeparateNetworksLearner(actor, critic, generator=generator, compute=replace(compute, compile=False))

    def as_shared(self) -> BatchOptions:
        """Return the same options for the shared GRU."""
        return BatchOptions(**{**vars(self), "encoder": "gru"})


def _encode(agent: Agent, batch: Batch) -> Tensor:
    return agent.encode(agent.features(batch), batch)


def _optimizer(agent: Agent, modules: tuple[str, ...]) -> ClippedAdamW:
    parameters = [parameter for name in modules for parameter in getattr(agent, name).parameters()]
    optimizer = ClippedAdamW(parameters, weight_decay=0.0, max_grad_norm=1.0)
    optimizer.lr.fill_(LEARNING_RATE)
    return optimizer


def _step(optimizer: ClippedAdamW, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step(loss.detach())
