"""What of a trajectory Minari has no field for, as infos of an episode, and back."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Shaped

from yamame.records.action_spaces import ACTION_MASK_KEY
from yamame.records.goals import Goals
from yamame.records.trajectory import Trajectory

_FACTS = ("task", "horizon", "policy_version", "noise_scale")
_OF_GOALS = ("instruction", "achieved_step", "achieved_goal")
_RULES = ("tolerance", "hide_future_goals")


def to_infos(
    trajectory: Trajectory, *, mask_in_infos: bool, exact_action: bool
) -> dict[str, Shaped[np.ndarray, "..."]]:
    """As Minari has infos: what belongs to a transition stands one place later, behind a first one of nothing."""
    infos: dict[str, np.ndarray] = {"episode_start": trajectory.episode_start, "yamame": _packed(_facts(trajectory))}
    if trajectory.success is not None:
        infos["success"] = np.concatenate([[False], trajectory.success])
    if mask_in_infos:
        infos["action_mask"] = trajectory.observation[ACTION_MASK_KEY]
    if exact_action:
        infos["policy_action"] = np.concatenate([np.zeros_like(trajectory.action[:1]), trajectory.action])
    return infos


def from_infos(infos: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The fields of a trajectory, but its arrays, and the order of its `leaves`; None where another program wrote."""
    if not infos or "yamame" not in infos:
        return None
    facts = json.loads(np.asarray(infos["yamame"], np.uint8).tobytes())
    goals = facts.pop("goals")
    if goals is not None:
        arrays: dict[str, Any] = {name: _array(goals[name]) for name in _OF_GOALS}
        goals = Goals(**arrays, **{name: goals[name] for name in _RULES})
    return {**facts, "goals": goals}


def _array(described: Mapping[str, Any]) -> Shaped[np.ndarray, "..."]:
    return np.array(described["values"], described["dtype"]).reshape(described["shape"])


def _facts(trajectory: Trajectory) -> dict[str, Any]:
    return {
        **{name: getattr(trajectory, name) for name in _FACTS},
        "goals": None if trajectory.goals is None else _goals_to_json(trajectory.goals),
        "leaves": list(trajectory.observation),
    }


def _goals_to_json(goals: Goals) -> dict[str, Any]:
    arrays = {name: getattr(goals, name) for name in _OF_GOALS}
    described = {
        name: {"values": array.tolist(), "dtype": array.dtype.name, "shape": array.shape}
        for name, array in arrays.items()
    }
    return {**described, **{name: getattr(goals, name) for name in _RULES}}


def _packed(facts: dict[str, Any]) -> Shaped[np.ndarray, "bytes"]:
    return np.frombuffer(json.dumps(facts).encode(), np.uint8)
