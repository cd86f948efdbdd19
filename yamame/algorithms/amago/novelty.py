"""A second policy that is rewarded for what was tried rarely, so that the data has what random actions do not find.

Differs from the paper, which explores by random actions alone. The reward is one over the square root of the number of
visits, which a network learns from coin flips (Lobel et al. 2023): each stored transition has random signs of its own,
the network is trained to predict them, and where n transitions are alike their mean has the size 1 / sqrt(n), however
often a transition was sampled. The policy acts in trials of its own, as in Never Give Up (Badia et al. 2020). It shares
no weights with the agent, and acts only while rewards are rare: as further heads on the agent's states, and where every
trial is rewarded, it made the agent worse (docs/log.md).
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor, nn
from torch.nn import functional

from yamame.algorithms.acting_model import batch_features
from yamame.algorithms.amago.moving_copies import MovingCopies
from yamame.algorithms.base import Metrics
from yamame.algorithms.optimizer import ClippedAdamW
from yamame.data.actions import PolicyActionSpace, num_choices
from yamame.data.batch import Batch
from yamame.data.goals import INSTRUCTION_KEY
from yamame.data.spaces import Leaf, stored_shape
from yamame.distributed_context import SINGLE_PROCESS, DistributedContext
from yamame.errors import ConfigFieldError, check_range
from yamame.nets.blocks import MLP, InputNormalizer
from yamame.nets.heads.actor import Actor, ActorConfig, PolicyDistribution
from yamame.nets.heads.critic import CriticConfig
from yamame.nets.heads.popart import PopArt
from yamame.nets.ops import masked_mean, n_step_target
from yamame.nets.timestep.encoder import TimestepEncoder

MAX_LEAF_NUMBERS = 256
"""Numbers to which a leaf of the observation that has an encoder of its own, such as an image, is averaged."""
_NUM_FLIPS = 20
"""Coin flips of a transition, of which the visits are estimated; that of the source."""
_INPUT_LIMIT = 5.0
"""Clip of normalized observations, in standard deviations, as in the source."""
_PRIOR_WEIGHT_SCALE = 3.0
"""Factor of the first weights of the prior, whose outputs then differ between neighboring observations."""
_MEAN_RATE = 0.01
"""Update rate of the mean novelty."""
_FRACTION_RATE = 0.01
"""Update rate of the fraction of windows with a reward."""
_TD_WEIGHT = 10.0
"""Weight of the critics' loss, as that of the agent's."""


@dataclass(frozen=True, kw_only=True)
class NoveltyPolicyConfig:
    """Exploration by novelty at the start of a run, in a part of the training trials, while rewards are rare."""

    trial_fraction: float = 0.0
    """Fraction of the training trials in which the policy of novelty acts. 0: no policy of novelty (paper)."""
    num_updates: int = 0
    """Updates of the run in which it learns and acts; positive if `trial_fraction` is."""
    max_rewarded_fraction: float = 0.04
    """It neither learns nor acts while this fraction of the windows of recent batches or more has a positive reward.
    With 0.25, MiniGrid DoorKey, which random actions solve in 4 % of the trials, ends at 0.88 instead of 0.96."""
    gamma: float = 0.98
    """Discount factor of novelty."""
    n_step: int = 5
    """Number of rewards before the bootstrapped value."""
    learning_rate: float = 1e-3
    """Learning rate of its policy, critics and counter."""
    hidden_sizes: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers."""
    entropy_coef: float = 0.3
    """Normalized value of one nat of entropy. With 0.01, policies converge to the first way to something new."""
    tau: float = 0.03
    """Target network update rate."""

    def __post_init__(self) -> None:
        check_range(self, "trial_fraction", "max_rewarded_fraction", ge=0, le=1)
        check_range(self, "num_updates", "entropy_coef", ge=0)
        check_range(self, "n_step", "hidden_sizes", ge=1)
        check_range(self, "learning_rate", gt=0)
        check_range(self, "gamma", gt=0, lt=1)
        check_range(self, "tau", gt=0, le=1)
        if self.trial_fraction and not self.num_updates:
            raise ConfigFieldError(self, "num_updates", "must be positive, since trial_fraction is, got 0")


