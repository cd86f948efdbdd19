"""What a process and its workers tell each other about E environments, in memory that they all see."""

import itertools
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float32, Shaped

from yamame.environments.adapters.actions import policy_action_space
from yamame.records.action_spaces import ACTION_MASK_KEY, NativeActionSpace, action_shape, num_choices
from yamame.records.spaces import flatten_space, stored_dtype, stored_shape

_ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True)
class SharedBuffers:
    """The arguments and results of `Environments.reset` and `step`; each worker writes its own rows."""

    reset_mask: Bool[np.ndarray, "E"]
    sample_task: Bool[np.ndarray, "E"]
    action: Shaped[np.ndarray, "E ..."]
    """int64 `[E]` or `[E, C]`, or float64 `[E, A]`, which holds every float32 exactly."""
    reward: Float32[np.ndarray, "E"]
    terminated: Bool[np.ndarray, "E"]
    truncated: Bool[np.ndarray, "E"]
    success: Bool[np.ndarray, "E"]
    failed: Bool[np.ndarray, "E"]
    has_success: Bool[np.ndarray, "E"]
    """Whether `success` means anything in this row."""
    has_action_mask: Bool[np.ndarray, "E"]
    """Whether there are action masks in this row."""
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]]
    """What was last seen in every row; where actions are discrete, with a place for their mask."""


def create_memfd() -> int:
    """Descriptor of an empty file without a name, in memory where the system can: closed, nothing is left of it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("yamame-environments")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def map_buffers(
    file: int, observation_space: spaces.Space[Any], action_space: NativeActionSpace, num_envs: int, action_mask_key: str
) -> SharedBuffers:
    """The arrays for environments of these spaces in a file: the same memory in every process that maps it."""
    action = (
        action_shape(policy_action_space(action_space)),
        np.float64 if isinstance(action_space, spaces.Box) else np.int64,
    )
    fields = {
        "mask": ((), np.bool_),
        "new_task": ((), np.bool_),
        "action": action,
        "reward": ((), np.float32),
        "terminated": ((), np.bool_),
        "truncated": ((), np.bool_),
        "success": ((), np.bool_),
        "failed": ((), np.bool_),
        "announces_success": ((), np.bool_),
        "masked": ((), np.bool_),
    }
    blank = {name: np.zeros((num_envs, *shape), dtype) for name, (shape, dtype) in fields.items()}
    leaves = {
        name: np.zeros((num_envs, *stored_shape(leaf)), stored_dtype(leaf))
        for name, leaf in flatten_space(observation_space).items()
        if name != action_mask_key
    }
    if sizes := num_choices(action_space):
        leaves[ACTION_MASK_KEY] = np.zeros((num_envs, sum(sizes)), np.bool_)
    mapped = _map(file, [*blank.values(), *leaves.values()])
    observation = dict(zip(leaves, mapped[len(blank) :], strict=True))
    return SharedBuffers(observation=observation, **dict(zip(blank, mapped[: len(blank)], strict=True)))


def _map(file: int, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays of these shapes and dtypes, one after the other in a file."""
    starts = [0, *itertools.accumulate(-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in like)]
    os.ftruncate(file, starts[-1])
    memory = mmap.mmap(file, starts[-1])
    return [
        np.frombuffer(memory, array.dtype, array.size, start).reshape(array.shape)
        for array, start in zip(like, starts, strict=False)
    ]
