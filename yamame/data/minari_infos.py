"""Infos of Minari episodes: fields of a trajectory for which Minari has none."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Shaped

from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.codec import GOAL_ARRAYS, GOAL_SCALARS, SCALARS
from yamame.data.goals import Goals
from yamame.data.trajectory import Trajectory

_EXTRAS_KEY = "extra_{}"
"""Key in infos of the extras with this index: their names may have `/`, which HDF5 takes for a group."""


def to_infos(
    trajectory: Trajectory, *, mask_in_infos: bool, exact_action: bool
) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Return Minari infos, T + 1 rows each: arrays of transitions follow a first row of zeros."""
    metadata = {
        **{name: getattr(trajectory, name) for name in SCALARS},
        "goals": None if trajectory.goals is None else _goals_to_json(trajectory.goals),
        "leaves": list(trajectory.observation),
        "extras": list(trajectory.extras),
    }
    infos: dict[str, np.ndarray] = {
        "episode_start": trajectory.episode_start,
        "yamame": np.frombuffer(json.dumps(metadata).encode(), np.uint8),
    }
    if trajectory.success is not None:
        infos["success"] = _shift(trajectory.success)
    if mask_in_infos:
        infos["action_mask"] = trajectory.observation[ACTION_MASK_KEY]
    if exact_action:
        infos["policy_action"] = _shift(trajectory.action)
    for index, array in enumerate(trajectory.extras.values()):
        infos[_EXTRAS_KEY.format(index)] = _shift(array)
    return infos


def _shift(array: Shaped[np.ndarray, "T ..."]) -> Shaped[np.ndarray, "T+1 ..."]:
    return np.concatenate([np.zeros_like(array[:1]), array])


def _goals_to_json(goals: Goals) -> dict[str, Any]:
    json_values: dict[str, Any] = {}
    for name in GOAL_ARRAYS:
        array = getattr(goals, name)
        json_values[name] = {"values": array.tolist(), "dtype": array.dtype.name, "shape": array.shape}
    return json_values | {name: getattr(goals, name) for name in GOAL_SCALARS}


def from_infos(infos: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return fields of a trajectory and the order of its `leaves`; None if another program wrote the dataset."""
    if "yamame" not in infos:
        return None
    metadata = json.loads(np.asarray(infos["yamame"], np.uint8).tobytes())
    goals = metadata.pop("goals")
    if goals is not None:
        for name in GOAL_ARRAYS:
            described = goals[name]
            goals[name] = np.array(described["values"], described["dtype"]).reshape(described["shape"])
        goals = Goals(**goals)
    names = metadata.pop("extras")
    extras = {name: np.asarray(infos[_EXTRAS_KEY.format(index)])[1:] for index, name in enumerate(names)}
    return {**metadata, "goals": goals, "extras": extras}