class NoveltyPolicy(nn.Module):
    """Policy without memory, its critics, and the networks that estimate numbers of visits.

    It observes the vector features of a timestep, normalized as in the timestep encoder, and the numbers of other
    leaves, averaged to `MAX_LEAF_NUMBERS`. Instructions are left out. Visits are those of an observation and a choice
    of each component of the action, of actions without choices those of an observation.

    Args:
        config: Sizes.
        timestep_encoder: That of the agent, which normalizes the features.
        leaves: Observation by leaf; there is something to observe (`has_observation`).
        action_space: Action space of the policy.
        embeds: Choices of actions are embedded, as in `AgentConfig.embeds`.
    """

    def __init__(
        self,
        config: NoveltyPolicyConfig,
        *,
        timestep_encoder: TimestepEncoder,
        leaves: Mapping[str, Leaf],
        action_space: PolicyActionSpace,
        embeds: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.encoded = _encoded_leaves(timestep_encoder)
        """Leaves that are no vector features."""
        sizes = [min(torch.Size(stored_shape(leaves[name])).numel(), MAX_LEAF_NUMBERS) for name in self.encoded]
        self.leaf_normalizer = InputNormalizer(sum(sizes))
        self.observation_size = timestep_encoder.observation_size
        observed = self.observation_size + sum(sizes)
        inputs = timestep_encoder.num_features + sum(sizes)
        self.actor = Actor(
            ActorConfig(hidden_sizes=config.hidden_sizes),
            input_size=inputs, action_space=action_space, num_gammas=1, embeds=embeds,
        )  # fmt: skip
        self.gamma_G: Tensor
        self.register_buffer("gamma_G", torch.tensor([config.gamma]), persistent=False)
        self.critic = CriticConfig(hidden_sizes=config.hidden_sizes, num_critics=2).build(
            input_size=inputs, action_space=action_space, gammas_G=self.gamma_G, embeds=embeds
        )
        self.value_code = PopArt(1)
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        width, *_ = config.hidden_sizes
        self.num_choices = () if embeds else num_choices(action_space)
        """Choices of each component of the action; (): visits are those of observations."""
        outputs = _NUM_FLIPS * max(1, sum(self.num_choices))
        self.prior = MLP(observed, (width,), outputs, "leaky_relu").requires_grad_(False)
        """Random, so that the estimate is about 1 where the counter was not trained."""
        self.prior_normalizer = InputNormalizer(outputs)
        self.counter = MLP(observed, config.hidden_sizes, outputs, "leaky_relu")
        self.mean_novelty: Tensor
        self.register_buffer("mean_novelty", torch.zeros(()))
        self.acts: Tensor
        self.register_buffer("acts", torch.zeros((), dtype=torch.bool))
        """Whether it acts: from its first update on, while rewards are rare and its updates are not over."""
        with torch.no_grad():
            first = next(layer for layer in self.prior.modules() if isinstance(layer, nn.Linear))
            first.weight.mul_(_PRIOR_WEIGHT_SCALE)
            first.bias.normal_()

    def leaf_numbers(self, observation: Mapping[str, Shaped[Tensor, "N ..."]]) -> Float[Tensor, "N L"] | None:
        """Return the numbers of the leaves that are no vector features, before normalization; None: there are none."""
        if not self.encoded:
            return None
        flat = [observation[name].flatten(1).to(self.mean_novelty.dtype) for name in self.encoded]
        return torch.cat([_averaged(each) for each in flat], dim=1)

    def inputs(self, normalized_NF: Float[Tensor, "N F"], leaf_NL: Float[Tensor, "N L"] | None) -> Float[Tensor, "N I"]:
        """Return the inputs of policy and critics, from normalized features and `leaf_numbers`; observation first."""
        if leaf_NL is None:
            return normalized_NF
        observation_NO, sides_NS = normalized_NF.tensor_split([self.observation_size], dim=1)
        return torch.cat([observation_NO, self.leaf_normalizer(leaf_NL), sides_NS], dim=1)

    def act(
        self,
        normalized_NF: Float[Tensor, "N F"],
        observation: Mapping[str, Shaped[Tensor, "N ..."]],
        mask_NA: Bool[Tensor, "N A"] | None,
    ) -> PolicyDistribution:
        """Return the distribution of the action."""
        distribution: PolicyDistribution = self.actor(
            self.inputs(normalized_NF, self.leaf_numbers(observation)), mask_NA
        )
        return distribution

    def observed(self, input_NI: Float[Tensor, "N I"]) -> Float[Tensor, "N O"]:
        """Return the part of `inputs` that can be new, clipped: the observation."""
        observed = self.observation_size + (self.leaf_normalizer.mean.numel() if self.encoded else 0)
        return input_NI[:, :observed].clamp(-_INPUT_LIMIT, _INPUT_LIMIT)

    def predicted_flips(
        self, observation_NO: Float[Tensor, "N O"], prior_NF: Float[Tensor, "N F"], action_N: Shaped[Tensor, "N ..."]
    ) -> Float[Tensor, "N C flips"]:
        """Return the mean coin flips of an observation with each choice of an action, from the outputs of the prior."""
        output_NF = self.counter(observation_NO) + self.prior_normalizer(prior_NF, observation_NO.dtype)
        if not self.num_choices:
            return output_NF[:, None]
        first_C = np.cumsum([0, *self.num_choices[:-1]])
        row_NC = action_N.reshape(len(action_N), -1) + torch.from_numpy(first_C).to(action_N.device)
        output_NAF = output_NF.unflatten(1, (-1, _NUM_FLIPS))
        return output_NAF.gather(1, row_NC[:, :, None].expand(-1, -1, _NUM_FLIPS))


class NoveltyLearner:
    """Trains a `NoveltyPolicy` on the batches of the agent, by an optimizer of its own.

    Args:
        policy: On the device of the agent.
        timestep_encoder: That of the agent, which is not trained.
        generator: Samples actions in targets and losses.
        distributed: This process among the learners.
    """

    def __init__(
        self,
        policy: NoveltyPolicy,
        timestep_encoder: TimestepEncoder,
        *,
        generator: torch.Generator,
        distributed: DistributedContext = SINGLE_PROCESS,
    ) -> None:
        self.policy, self._timestep_encoder = policy, timestep_encoder
        self._generator, self._distributed = generator, distributed
        self.optimizer = ClippedAdamW(
            [parameter for parameter in policy.parameters() if parameter.requires_grad],
            weight_decay=0.0,
            max_grad_norm=1.0,
        )
        self.optimizer.lr.fill_(policy.config.learning_rate)
        online, targets = [policy.actor, policy.critic], [policy.target_actor, policy.target_critic]
        self._targets = MovingCopies(targets, online, with_buffers=False)
        self._device = policy.mean_novelty.device
        self.rewarded_fraction: float | None = None
        """Running fraction of the windows that have a positive reward; None before the first batch."""
        normalizers = [policy.value_code, policy.leaf_normalizer, policy.prior_normalizer]
        self._statistics = [*(value for each in normalizers for value in each.buffers()), policy.mean_novelty]

    def is_due(self, batch: Batch, num_updates: int) -> bool:
        """Return whether to update with the batch of the agent's update number `num_updates`, and let the policy act.

        Windows, and not transitions, are counted: the size of rewards has no meaning, and their number varies.
        """
        config = self.policy.config
        if num_updates > config.num_updates:
            is_due = False
        else:
            rewarded = batch.segment_ids[(batch.reward > 0) & batch.loss_mask].unique().numel()
            windows = int((batch.cu_seqlens.diff() > 0).sum())  # others are padding
            counts = torch.tensor([rewarded, windows], dtype=torch.float64, device=self._device)
            self._distributed.all_reduce_sum_(counts)
            fraction = float(counts[0] / counts[1])
            before = fraction if self.rewarded_fraction is None else self.rewarded_fraction
            self.rewarded_fraction = before + _FRACTION_RATE * (fraction - before)
            is_due = self.rewarded_fraction < config.max_rewarded_fraction
        self.policy.acts.fill_(is_due)
        return is_due

    def metrics(self) -> dict[str, float]:
        """Return `rewarded_fraction`."""
        return {} if self.rewarded_fraction is None else {"bonus/rewarded_fraction": self.rewarded_fraction}

    def update(self, batch: Batch) -> Metrics:
        """Make one gradient step from a batch on the device of the policy; return metrics as tensors.

        A step whose loss or gradient is not finite changes nothing.
        """
        policy, config, distributed = self.policy, self.policy.config, self._distributed
        before = [value.clone() for value in self._statistics]
        leaf_NL = policy.leaf_numbers(batch.observation)
        if leaf_NL is not None:
            policy.leaf_normalizer.update(leaf_NL, batch.token_mask, distributed)
        with torch.no_grad():
            encoder = self._timestep_encoder
            input_NI = policy.inputs(encoder.normalized(batch_features(encoder, batch)), leaf_NL)

        # the reward of a transition is its novelty, or that of the observation after it, relative to the mean
        observation_NO = policy.observed(input_NI)
        visited_N = batch.loss_mask if policy.num_choices else batch.token_mask
        prior_NF = policy.prior(observation_NO)
        policy.prior_normalizer.update(prior_NF, visited_N, distributed)
        flips_NCF = policy.predicted_flips(observation_NO, prior_NF, batch.action)
        novelty_N = flips_NCF.detach().square().mean(dim=2).sqrt().mean(dim=1)
        self._update_mean_novelty(novelty_N, visited_N)
        reward_N = novelty_N / policy.mean_novelty.clamp(min=torch.finfo(novelty_N.dtype).tiny)
        if not policy.num_choices:
            reward_N = reward_N.roll(-1)
        error_N = (flips_NCF - _coin_flips(batch).to(flips_NCF.dtype)[:, None]).square().mean(dim=(1, 2))
        target_N1 = n_step_target(
            reward_N=reward_N,
            terminal_N=batch.terminated | batch.truncated,
            valid_N=batch.loss_mask,
            value_NG=self._target_values(input_NI, batch.action_mask),
            gammas_G=policy.gamma_G,
            n=config.n_step,
        )
        policy.value_code.update(target_N1, batch.loss_mask, distributed)

        num_visits = visited_N.sum().to(novelty_N.dtype)
        distributed.all_reduce_sum_(num_visits)
        losses_N = self._losses(batch, input_NI, policy.value_code.normalize(target_N1))
        losses_N1 = (torch.where(batch.loss_mask, losses_N, 0.0) + error_N)[:, None]
        loss = visited_N.sum() / num_visits.clamp(min=1) * masked_mean(losses_N1, visited_N)[0]
        self.optimizer.zero_grad()
        loss.backward()
        total = loss.detach()
        distributed.all_reduce_sum_(*self.optimizer.grads_to_sum(distributed), total)
        _, finite = self.optimizer.step(total)
        self._targets.update(config.tau * finite.to(total.dtype))
        for value, old in zip(self._statistics, before, strict=True):
            value.copy_(torch.where(finite, value, old))
        return {"bonus/mean_novelty": policy.mean_novelty.clone()}

    def _losses(
        self, batch: Batch, input_NI: Float[Tensor, "N I"], target_N1: Float[Tensor, "N 1"]
    ) -> Float[Tensor, "N"]:
        """Return the sum of the losses of critics and policy."""
        policy, code = self.policy, self.policy.value_code
        distribution = policy.actor(input_NI, batch.action_mask)
        noise = policy.actor.sample_noise(input_NI, self._generator)
        output, q_policy = policy.critic.q_values(input_NI, batch.action, distribution, noise, code)
        td_N = code.loss(output, target_N1).mean(dim=(1, 2))
        value_N = (code.scale_G.clone() * q_policy.min(dim=1).values + code.shift_G.clone()).mean(dim=1)
        objective_N = value_N + policy.config.entropy_coef * distribution.entropy(noise).mean(dim=1)
        return _TD_WEIGHT * td_N - objective_N

    @torch.no_grad()
    def _target_values(
        self, input_NI: Float[Tensor, "N I"], mask_NA: Bool[Tensor, "N A"] | None
    ) -> Float[Tensor, "N 1"]:
        """Return the minimum over critics of Q(s, pi(s)) of the target networks, in units of novelty."""
        policy, code = self.policy, self.policy.value_code
        noise = policy.target_actor.sample_noise(input_NI, self._generator)
        q_N21 = policy.target_critic.policy_q(input_NI, policy.target_actor(input_NI, mask_NA), noise, code)
        return code.denormalize(q_N21).amin(dim=1)

    def _update_mean_novelty(self, novelty_N: Float[Tensor, "N"], mask_N: Bool[Tensor, "N"]) -> None:
        total, count = torch.where(mask_N, novelty_N, 0.0).sum(), mask_N.sum().to(novelty_N.dtype)
        self._distributed.all_reduce_sum_(total, count)
        mean, running = total / count.clamp(min=1), self.policy.mean_novelty
        running.copy_(torch.where(running > 0, running + _MEAN_RATE * (mean - running), mean))

    def state_dict(self) -> dict[str, Any]:
        """Return what is no part of the policy's networks, which the agent has."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "rewarded_fraction": self.rewarded_fraction,
            "counts_visits": True,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`; moments are new after one of earlier versions, whose novelty differs."""
        if "counts_visits" in state:
            self.optimizer.load_state_dict(state["optimizer"])
        self.rewarded_fraction = state["rewarded_fraction"]


def _coin_flips(batch: Batch) -> Int64[Tensor, "N flips"]:
    """Return signs of every token, by a hash (SplitMix64) of its trajectory and time: always the same ones."""
    hash_N = batch.trajectory_ids * -0x61C8864680B583EB + batch.time
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15), (31, 1)):
        hash_N = (hash_N ^ (hash_N >> shift) & (1 << 64 - shift) - 1) * factor
    return (hash_N[:, None] >> torch.arange(_NUM_FLIPS, device=hash_N.device) & 1) * 2 - 1


def has_observation(timestep_encoder: TimestepEncoder) -> bool:
    """Return whether there is anything in an observation that can be new: more than an instruction."""
    return bool(timestep_encoder.observation_size or _encoded_leaves(timestep_encoder))


def _encoded_leaves(timestep_encoder: TimestepEncoder) -> tuple[str, ...]:
    return tuple(name for name in timestep_encoder.encoded if name != INSTRUCTION_KEY)


def _averaged(number_NM: Float[Tensor, "N M"]) -> Float[Tensor, "N m"]:
    """Return the means of at most `MAX_LEAF_NUMBERS` groups of neighboring numbers."""
    if number_NM.shape[1] <= MAX_LEAF_NUMBERS:
        return number_NM
    return functional.adaptive_avg_pool1d(number_NM[:, None], MAX_LEAF_NUMBERS)[:, 0]
