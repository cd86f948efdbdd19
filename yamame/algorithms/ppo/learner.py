"""`PPO`: values and advantages of the newest trials, then clipped updates in several passes over them."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from typing_extensions import override

from yamame.algorithms.base import Algorithm, Metrics, Replay
from yamame.algorithms.divergence import NonfiniteCounter, check_divergence
from yamame.algorithms.on_policy import Annotations, NewTrials, PassesConfig
from yamame.algorithms.optimizer import ClippedAdamW, lr_decay
from yamame.algorithms.ppo.advantages import RunningMoments, generalized_advantages
from yamame.algorithms.ppo.agent import PPOAgent
from yamame.algorithms.ppo.losses import ValueErrorKind, policy_loss, value_loss
from yamame.data.batch import ACTING_LOG_PROB, Batch
from yamame.errors import check_range
from yamame.nets.blocks import power_iteration, sigma_layers
from yamame.nets.compute import CPU_FLOAT32, BoundedRunAhead, Compute
from yamame.nets.ops import load_generator_state, masked_mean

LOG_PROB, VALUE, ADVANTAGE, VALUE_TARGET = "log_prob_before", "value_before", "advantage", "value_target"
"""Keys of `Batch.extras`: what was computed before the updates of an iteration."""
_SPREAD_RATE = 0.01
"""Update rate, once an iteration, of the variance of value targets that `min_advantage_scale` refers to."""
_POWER_ITERATIONS = 10
"""Power iterations before the updates of an iteration, which all use the same estimates of spectral norms."""
_KL_MARGIN = 1.5
"""Multiple of `target_kl` at which the updates of an iteration end."""
TrainingRewards = Callable[[Replay, NewTrials], Mapping[int, Shaped[np.ndarray, "_"]]]
"""Called once an iteration; returns the rewards of each of its trials that advantages are computed from."""


@dataclass(frozen=True, kw_only=True)
class PPOLearnerConfig:
    """Losses, passes and optimizer."""

    passes: PassesConfig = field(default_factory=PassesConfig)
    clip: float = 0.2
    """Half-width of the range of probability ratios within which the policy is changed."""
    entropy_coef: float = 0.05
    """Weight of the entropy bonus at the start of training."""
    entropy_decay_env_steps: int = 0
    """Environment steps, of trials learned from, over which the weight of the entropy bonus falls linearly to 0; 0: it
    is constant."""
    value_coef: float = 0.5
    """Weight of the value loss."""
    value_error: ValueErrorKind = "squared"
    """Error of the values: squared, or Huber, in standard deviations of the value targets."""
    value_clip: float | None = None
    """Largest change of a value in an iteration, in standard deviations of the value targets; None: any."""
    trace_decay: float = 0.95
    """lambda of generalized advantage estimation."""
    truncation_is_terminal: bool = True
    """Do not bootstrap at the time limit of a trial: the objective is the return within it, and time is an input of the
    network. False: bootstrap there, for tasks that continue."""
    normalize_advantages: bool = True
    """Shift and scale the advantages of an iteration to mean 0 and standard deviation 1, or less: see
    `min_advantage_scale`."""
    min_advantage_scale: float = 0.1
    """Least divisor of advantages, in standard deviations of the value targets within an iteration, averaged over the
    last hundred iterations or so. Where a task is solved, advantages are errors of the values alone, which would
    otherwise be scaled up until they unlearn it. 0: none (Schulman et al. 2017)."""
    max_staleness_weight: float = 2.0
    """Maximum importance weight of a transition whose trial was begun by an earlier policy (Hilton et al. 2022)."""
    target_kl: float | None = 0.02
    """The updates of an iteration end when the estimated KL divergence from the policy before it exceeds 1.5 times
    this; None: all are made."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    lr_decay_env_steps: int = 0
    """Environment steps, of trials learned from, over which the learning rate decays to a tenth; 0: constant."""
    adam_epsilon: float = 1e-5
    """Epsilon of Adam, as in most code of PPO. With 1e-8, gradients of a solved task, which are noise, become steps of
    the size of the learning rate."""
    max_grad_norm: float = 0.5
    """Maximum global norm of the gradient."""
    max_nonfinite_updates: int = 100
    """Consecutive non-finite updates before training aborts."""

    def __post_init__(self) -> None:
        check_range(self, "learning_rate", "adam_epsilon", "max_grad_norm", "max_staleness_weight", "clip", gt=0)
        check_range(self, "entropy_coef", "value_coef", "lr_decay_env_steps", "entropy_decay_env_steps", ge=0)
        check_range(self, "min_advantage_scale", ge=0)
        check_range(self, "value_clip", "target_kl", gt=0)
        check_range(self, "trace_decay", ge=0, le=1)
        check_range(self, "max_nonfinite_updates", ge=1)

    def lr_at(self, env_steps: int) -> float:
        """Return the learning rate after trials of so many steps."""
        return self.learning_rate * lr_decay(env_steps, self.lr_decay_env_steps)

    def entropy_coef_at(self, env_steps: int) -> float:
        """Return the weight of the entropy bonus after trials of so many steps."""
        fraction = env_steps / self.entropy_decay_env_steps if self.entropy_decay_env_steps else 0.0
        return self.entropy_coef * max(0.0, 1.0 - fraction)


