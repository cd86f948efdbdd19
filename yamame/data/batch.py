"""`Batch`: windows of trajectories, packed end to end as flat tokens; `Predictions`; `LossOutput`.

A window of L transitions has L + 1 tokens; its last token is only bootstrapped from. Here L is three and two:

    observation   o0 o1 o2 o3 | o0 o1 o2 | padding
    leaving       r0 r1 r2  0 | r0 r1  0 |  0  0      reward, action, terminated, truncated, extras
    led to it     p  r0 r1 r2 | p  r0 r1 |  0  0      the same shifted by one; p precedes the window
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Shaped
from numpy.typing import DTypeLike
from torch import Tensor

from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.trajectory import Trajectory

ACTING_LOG_PROB = "acting_log_prob"
"""Key of `Batch.extras`: log-probability with which an action was executed, exploration noise included."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """B windows as N flat tokens.

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
    """`[B + 1]`: start of each window, and the end of the last one. Windows without tokens may follow the others."""
    trajectory_ids: Int64[Tensor, "N"]
    """Number of the token's trajectory, which no other one of the run has: with one learner its id in the store, less
    the ids that killed processes used. In batches of given windows, the id. 0 on padding, and without a store."""
    max_seqlen: int
    """Number of tokens of the longest window, rounded up (`pad_seqlen_to_multiple_of`)."""
    equal_lengths: bool
    """Whether every window has exactly `max_seqlen` tokens, so that the tokens can be viewed as `[B, max_seqlen]`."""
    max_padding: int
    """Maximum number of padding tokens; the same for every batch of a run."""
    extras: Mapping[str, Shaped[Tensor, "N ..."]] = field(default_factory=dict)
    """`Trajectory.extras` by the same names; zeros where `loss_mask` is false, NaN for a trajectory without
    them."""

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
        if tokens == slice(0, len(self.reward)):
            return self
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
    """Q(s, a_pi), or its mean over samples: gradient to actor and encoder through the action, never to the critics."""
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


@dataclass(frozen=True, kw_only=True)
class Window:
    """Transitions `start : start + length` of a trajectory; `ValueError` if it does not have them all."""

    trajectory: Trajectory
    start: int
    length: int
    trajectory_id: int = 0
    """Its id in the store that it comes from, or another number of it: see `Batch.trajectory_ids`."""

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end <= len(self.trajectory):
            raise ValueError(f"no window [{self.start}, {self.end}) in {len(self.trajectory)} transitions")

    @property
    def end(self) -> int:
        """End of the transitions, and index of the last observation."""
        return self.start + self.length

    @property
    def max_abs_reward(self) -> float:
        """Largest absolute value of its rewards."""
        return float(np.abs(self.trajectory.reward[self.start : self.end]).max(initial=0.0))


