"""Whether a machine can hold what grows with the size of an observation: batches, trials, the first layer."""

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from yamame.algorithms.networks import NetworksConfig
from yamame.collect.frame_buffer import FrameBuffer
from yamame.data.schema import TaskSpec
from yamame.data.spaces import Leaf, stored_dtype, stored_shape
from yamame.errors import UserError
from yamame.nets.timestep.encoder import VECTOR_KIND
from yamame.run_config import RunConfig

_ROLLOUT_ROWS = 64
"""Rows that a `RolloutBuffer` writes before it drops the first one."""
_FEATURE_BYTES = 16
"""Bytes of a number that enters the network as it is: as float64, as float32, and normalized."""
_LAYER_COPIES = 5
"""Of the weights: gradients, two moments of the optimizer and the policy that acts."""
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def check_memory(config: RunConfig, task: TaskSpec) -> None:
    """Raise `UserError` if training needs more memory for the largest leaf of an observation than the machine has.

    The estimate is a lower bound, that of trials of one step, so that whatever can be trained passes.
    """
    limit = machine_bytes()
    leaves = task.schema.leaves
    if limit is None or not leaves:
        return
    name, leaf = max(leaves.items(), key=lambda item: _stored_bytes(item[1]))
    parts = estimate_bytes(config, name, leaf, leaves)
    total = sum(parts.values())
    if total <= limit:
        return
    shape = " x ".join(map(str, stored_shape(leaf)))
    listed = ", ".join(f"{part} {_describe(size)}" for part, size in parts.items() if size >= 0.01 * total)
    settings = "num_envs, eval.num_envs, replay.min_batch_transitions or replay.prefetch_batches"
    raise UserError(
        f"observation {name!r} ({shape}) takes {_describe(_stored_bytes(leaf))}, with which training needs at least "
        f"{_describe(total)} ({listed}), and this machine has {_describe(limit)} of memory: make it smaller, or lower "
        f"{settings}"
    )


def estimate_bytes(config: RunConfig, name: str, leaf: Leaf, leaves: Mapping[str, Leaf]) -> dict[str, int]:
    """Return a lower bound of the memory for a leaf of the observation, by what it is for.

    Args:
        config: Config of the learner: the learner's shard if there are several.
        name: Name of the leaf.
        leaf: Its space.
        leaves: All leaves.
    """
    size, numbers = _stored_bytes(leaf), math.prod(stored_shape(leaf))
    networks = getattr(config.algorithm, "agent", None)
    encoder = networks.timestep_encoder if isinstance(networks, NetworksConfig) else None
    is_vector = encoder is not None and encoder.resolve_encoders(leaves)[name] == VECTOR_KIND
    width = (*encoder.hidden_sizes, encoder.output_size)[0] if encoder and is_vector else 0
    tokens, batches = 0, 0
    if not config.algorithm.is_on_policy and config.total_updates:
        tokens = max(config.replay.batch_size, config.replay.min_batch_transitions)
        iteration_steps = config.resolved_env_steps_per_iteration * config.num_learners
        per_iteration = int(iteration_steps * config.updates_per_env_step)
        batches = 1 + min(config.replay.prefetch_batches, max(0, per_iteration - 1))
    acts_here = not (config.offline.is_offline_only or config.ray.address)
    computes_here = is_vector and not torch.cuda.is_available()
    num_eval_envs = config.env.required_num_envs or min(config.eval.final_trials, config.resolved_eval_num_envs)
    return {
        "trials in flight": acts_here * size * _rows(leaf, config.env_steps // config.num_envs) * config.num_envs,
        "those of evaluations": size * _rows(leaf, config.eval.final_trials // num_eval_envs) * num_eval_envs,
        "batches": tokens * (batches * size + computes_here * _FEATURE_BYTES * numbers),
        "first layer": computes_here * _LAYER_COPIES * 4 * width * numbers,
    }


def machine_bytes() -> int | None:
    """Return the memory of this machine, or of the container in which the process runs; None: unknown."""
    found: list[int] = []
    if (
        sys.platform != "win32"
        and hasattr(os, "sysconf")
        and {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= os.sysconf_names.keys()
    ):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _CGROUP_LIMITS:
        try:
            found.append(int(path.read_text()))
        except (OSError, ValueError):  # "max"
            continue
    return min((size for size in found if size > 0), default=None)


def _rows(leaf: Leaf, vector_steps: int) -> int:
    """Return how many observations of each environment are held at least: images of short trials are dropped."""
    is_frame = FrameBuffer.suits(np.broadcast_to(np.uint8(0), (1, *stored_shape(leaf))))
    return 1 if is_frame else max(1, min(_ROLLOUT_ROWS, vector_steps))


def _stored_bytes(leaf: Leaf) -> int:
    return math.prod(stored_shape(leaf)) * np.dtype(stored_dtype(leaf)).itemsize


def _describe(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