class PPO(Algorithm):
    """Proximal policy optimization over whole trials (Schulman et al. 2017), which is RL^2 (Duan et al. 2016) where the
    network observes the last action, reward and reset, and its memory lasts through a trial: here it does.

    An iteration learns from the trials that ended in it. First it normalizes inputs by them, and computes values and
    log-probabilities of all their transitions, in windows like those of the updates; then it makes the updates of
    `passes`. A trial that was begun by an earlier policy counts by the ratio of the two policies (`policy_loss`).
    Differs from the source: the log-probabilities in the ratio are those of the policy before the iteration, not those
    recorded while acting, and values are computed then, too, so that old ones of long trials are not used.

    The agent is moved to `compute.device`, on which `generator` is. Dropout is off.
    """

    def __init__(
        self,
        agent: PPOAgent,
        config: PPOLearnerConfig,
        *,
        context_length: int,
        generator: torch.Generator,
        compute: Compute = CPU_FLOAT32,
    ) -> None:
        self.agent = agent.to(compute.device).train()
        for module in agent.modules():
            if isinstance(module, nn.Dropout):
                module.eval()
        self.model: nn.Module = self.agent
        self.config, self.compute, self.generator = config, compute, generator
        self.optimizer = ClippedAdamW(
            agent.policy_parameters(),
            weight_decay=0.0,
            max_grad_norm=config.max_grad_norm,
            epsilon=config.adam_epsilon,
        )
        self.trials = NewTrials(config.passes, context_length=context_length, seed=generator.initial_seed() % 2**32)
        self.training_rewards: TrainingRewards | None = None
        """Rewards of training alone; None: those of the task."""
        self.num_updates = 0
        self.nonfinite = NonfiniteCounter(compute.device)
        self._annotations: dict[int, Annotations] = {}
        """Trial of the present iteration -> what was computed before its updates."""
        self._is_far = False
        """Whether the policy has moved beyond `target_kl` in this iteration."""
        self._of_iteration: dict[str, float] = {}
        self._target_variance = RunningMoments(_SPREAD_RATE)
        self._last_batch: Batch | None = None
        self._run_ahead = BoundedRunAhead(compute.device)

    @override
    def updates_due(self, replay: Replay) -> int:
        return self.trials.updates_due(replay.store)

    @override
    def batches(self, replay: Replay, count: int) -> Iterator[Batch]:
        if count and not self.trials.is_open:
            self.trials.open(replay.store)
            self._annotations = self.annotate(replay)
            self._is_far = False
        yield from self.trials.batches(replay, count, self._annotations)

    @torch.no_grad()
    def annotate(self, replay: Replay) -> dict[int, Annotations]:
        """Update the statistics of inputs and values by the new trials; return what updates need of each of them."""
        agent, config = self.agent, self.config
        # 1. statistics of the inputs
        parts = self.trials.minibatches(0)
        for _ in range(_POWER_ITERATIONS):
            power_iteration(sigma_layers(agent.trajectory_encoder))
        for batch in replay.sampler.iter_windows(parts, {}):
            agent.update_normalizers(batch.to(self.compute.device))
        # 2. values, then advantages
        log_probs, values = self._predict_trials(replay)
        rewards = self.training_rewards(replay, self.trials) if self.training_rewards else {}
        advantages: dict[int, np.ndarray] = {}
        for trial, value in values.items():
            trajectory = replay.store.get(trial, lazy=True)
            advantages[trial] = generalized_advantages(
                reward_T=rewards.get(trial, trajectory.reward),
                terminal_T=trajectory.terminated | (trajectory.truncated & config.truncation_is_terminal),
                value=value,
                gamma=agent.gamma,
                trace_decay=config.trace_decay,
            )
        targets = {trial: advantages[trial] + values[trial][:-1] for trial in values}
        # 3. statistics of the value targets, and the scale of the advantages
        all_advantages, all_targets = (np.concatenate(list(each.values())) for each in (advantages, targets))
        had_statistics = bool(agent.value_code.count > 0)
        agent.update_value_statistics(torch.from_numpy(all_targets.astype(np.float32)).to(self.compute.device))
        if agent.value_code.count > 0 and not had_statistics:
            # `value_clip` compares with these: until now all values were 0, whatever the outputs
            _, values = self._predict_trials(replay)
        spread = float(all_targets.var())
        self._target_variance.update(np.array([spread]))
        shift, scale = 0.0, 1.0
        if config.normalize_advantages:
            floor = config.min_advantage_scale * math.sqrt(self._target_variance.mean) + 1e-8
            shift, scale = float(all_advantages.mean()), max(float(all_advantages.std()), floor)
        self._of_iteration = {
            "critic/td_target_mean": float(all_targets.mean()),
            **({"critic/explained_variance": 1.0 - float(all_advantages.var()) / spread} if spread else {}),
        }
        named = {
            trial: {
                LOG_PROB: log_probs[trial],
                VALUE: values[trial][:-1],
                ADVANTAGE: (advantages[trial] - shift) / scale,
                VALUE_TARGET: targets[trial],
            }
            for trial in values
        }
        return {
            trial: {name: array.astype(np.float32) for name, array in arrays.items()} for trial, arrays in named.items()
        }

    def _predict_trials(self, replay: Replay) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
        """Return the log-probabilities of the actions of each new trial, and the values of its T + 1 observations."""
        parts = self.trials.minibatches(0)
        log_probs: dict[int, dict[int, np.ndarray]] = {}
        values: dict[int, dict[int, np.ndarray]] = {}
        for windows, batch in zip(parts, replay.sampler.iter_windows(parts, {}), strict=True):
            on_device = batch.to(self.compute.device)
            with self.compute.autocast():
                policy, normalized_N = self.agent.predict(self.agent.encode(on_device), on_device)
            log_prob_N = policy.executed_log_prob(on_device.action)[:, 0].float().cpu().numpy()
            value_N = self.agent.value_of(normalized_N).float().cpu().numpy()
            for window, start in zip(windows, batch.cu_seqlens.tolist(), strict=False):
                end = start + window.length
                log_probs.setdefault(window.trajectory_id, {})[window.start] = log_prob_N[start:end]
                values.setdefault(window.trajectory_id, {})[window.start] = value_N[start : end + 1]
        joined = {}
        for trial, by_start in values.items():
            *before, last = [by_start[start] for start in sorted(by_start)]
            joined[trial] = np.concatenate([*(value[:-1] for value in before), last])
        return {trial: np.concatenate([by[start] for start in sorted(by)]) for trial, by in log_probs.items()}, joined

    @override
    def update(self, batch: Batch) -> Metrics:
        """Make one gradient step on a minibatch. One whose loss or gradient is not finite changes nothing."""
        self.num_updates += 1
        self._last_batch = batch
        metrics = {} if self._is_far else self._step(batch.to(self.compute.device, non_blocking=True))
        if self.trials.count_update():
            self._annotations, self._is_far = {}, False
        self._run_ahead.wait()
        return metrics

    def _step(self, batch: Batch) -> Metrics:
        agent, config, mask_N = self.agent, self.config, batch.loss_mask
        self.optimizer.lr.fill_(config.lr_at(self.trials.transitions))
        self.optimizer.zero_grad()
        with self.compute.autocast():
            state_ND = agent.encode(batch)
            policy: Any
            policy, value_N = agent.predict(state_ND, batch)
        before_N = batch.extras[LOG_PROB]
        log_ratio_N = torch.where(mask_N, policy.executed_log_prob(batch.action)[:, 0] - before_N, 0.0)
        staleness_N = torch.where(mask_N, before_N - batch.extras.get(ACTING_LOG_PROB, before_N), 0.0)
        weight_N = staleness_N.exp().clamp(max=config.max_staleness_weight)
        entropy_N = policy.entropy(agent.actor.sample_noise(state_ND.detach(), self.generator))[:, 0]
        of_policy = masked_mean(policy_loss(log_ratio_N, batch.extras[ADVANTAGE], weight_N, config.clip), mask_N)
        of_value = masked_mean(
            value_loss(
                value_N,
                agent.normalize(batch.extras[VALUE_TARGET]),
                agent.normalize(batch.extras[VALUE]),
                kind=config.value_error,
                clip=config.value_clip,
            ),
            mask_N,
        )
        entropy = masked_mean(entropy_N, mask_N)
        loss = of_policy + config.value_coef * of_value - config.entropy_coef_at(self.trials.transitions) * entropy
        loss.backward()
        norm, finite = self.optimizer.step(loss.detach())
        self.nonfinite.count(finite)
        return {
            "loss/policy": of_policy.detach(),
            "loss/value": of_value.detach(),
            "actor/entropy": entropy.detach(),
            "optim/grad_norm": norm,
            **self._distances(log_ratio_N.detach(), staleness_N, mask_N),
        }

    @torch.no_grad()
    def _distances(self, log_ratio_N: Float[Tensor, "N"], staleness_N: Float[Tensor, "N"], mask_N: Tensor) -> Metrics:
        """Return how far the policy has moved; end the updates of the iteration if that is too far."""
        config = self.config
        # an unbiased estimate that is never negative: r - 1 - log r
        kl = masked_mean(log_ratio_N.expm1() - log_ratio_N, mask_N)
        self._is_far = config.target_kl is not None and float(kl) > _KL_MARGIN * config.target_kl
        clipped_N = (log_ratio_N.exp() - 1.0).abs() > config.clip
        return {
            "actor/kl": kl,
            "actor/clip_fraction": masked_mean(clipped_N.to(kl.dtype), mask_N),
            "actor/staleness": masked_mean(staleness_N.abs(), mask_N),
        }

    @override
    def metrics(self) -> dict[str, float]:
        std = {name: float(value) for name, value in self.agent.value_code.metrics().items()}
        return {"optim/nonfinite_updates": float(self.nonfinite.total), **self._of_iteration, **std}

    @override
    def raise_if_diverged(self) -> None:
        """Raise `UserError` after `max_nonfinite_updates` consecutive non-finite updates."""
        check_divergence(self.nonfinite.consecutive, self.config.max_nonfinite_updates, self._last_batch)

    @override
    def broadcast_parameters(self) -> None:
        """There is one rank."""

    @override
    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.agent.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "updates": self.num_updates,
            **self.nonfinite.state_dict(),
            "trials": self.trials.state_dict(),
            "is_far": self._is_far,
            "of_iteration": dict(self._of_iteration),
            "target_variance": self._target_variance.state_dict(),
            "annotations": {
                str(trial): {name: torch.from_numpy(array) for name, array in arrays.items()}
                for trial, arrays in self._annotations.items()
            },
        }

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.agent.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        load_generator_state(self.generator, state["generator"])
        self.num_updates, self._is_far = state["updates"], state["is_far"]
        self.nonfinite.load_state_dict(state)
        self.trials.load_state_dict(state["trials"])
        self._of_iteration = dict(state["of_iteration"])
        if "target_variance" in state:  # not in earlier checkpoints
            self._target_variance.load_state_dict(state["target_variance"])
        self._annotations = {
            int(trial): {name: tensor.cpu().numpy() for name, tensor in arrays.items()}
            for trial, arrays in state["annotations"].items()
        }
