"""`Batch`: windows of trajectories, packed end to end as flat tokens; `Predictions`; `LossOutput`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from yamame.data.actions import ACTION_MASK_KEY


@dataclass(frozen=True, kw_only=True)
class Batch:
    """B windows as N flat tokens. A window of L transitions has L + 1 tokens; its last token is only bootstrapped from.

    The tokens of window b are `cu_seqlens[b] : cu_seqlens[b + 1]`. Tokens from `cu_seqlens[-1]` on are padding, so that
    batches have few different shapes. `reward`, `terminated`, `truncated`, `action` and `extras` of token n belong to
    the transition that *leaves* it and are defined where `loss_mask` is true. The network sees the action and reward
    that *led to* the token: `previous_action` and `previous_reward` (zeros at the start of a trial).
    """

    reward: Float[Tensor, "N"]
    action: Shaped[Tensor, "N ..."]
    """int64 `[N]` (one choice) or `[N, C]` (C choices), or float32 `[N, A]` in [-1, 1]."""
    terminated: Bool[Tensor, "N"]
    truncated: Bool[Tensor, "N"]
    loss_mask: Bool[Tensor, "N"]
    """True where the token has a transition: false on the last token of a window and on padding."""
    observation: Mapping[str, Shaped[Tensor, "N ..."]]
    previous_action: Shaped[Tensor, "N ..."]
    """Same dtype and shape as `action`."""
    previous_reward: Float[Tensor, "N"]
    episode_start: Bool[Tensor, "N"]
    """The reset flag: the token is the first of an attempt."""
    time: Int64[Tensor, "N"]
    """Step of the trial, from 0. At 0 memory is empty and `previous_action` is zero."""
    horizon: Float[Tensor, "N"]
    """Maximum `time` of the token's task."""
    position_ids: Int64[Tensor, "N"]
    """Index of the token in its window."""
    segment_ids: Int64[Tensor, "N"]
    """Index b of the token's window; B on padding."""
    cu_seqlens: Int64[Tensor, "bounds"]
    """`[B + 1]`: start of each window, and the end of the last one."""
    max_seqlen: int
    """Number of tokens of the longest window, rounded up (`pad_seqlen_to_multiple_of`)."""
    equal_lengths: bool
    """Whether every window has exactly `max_seqlen` tokens, so that the tokens can be viewed as `[B, max_seqlen]`."""
    max_padding: int
    """Maximum number of padding tokens; the same for every batch of a run."""
    extras: Mapping[str, Shaped[Tensor, "N ..."]] = field(default_factory=dict)
    """`Trajectory.extras` by the same names; zeros where `loss_mask` is false."""

    @property
    def num_segments(self) -> int:
        """B."""
        return self.cu_seqlens.shape[0] - 1

    @property
    def token_mask(self) -> Bool[Tensor, "N"]:
        """True on every token of a window, including its last; false on padding."""
        return self.segment_ids < self.num_segments

    @property
    def action_mask(self) -> Bool[Tensor, "N A"] | None:
        """Allowed actions of each token; all of them on padding. None if the task has no action mask."""
        mask = self.observation.get(ACTION_MASK_KEY)
        return None if mask is None else mask | ~self.token_mask[:, None]

    def slice_tokens(self, tokens: slice) -> "Batch":
        """Return a chunk of the tokens, for heads and losses, which process every token on its own.

        Fields about windows (`cu_seqlens`, `max_seqlen`, `equal_lengths`, `max_padding`) stay those of the whole batch.
        """
        return replace(self.apply(lambda value: value[tokens]), cu_seqlens=self.cu_seqlens)

    def to(self, device: torch.device, *, non_blocking: bool = False) -> "Batch":
        """Return the batch on a device: the batch itself if it is already there."""
        if self.reward.device == device:
            return self
        return self.apply(lambda value: value.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """Return a copy in page-locked memory, from which copies to a GPU are asynchronous."""
        return self.apply(Tensor.pin_memory)

    def apply(self, fn: Callable[[Tensor], Tensor]) -> "Batch":
        """Return the batch with `fn` applied to every tensor."""
        changed: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Tensor):
                changed[each.name] = fn(value)
            elif isinstance(value, Mapping):
                changed[each.name] = {name: fn(leaf) for name, leaf in value.items()}
        return replace(self, **changed)


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Outputs of the heads for N tokens, G discount factors and K critics: the input of every loss.

    Q values are raw critic outputs; `q_scale_G` and `q_shift_G` turn them into normalized values (PopArt's w and b,
    which no optimizer updates).
    """

    log_prob_NG: Float[Tensor, "N G"]
    """log pi(a_data | s)."""
    entropy_NG: Float[Tensor, "N G"]
    """Entropy of the policy in nats; for a Box an unbiased estimate from one sample."""
    q_data_NKG: Float[Tensor, "N K G"]
    """Q(s, a_data): gradient to critics and encoder."""
    q_policy_NKG: Float[Tensor, "N K G"]
    """Q(s, a_pi): gradient to actor and encoder through the action only, never to the critics."""
    td_target_NG: Float[Tensor, "N G"]
    """Normalized TD target; no gradient."""
    td_loss_NKG: Float[Tensor, "N K G"]
    """Loss of each critic against the TD target, by its value code: gradient to critics and encoder."""
    q_scale_G: Float[Tensor, "G"]
    q_shift_G: Float[Tensor, "G"]
    predicted_delta_NO: Float[Tensor, "N O"] | None = None
    """Change of the observation predicted by the world model; None without that head."""
    target_delta_NO: Float[Tensor, "N O"] | None = None
    """Actual change of the observation, normalized; no gradient. Undefined where `Batch.loss_mask` is false."""


@dataclass(frozen=True, kw_only=True)
class LossOutput:
    """Loss of every token, averaged by the learner over `Batch.loss_mask`, and metrics (no gradient)."""

    per_token: Float[Tensor, "N"]
    metrics: Mapping[str, Float[Tensor, ""]]
