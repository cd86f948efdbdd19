"""`Batch`: windows of trajectories laid end to end as flat tokens; `Predictions`; `LossOutput`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor

from yamame.data.actions import ACTION_MASK_KEY


@dataclass(frozen=True, kw_only=True)
class Batch:
    """B windows as N flat tokens. A window of L transitions takes L + 1 tokens; the last is only bootstrapped from.

    Tokens of window b are `cu_seqlens[b] : cu_seqlens[b + 1]`; what lies behind `cu_seqlens[-1]` fills
    the batch up to a size that repeats, so that shapes stay few. `reward`, `terminated`, `truncated` and `action` of
    token n belong to the transition that *leaves* it and are real where `valid`; the network sees the ones that
    *led to* it: `previous_action` and `previous_reward` (zeros where a trial begins).
    """

    reward: Float[Tensor, "N"]
    action: Shaped[Tensor, "N ..."]
    """int64 `[N]` (one choice) or `[N, C]` (several), or float32 `[N, A]` in [-1, 1]."""
    terminated: Bool[Tensor, "N"]
    truncated: Bool[Tensor, "N"]
    loss_mask: Bool[Tensor, "N"]
    """True where the token has a transition: false on the last slot of a window and on the filling."""
    observation: Mapping[str, Shaped[Tensor, "N ..."]]
    previous_action: Shaped[Tensor, "N ..."]
    """Same form as `action`."""
    previous_reward: Float[Tensor, "N"]
    episode_start: Bool[Tensor, "N"]
    """The reset flag: this token begins an attempt."""
    time: Int64[Tensor, "N"]
    """Step of the trial, from 0; memory and blank previous action begin at 0."""
    horizon: Float[Tensor, "N"]
    """Largest possible `time` of the token's task."""
    position_ids: Int64[Tensor, "N"]
    """Index of the token in its window."""
    segment_ids: Int64[Tensor, "N"]
    """Index b of the token's window; B on the filling."""
    cu_seqlens: Int64[Tensor, "bounds"]
    """`[B + 1]`: where each window begins, and where the last one ends."""
    max_seqlen: int
    """Number of tokens of the longest window, rounded up to a size that repeats."""
    equal_lengths: bool
    """Whether every window has exactly `longest` tokens: their tokens are rows of equal length as they lie."""
    max_padding: int
    """The filling has at most so many tokens; the same for every batch of a run."""

    @property
    def num_segments(self) -> int:
        """B."""
        return self.cu_seqlens.shape[0] - 1

    @property
    def token_mask(self) -> Bool[Tensor, "N"]:
        """True on every token of a window, its last slot included; false on the filling."""
        return self.segment_ids < self.num_segments

    @property
    def action_mask(self) -> Bool[Tensor, "N A"] | None:
        """What each token's policy may do; everything on the filling. None where nothing is ever forbidden."""
        mask = self.observation.get(ACTION_MASK_KEY)
        return None if mask is None else mask | ~self.token_mask[:, None]

    def slice_tokens(self, piece: slice) -> "Batch":
        """Some tokens, for what looks at each alone: heads and losses.

        What speaks of windows (`cu_seqlens`, `longest`, `full_rows`, `max_padding`) stays the whole batch's.
        """
        return replace(self.apply(lambda value: value[piece]), cu_seqlens=self.cu_seqlens)

    def to(self, device: torch.device, *, non_blocking: bool = False) -> "Batch":
        """The batch on a device; itself if it is there."""
        if self.reward.device == device:
            return self
        return self.apply(lambda value: value.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """A copy in page-locked memory, from which a GPU fetches while the host goes on."""
        return self.apply(Tensor.pin_memory)

    def apply(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with every tensor changed."""
        changed: dict[str, Any] = {
            field.name: change(value)
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), Tensor)
        }
        observation = {name: change(leaf) for name, leaf in self.observation.items()}
        return replace(self, observation=observation, **changed)


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What the heads say about N tokens, for G discounts and K critics; everything a loss may look at.

    Q values are raw critic outputs; `q_scale` and `q_shift` turn them into normalised values (PopArt's w and b,
    which no optimizer touches).
    """

    log_prob_NG: Float[Tensor, "N G"]
    """log pi(a_data | s)."""
    entropy_NG: Float[Tensor, "N G"]
    """Of the policy, in nats; of a Box one unbiased estimate."""
    q_data_NKG: Float[Tensor, "N K G"]
    """Q(s, a_data): gradient to critics and encoder."""
    q_policy_NKG: Float[Tensor, "N K G"]
    """Q(s, a_pi): gradient reaches actor and encoder through the action only, never the critics."""
    td_target_NG: Float[Tensor, "N G"]
    """Normalised TD target; no gradient."""
    q_scale_G: Float[Tensor, "G"]
    q_shift_G: Float[Tensor, "G"]
    predicted_delta_NO: Float[Tensor, "N O"] | None = None
    """By how much the world model says the observation will change; None where there is no such head."""
    target_delta_NO: Float[Tensor, "N O"] | None = None
    """By how much it does, normalised; no gradient. It means nothing where the token is not `Batch.valid`."""


@dataclass(frozen=True, kw_only=True)
class LossOutput:
    """A loss of every token (the learner averages it over `Batch.valid`) and numbers worth logging (no gradient)."""

    per_token: Float[Tensor, "N"]
    metrics: Mapping[str, Float[Tensor, ""]]
