"""Packing of trajectory windows into one `Batch` of flat tokens.

Window b has tokens `bounds[b] : bounds[b + 1]`, one more than it has transitions (here three and two):

    observation   o0 o1 o2 o3 | o0 o1 o2 | padding
    leaving       r0 r1 r2  0 | r0 r1  0 |  0  0      reward, action, terminated, truncated, extras
    led to it     p  r0 r1 r2 | p  r0 r1 |  0  0      the same shifted by one; p precedes the window

B windows, N tokens, L transitions of a window.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Shaped
from numpy.typing import DTypeLike

from yamame.data.batch import Batch
from yamame.data.trajectory import Trajectory


@dataclass(frozen=True, kw_only=True)
class Window:
    """Transitions `start : start + length` of a trajectory; `ValueError` if it does not have them all."""

    trajectory: Trajectory
    start: int
    length: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.start + self.length <= len(self.trajectory):
            raise ValueError(
                f"no window [{self.start}, {self.start + self.length}) in {len(self.trajectory)} transitions"
            )

    @property
    def has_reward(self) -> bool:
        """Whether any of its transitions has a reward other than 0."""
        return bool(self.trajectory.reward[self.start : self.start + self.length].any())


def pack(
    windows: Sequence[Window], *, pad_tokens_to_multiple_of: int = 64, pad_seqlen_to_multiple_of: int = 1
) -> Batch:
    """Concatenate windows into a batch, padded with zeros in every field.

    Discrete actions become int64, continuous ones float32; other fields keep their dtype. Differs from the paper: the
    authors' code pads every window to the longest of the batch.

    Args:
        windows: Of trajectories with the same leaves and the same kind of action. Extras that only some of the
            trajectories have are left out.
        pad_tokens_to_multiple_of: The number of tokens is padded to a multiple of this.
        pad_seqlen_to_multiple_of: `Batch.max_seqlen` is rounded up to a multiple of this.
    """
    if not windows:
        raise ValueError("a batch needs at least one window")
    layout = _Layout(windows, pad_tokens_to_multiple_of)
    first = windows[0].trajectory
    action_dtype = np.int64 if np.issubdtype(first.action.dtype, np.integer) else np.float32
    action_N = layout.leaving(lambda trajectory: trajectory.action, action_dtype)
    reward_N = layout.leaving(lambda trajectory: trajectory.reward, np.float32)
    position_N = layout.position()
    fields = {
        "reward": reward_N,
        "action": action_N,
        "terminated": layout.leaving(lambda trajectory: trajectory.terminated, np.bool_),
        "truncated": layout.leaving(lambda trajectory: trajectory.truncated, np.bool_),
        "loss_mask": layout.loss_mask_N,
        "previous_action": layout.led_to(action_N, lambda trajectory: trajectory.action),
        "previous_reward": layout.led_to(reward_N, lambda trajectory: trajectory.reward),
        "episode_start": layout.episode_start(),
        "time": layout.repeated([window.start for window in windows], np.int64) + position_N,
        "horizon": layout.repeated([window.trajectory.horizon for window in windows], np.float32),
        "position_ids": position_N,
        "segment_ids": layout.repeated(range(len(windows)), np.int64, padding=len(windows)),
        "cu_seqlens": layout.bounds,
    }
    observation = {name: layout.observed(name) for name in (*first.observation, *first.lazy_observation)}
    extras = {name: layout.extra(name) for name in first.extras if layout.all_have_extra(name)}
    max_seqlen = _round_up(int(layout.num_tokens_B.max()), pad_seqlen_to_multiple_of)
    return Batch(
        **{name: torch.from_numpy(array) for name, array in fields.items()},
        observation={name: torch.from_numpy(array) for name, array in observation.items()},
        extras={name: torch.from_numpy(array) for name, array in extras.items()},
        max_seqlen=max_seqlen,
        equal_lengths=bool((layout.num_tokens_B == max_seqlen).all()),
        max_padding=pad_tokens_to_multiple_of - 1,
    )


_Field = Callable[[Trajectory], Shaped[np.ndarray, "..."]]


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

    def episode_start(self) -> Shaped[np.ndarray, "N"]:
        return self._concatenate(
            [
                window.trajectory.episode_start[window.start : window.start + window.length + 1]
                for window in self.windows
            ]
        )

    def observed(self, name: str) -> Shaped[np.ndarray, "N ..."]:
        return self._concatenate(
            [
                window.trajectory.read_observation(name, window.start, window.start + window.length + 1)
                for window in self.windows
            ]
        )

    def all_have_extra(self, name: str) -> bool:
        return all(name in window.trajectory.extras for window in self.windows)

    def extra(self, name: str) -> Shaped[np.ndarray, "N ..."]:
        dtype = self.windows[0].trajectory.extras[name].dtype
        return self.leaving(lambda trajectory: trajectory.extras[name], dtype)

    def _concatenate(self, arrays: Sequence[Shaped[np.ndarray, "_ ..."]]) -> Shaped[np.ndarray, "N ..."]:
        flat = np.empty((len(self.loss_mask_N), *arrays[0].shape[1:]), arrays[0].dtype)
        np.concatenate(arrays, out=flat[: self.used])
        flat[self.used :] = 0
        return flat

    def leaving(self, field: _Field, dtype: DTypeLike) -> Shaped[np.ndarray, "N ..."]:
        """Place a field of transitions at the tokens that they leave; zero at the last token of a window."""
        arrays = [field(window.trajectory)[window.start : window.start + window.length] for window in self.windows]
        flat = np.zeros((len(self.loss_mask_N), *arrays[0].shape[1:]), dtype)
        flat[self.loss_mask_N] = np.concatenate(arrays)
        return flat

    def led_to(self, leaving: Shaped[np.ndarray, "N ..."], field: _Field) -> Shaped[np.ndarray, "N ..."]:
        """Place the same field at the tokens that its transitions led to; zero at the start of a trial."""
        flat = np.zeros_like(leaving)
        flat[1:] = leaving[:-1]  # the last token of each window is zero, and so is what moves into the next window
        for token, window in zip(self.bounds, self.windows, strict=False):
            if window.start > 0:
                flat[token] = field(window.trajectory)[window.start - 1]
        return flat

    def position(self) -> Shaped[np.ndarray, "N"]:
        flat = np.zeros(len(self.loss_mask_N), np.int64)
        flat[: self.used] = np.arange(self.used) - np.repeat(self.bounds[:-1], self.num_tokens_B)
        return flat

    def repeated(self, per_window: Sequence[int], dtype: DTypeLike, padding: int = 0) -> Shaped[np.ndarray, "N"]:
        flat = np.full(len(self.loss_mask_N), padding, dtype)
        flat[: self.used] = np.repeat(np.asarray(per_window, dtype), self.num_tokens_B)
        return flat


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