def pack(
    windows: Sequence[Window],
    *,
    pad_tokens_to_multiple_of: int = 64,
    pad_seqlen_to_multiple_of: int = 1,
    pad_windows_to_multiple_of: int = 1,
    longest_window: int | None = None,
) -> Batch:
    """Concatenate windows into a batch, padded with zeros in every field.

    Discrete actions become int64, continuous ones float32; other fields keep their dtype. Differs from the paper: the
    authors' code pads every window to the longest of the batch.

    Args:
        windows: Of trajectories with the same leaves and the same kind of action. Floats among the extras
            are NaN for trajectories without them; other extras that not all have are left out.
        pad_tokens_to_multiple_of: The number of tokens is padded to a multiple of this.
        pad_seqlen_to_multiple_of: `Batch.max_seqlen` is rounded up to a multiple of this.
        pad_windows_to_multiple_of: `Batch.num_segments` is rounded up to a multiple of this, by windows of no tokens.
        longest_window: Most transitions of a window; `Batch.max_seqlen` is not rounded up beyond its tokens.
    """
    if not windows:
        raise ValueError("a batch needs at least one window")
    layout = _Layout(windows, pad_tokens_to_multiple_of)
    num_segments = _round_up(len(windows), pad_windows_to_multiple_of)
    trajectories = [window.trajectory for window in windows]
    first = trajectories[0]
    actions = [trajectory.action for trajectory in trajectories]
    rewards = [trajectory.reward for trajectory in trajectories]
    action_N = layout.leaving(actions, np.int64 if np.issubdtype(first.action.dtype, np.integer) else np.float32)
    reward_N = layout.leaving(rewards, np.float32)
    position_N = layout.concatenated([np.arange(window.length + 1) for window in windows])
    episode_starts = [window.trajectory.episode_start[window.start : window.end + 1] for window in windows]
    fields = {
        "reward": reward_N,
        "action": action_N,
        "terminated": layout.leaving([trajectory.terminated for trajectory in trajectories], np.bool_),
        "truncated": layout.leaving([trajectory.truncated for trajectory in trajectories], np.bool_),
        "loss_mask": layout.loss_mask_N,
        "previous_action": layout.led_to(action_N, actions),
        "previous_reward": layout.led_to(reward_N, rewards),
        "episode_start": layout.concatenated(episode_starts),
        "time": layout.repeated([window.start for window in windows], np.int64) + position_N,
        "horizon": layout.repeated([trajectory.horizon for trajectory in trajectories], np.float32),
        "position_ids": position_N,
        "trajectory_ids": layout.repeated([window.trajectory_id for window in windows], np.int64),
        "segment_ids": layout.repeated(range(len(windows)), np.int64, padding=num_segments),
        "cu_seqlens": np.pad(layout.bounds, (0, num_segments - len(windows)), mode="edge"),
    }
    # images are decompressed for their windows alone
    observation = {}
    for name in dict.fromkeys(name for one in trajectories for name in (*one.observation, *one.lazy_observation)):
        read = [
            window.trajectory.read_observation(name, window.start, window.end + 1)
            if name != ACTION_MASK_KEY or name in window.trajectory.observation
            else None
            for window in windows
        ]
        # trials without masks, such as imported ones, allow every action
        like = next(leaf for leaf in read if leaf is not None)
        leaves = [
            np.ones((window.length + 1, *like.shape[1:]), like.dtype) if leaf is None else leaf
            for window, leaf in zip(windows, read, strict=True)
        ]
        observation[name] = torch.from_numpy(layout.concatenated(leaves))
    extras = {}
    for name, extra in {name: extra for one in trajectories for name, extra in one.extras.items()}.items():
        if np.issubdtype(extra.dtype, np.floating) or all(name in one.extras for one in trajectories):
            arrays = [
                one.extras[name] if name in one.extras else np.full((len(one), *extra.shape[1:]), np.nan, extra.dtype)
                for one in trajectories
            ]
            extras[name] = torch.from_numpy(layout.leaving(arrays, extra.dtype))
    max_seqlen = _round_up(int(layout.num_tokens_B.max()), pad_seqlen_to_multiple_of)
    if longest_window is not None:
        max_seqlen = min(max_seqlen, longest_window + 1)
    return Batch(
        **{name: torch.from_numpy(array) for name, array in fields.items()},
        observation=observation,
        extras=extras,
        max_seqlen=max_seqlen,
        equal_lengths=num_segments == len(windows) and bool((layout.num_tokens_B == max_seqlen).all()),
        max_padding=pad_tokens_to_multiple_of - 1,
    )


_PerWindow = Sequence[Shaped[np.ndarray, "_ ..."]]


class _Layout:
    """Positions of the windows among N tokens."""

    def __init__(self, windows: Sequence[Window], pad_tokens_to_multiple_of: int) -> None:
        self.windows = windows
        self.num_tokens_B = np.array([window.length + 1 for window in windows])
        self.bounds = np.concatenate([[0], np.cumsum(self.num_tokens_B)])
        self.used = int(self.bounds[-1])
        self.loss_mask_N = np.zeros(_round_up(self.used, pad_tokens_to_multiple_of), np.bool_)
        self.loss_mask_N[: self.used] = True
        self.loss_mask_N[self.bounds[1:] - 1] = False

    def concatenated(self, arrays: _PerWindow) -> Shaped[np.ndarray, "N ..."]:
        """Concatenate arrays of the tokens of each window."""
        flat = np.empty((len(self.loss_mask_N), *arrays[0].shape[1:]), arrays[0].dtype)
        np.concatenate(arrays, out=flat[: self.used])
        flat[self.used :] = 0
        return flat

    def repeated(self, per_window: Sequence[int], dtype: DTypeLike, padding: int = 0) -> Shaped[np.ndarray, "N"]:
        """Repeat a number of each window at its tokens."""
        flat = np.full(len(self.loss_mask_N), padding, dtype)
        flat[: self.used] = np.repeat(np.asarray(per_window, dtype), self.num_tokens_B)
        return flat

    def leaving(self, arrays: _PerWindow, dtype: DTypeLike) -> Shaped[np.ndarray, "N ..."]:
        """Place a field of whole trajectories at the tokens that its transitions leave; zero at the last token."""
        flat = np.zeros((len(self.loss_mask_N), *arrays[0].shape[1:]), dtype)
        inside = [array[window.start : window.end] for array, window in zip(arrays, self.windows, strict=True)]
        flat[self.loss_mask_N] = np.concatenate(inside)
        return flat

    def led_to(self, leaving: Shaped[np.ndarray, "N ..."], arrays: _PerWindow) -> Shaped[np.ndarray, "N ..."]:
        """Place the same field at the tokens that its transitions led to; zero at the start of a trial."""
        flat = np.zeros_like(leaving)
        flat[1:] = leaving[:-1]  # the last token of each window is zero, and so is what moves into the next window
        for token, window, array in zip(self.bounds[:-1], self.windows, arrays, strict=True):
            if window.start > 0:
                flat[token] = array[window.start - 1]
        return flat


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
