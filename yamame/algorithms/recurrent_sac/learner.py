"""`RecurrentSAC`: one update is targets, a step of the critics, a step of the actor and one of the temperature."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.base import Algorithm, Metrics
from yamame.algorithms.divergence import NonfiniteCounter, check_divergence
from yamame.algorithms.dropout import DropoutSeeds
from yamame.algorithms.optimizer import ClippedAdamW
from yamame.algorithms.recurrent_sac.agent import Encoders, RecurrentAgent
from yamame.data.batch import Batch
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import check_range
from yamame.nets.compute import CPU_FLOAT32, BoundedRunAhead, Compute
from yamame.nets.heads.actor import PolicyDistribution
from yamame.nets.heads.distributions import CategoricalPolicy
from yamame.nets.ops import load_generator_state


@dataclass(frozen=True, kw_only=True)
class RecurrentSACLearnerConfig:
    """Losses and optimizers. Defaults are those of Ni et al. 2022 where nothing else is said."""

    method: Literal["sac", "td3"] = "sac"
    """sac: soft actor-critic (Haarnoja et al. 2018), for discrete actions its discrete form (Christodoulou 2019). td3:
    twin delayed DDPG (Fujimoto et al. 2018), for continuous actions only."""
    learning_rate: float = 3e-4
    """Learning rate of Adam, for critics and actor."""
    temperature_learning_rate: float = 3e-4
    """SAC: learning rate of the logarithm of the temperature, which an update changes by about as much."""
    max_grad_norm: float = 10.0
    """Maximum global norm of the gradients of the critics and of the actor, each on its own (Ni et al.: no maximum)."""
    tau: float = 0.005
    """Target network update rate."""
    truncation_is_terminal: bool = True
    """Do not bootstrap at the time limit of a trial: the objective is the return within it, and time is an input of the
    networks. False: bootstrap there (Ni et al.)."""
    initial_temperature: float = 0.2
    """SAC: value of one nat of entropy, in units of reward."""
    automatic_temperature: bool = True
    """SAC: learn the temperature, so that the entropy of the policy approaches its target; off: it stays the initial
    one. The target of continuous actions is -1 nat for each dimension."""
    target_entropy_fraction: float = 0.7
    """SAC: target entropy of discrete actions as a fraction of that of uniform choices among the allowed ones."""
    target_entropy_anneal_updates: int = 0
    """SAC: updates over which that fraction falls linearly to `final_target_entropy_fraction`, since a policy whose
    entropy must stay high values all states by its own mistakes; 0: it stays (Ni et al.)."""
    final_target_entropy_fraction: float = 0.05
    """SAC: the fraction after `target_entropy_anneal_updates`."""
    exploration_noise: float = 0.1
    """TD3: standard deviation of the normal noise of actions in training."""
    target_noise: float = 0.2
    """TD3: standard deviation of the normal noise of the actions in targets."""
    target_noise_clip: float = 0.5
    """TD3: maximum size of that noise."""
    actor_interval: int = 2
    """TD3: updates of the critics for each update of the actor and the targets."""
    max_nonfinite_updates: int = 100
    """Consecutive non-finite updates before training aborts."""

    def __post_init__(self) -> None:
        check_range(self, "learning_rate", "temperature_learning_rate", "max_grad_norm", "initial_temperature", gt=0)
        check_range(self, "tau", gt=0, le=1)
        check_range(self, "target_entropy_fraction", "final_target_entropy_fraction", ge=0, le=1)
        check_range(self, "exploration_noise", "target_noise", "target_noise_clip", ge=0)
        check_range(self, "target_entropy_anneal_updates", ge=0)
        check_range(self, "actor_interval", "max_nonfinite_updates", ge=1)

    def target_entropy_fraction_at(self, update: int) -> float:
        """Return the fraction of an update, counted from 1."""
        if not self.target_entropy_anneal_updates:
            return self.target_entropy_fraction
        progress = min(1.0, update / self.target_entropy_anneal_updates)
        return self.target_entropy_fraction + progress * (
            self.final_target_entropy_fraction - self.target_entropy_fraction
        )


def td_target(
    batch: Batch, value_N: Float[Tensor, "N"], *, gamma: float, truncation_is_terminal: bool
) -> Float[Tensor, "N"]:
    """Return y_t = r_t + gamma V(s_(t+1)), without V after the end of a trial. Defined where `loss_mask` is true."""
    terminal_N = batch.terminated | batch.truncated if truncation_is_terminal else batch.terminated
    return batch.reward.to(value_N.dtype) + gamma * torch.where(terminal_N, 0.0, value_N.roll(-1))


def boltzmann_cross_entropy(
    policy: CategoricalPolicy, q_NA: Float[Tensor, "N A"], temperature: Float[Tensor, ""]
) -> Float[Tensor, "N"]:
    """Return the cross-entropy of the policy to softmax(Q(s, .) / temperature), which maximizes Q and entropy bonus."""
    log_softmax_NA = policy.log_softmax_NGA[:, 0]
    if policy.allowed_N1A is not None:
        forbidden_NA = ~policy.allowed_N1A[:, 0]
        q_NA, log_softmax_NA = q_NA.masked_fill(forbidden_NA, -torch.inf), log_softmax_NA.masked_fill(forbidden_NA, 0.0)
    return -((q_NA / temperature).softmax(1) * log_softmax_NA).sum(1)


class RecurrentSAC(Algorithm):
    """Updates the agent by SAC, discrete SAC or TD3 over windows of trials.

    The critics minimize (Q_k(s, a) - y)^2 with y = r + gamma (min_k Q'_k(s', a') + temperature * H(pi(s'))), with the
    entropy H. The actor maximizes min_k Q_k(s, a_pi) + temperature * H(pi(s)). A single discrete choice has exact
    expectations over the actions, and its actor follows the cross-entropy to the policy that maximizes this,
    softmax(min_k Q_k / temperature). The entropy of discrete actions is exact, that of continuous ones exact but for
    the tanh, for which a sample is taken. TD3 has no entropy, target actions with clipped noise, and an actor that is
    updated less often.

    Differs from Ni et al.: the actor of a single choice, since the gradient of the expectation vanishes where the
    policy gives the better action a probability near 0, so that it stays there; actor and critics are
    updated at the same weights instead of after each other, so that SAC encodes a batch three times (with shared
    encoders twice); inputs are normalized; gradients are clipped. Heads are computed in float32 with any
    `compute.dtype`, since values are not normalized: those near 100 would differ by steps of 0.5 in bfloat16.

    An update makes no host synchronization, and one whose loss or gradient is not finite changes nothing but its
    counter. With several ranks, losses, gradients and statistics are means over the tokens of all ranks' batches.
    Encoders are compiled if `compute.compile`; updates are not captured as CUDA graphs.

    The agent is moved to `compute.device`, on which `generator` is: the random stream of actions.
    """

    def __init__(
        self,
        agent: RecurrentAgent,
        config: RecurrentSACLearnerConfig,
        *,
        generator: torch.Generator,
        compute: Compute = CPU_FLOAT32,
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        self.agent = agent.to(compute.device).train()
        self.model: nn.Module = self.agent
        self.config = config
        self.compute = compute
        self.distributed = distributed
        self.generator = generator
        self.critic_optimizer = ClippedAdamW(
            agent.critic_parameters(), weight_decay=0.0, max_grad_norm=config.max_grad_norm
        )
        self.actor_optimizer = ClippedAdamW(
            agent.actor_parameters(), weight_decay=0.0, max_grad_norm=config.max_grad_norm
        )
        self.temperature_optimizer = ClippedAdamW(
            [agent.log_temperature], weight_decay=0.0, max_grad_norm=config.max_grad_norm
        )
        for name, optimizer in self._optimizers.items():
            rate = config.temperature_learning_rate if name == "temperature" else config.learning_rate
            optimizer.lr.fill_(rate)
        self.num_updates = 0
        self._dropout_seeds = DropoutSeeds(agent, generator)
        self._nonfinite = NonfiniteCounter(compute.device)
        self._last_batch: Batch | None = None
        self._encode: Callable[[Encoders, Tensor, Batch], Tensor] = _encode
        if compute.compile:
            self._encode = torch.compile(_encode)
        self._run_ahead = BoundedRunAhead(compute.device)

    @property
    def _optimizers(self) -> dict[str, ClippedAdamW]:
        return {
            "critic": self.critic_optimizer,
            "actor": self.actor_optimizer,
            "temperature": self.temperature_optimizer,
        }

    @override
    def update(self, batch: Batch) -> Metrics:
        self.num_updates += 1
        self._last_batch = batch
        self._dropout_seeds.set(self.num_updates)
        metrics = self._update(batch.to(self.compute.device, non_blocking=True))
        self._run_ahead.wait()
        return metrics

    def _update(self, batch: Batch) -> Metrics:
        agent, config = self.agent, self.config
        updates_actor = config.method == "sac" or self.num_updates % config.actor_interval == 0
        # 1. tokens -> states of critics and actor; statistics are put back at the end if the update is not finite
        statistics = agent.statistics()
        before = [value.clone() for value in statistics]
        features_NF = agent.features(batch)
        agent.update_statistics(features_NF, batch, self.distributed)
        critic_ND = self._states(agent.value_encoders, features_NF, batch)
        actor_ND = critic_ND.detach()
        if updates_actor and not agent.config.shared:
            actor_ND = self._states(agent.encoders, features_NF, batch)
        total = batch.loss_mask.sum().to(critic_ND.dtype)
        self.distributed.all_reduce_sum_(total)

        def mean(value_N: Float[Tensor, "N"]) -> Float[Tensor, ""]:
            """This rank's term of the mean over the transitions of all ranks."""
            return torch.where(batch.loss_mask, value_N, 0.0).sum() / total.clamp(min=1)

        # 2. losses: the actor's has no gradient to critics, and the temperature's none to either
        policy = agent.actor(actor_ND, batch.action_mask)
        target_N = td_target(
            batch,
            self._next_value(features_NF, batch, policy),
            gamma=agent.config.acting_gamma,
            truncation_is_terminal=config.truncation_is_terminal,
        )
        q_NK = agent.action_values(critic_ND, batch.action)
        critic_loss = mean((q_NK - target_N[:, None]).square().mean(1))
        losses = {"loss/critic": critic_loss}
        metrics = {"critic/td_target_mean": mean(target_N), "critic/q_mean": mean(q_NK.detach().mean(1))}
        if updates_actor:
            actor_losses, actor_metrics = self._actor_losses(batch, critic_ND, policy, mean)
            losses, metrics = losses | actor_losses, metrics | actor_metrics

        # 3. one step of each optimizer; on the device, an update that is not finite is undone
        for optimizer in self._optimizers.values():
            optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        metrics |= {name: loss.detach() for name, loss in losses.items()}
        stepped = {name: each for name, each in self._optimizers.items() if each.grads}
        gradients = [
            gradient for optimizer in stepped.values() for gradient in optimizer.grads_to_sum(self.distributed)
        ]
        self.distributed.all_reduce_sum_(*gradients, *metrics.values())
        everything = nn.utils.get_total_norm(gradients, foreach=True)
        finite = torch.isfinite(everything + metrics["loss/critic"])
        for name, optimizer in stepped.items():
            norm, _ = optimizer.step(everything + metrics["loss/critic"])
            if name != "temperature":
                metrics[f"optim/grad_norm_{name}"] = norm
        if updates_actor:
            agent.update_targets(config.tau * finite.to(everything.dtype))
        for value, old in zip(statistics, before, strict=True):
            value.copy_(torch.where(finite, value, old))
        self._nonfinite.count(finite)
        return metrics

    def _states(self, encoders: Encoders, features_NF: Float[Tensor, "N F"], batch: Batch) -> Float[Tensor, "N D"]:
        """Return the states of all tokens, in float32, computed in the type of `compute`."""
        with self.compute.autocast():
            return self._encode(encoders, features_NF, batch)

    @torch.no_grad()
    def _next_value(
        self, features_NF: Float[Tensor, "N F"], batch: Batch, policy: PolicyDistribution
    ) -> Float[Tensor, "N"]:
        """Return the value of the policy at every token by the target critics, with the bonus of its entropy."""
        agent, config = self.agent, self.config
        state_ND = self._states(agent.target_encoders, features_NF, batch)
        if config.method == "sac":
            noise = self._sample_noise(state_ND)
            value_N = agent.policy_values(state_ND, policy, noise, target=True)
            return value_N + agent.log_temperature.exp() * policy.entropy(noise)[:, 0]  # type: ignore[arg-type]
        assert agent.target_actor is not None
        actor_ND = state_ND
        if agent.target_actor_encoders is not None:
            actor_ND = self._states(agent.target_actor_encoders, features_NF, batch)
        action_NA: Tensor = agent.target_actor(actor_ND).mode()[:, 0]
        noise_NA = torch.randn(
            action_NA.shape, generator=self.generator, dtype=action_NA.dtype, device=action_NA.device
        )
        clip = config.target_noise_clip
        action_NA = (action_NA + (config.target_noise * noise_NA).clamp(-clip, clip)).clamp(-1.0, 1.0)
        return agent.action_values(state_ND, action_NA, target=True).amin(1)

    def _actor_losses(
        self,
        batch: Batch,
        critic_ND: Float[Tensor, "N D"],
        policy: PolicyDistribution,
        mean: Callable[[Float[Tensor, "N"]], Float[Tensor, ""]],
    ) -> tuple[Metrics, Metrics]:
        """Return the losses of actor and temperature, and metrics."""
        agent, config = self.agent, self.config
        if config.method == "td3":
            return {"loss/actor": -mean(agent.policy_values(critic_ND, policy, None, target=False))}, {}
        noise = self._sample_noise(critic_ND)
        temperature = agent.log_temperature.exp().detach()
        entropy_N = policy.entropy(noise)[:, 0]  # type: ignore[arg-type]
        if isinstance(policy, CategoricalPolicy):
            cross_entropy_N = boltzmann_cross_entropy(policy, agent.choice_values(critic_ND), temperature)
            losses = {"loss/actor": mean(cross_entropy_N)}
        else:
            value_N = agent.policy_values(critic_ND, policy, noise, target=False)
            losses = {"loss/actor": -mean(value_N + temperature * entropy_N)}
        target_N = self._target_entropy(batch).to(entropy_N.dtype)
        metrics = {
            "actor/entropy": mean(entropy_N.detach()),
            "actor/target_entropy": mean(target_N),
            "actor/temperature": temperature * mean(torch.ones_like(entropy_N)),
        }
        if config.automatic_temperature:
            losses["loss/temperature"] = agent.log_temperature * mean(entropy_N.detach() - target_N)
        return losses, metrics

    def _target_entropy(self, batch: Batch) -> Float[Tensor, "N"]:
        """Return the target of the policy's entropy at each token, in nats."""
        if self.agent.action_choices:
            return self.config.target_entropy_fraction_at(self.num_updates) * self.agent.max_entropy(batch)
        return torch.full_like(batch.reward, -float(self.agent.actor.action_size))

    def _sample_noise(self, state_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N G _"] | None:
        noise: Tensor | None = self.agent.actor.sample_noise(state_ND, self.generator)  # type: ignore[operator]
        return noise

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
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._optimizers.items()},
            "generator": self.generator.get_state(),
            "updates": self.num_updates,
            **self._nonfinite.state_dict(),
        }

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.agent.load_state_dict(state["model"])
        for name, optimizer in self._optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        load_generator_state(self.generator, state["generator"])
        self.num_updates = state["updates"]
        self._nonfinite.load_state_dict(state)
        self.broadcast_parameters()


def _encode(encoders: Encoders, features_NF: Float[Tensor, "N F"], batch: Batch) -> Float[Tensor, "N D"]:
    state_ND: Tensor = encoders(features_NF, batch)
    return state_ND
