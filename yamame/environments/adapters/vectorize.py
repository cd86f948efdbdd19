"""Anything that Gymnasium calls an environment -> `Environments`."""

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import VectorEnv

from yamame.environments.adapters.serial import SerialEnvironments
from yamame.environments.adapters.singles import check_single
from yamame.environments.adapters.vector_adapter import VectorAdapter
from yamame.records.action_spaces import MASK_LEAF


def vectorize(environments: Any, seed: int, *, mask_key: str = MASK_LEAF) -> SerialEnvironments | VectorAdapter:
    """One `gymnasium.Env`, several of them, or a `gymnasium.vector.VectorEnv`, to be stepped together in this process.

    `mask_key` is where they say which actions they allow (see `ActionMasks`).
    Raises `UserError` for anything else and for spaces that are not supported.
    """
    if isinstance(environments, VectorEnv):
        return VectorAdapter(environments, seed, mask_key=mask_key)
    several = environments if isinstance(environments, Sequence) else [environments]
    for each in several:
        check_single(each)
    return SerialEnvironments(several, seed, mask_key=mask_key)
