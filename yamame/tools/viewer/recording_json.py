"""A recorded trial as JSON and PNGs, for the *Rollouts* view."""

from base64 import b64encode
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from jaxtyping import Shaped

from yamame.algorithms.analysis import AgentAnalysis
from yamame.data.actions import action_bounds, num_components, to_env_units
from yamame.data.spaces import walk_space
from yamame.nets.introspection import AttentionWeights
from yamame.tools.trial_recording import TrialRecording

_DIGITS = 5
_UNIT_WEIGHT = 65535
"""Integer that encodes an attention weight of 1."""


@dataclass(frozen=True)
class UniqueFrames:
    """The different frames of a recording."""

    content: bytes
    """PNGs, one after the other."""
    sizes: list[int]
    """Bytes of each."""
    of_timestep: list[int | None]
    """Index of the frame of each timestep."""
    of_attempt_end: dict[int, int]
    """Transition that ended an attempt -> index of the frame of its final observation."""

    @staticmethod
    def from_recording(recording: TrialRecording) -> "UniqueFrames":
        """Collect each frame once."""
        unique: dict[bytes, int] = {}

        def index(frame: bytes) -> int:
            return unique.setdefault(frame, len(unique))

        of_timestep = [None if frame is None else index(frame) for frame in recording.frames]
        of_end = {step: index(frame) for step, frame in recording.attempt_end_frames.items()}
        return UniqueFrames(b"".join(unique), [len(frame) for frame in unique], of_timestep, of_end)


def recording_to_json(recording: TrialRecording, frames: UniqueFrames) -> dict[str, Any]:
    """Return everything but the bytes of the frames. `analysis` is None if the algorithm has none."""
    trajectory = recording.trajectory
    return {
        "task": recording.task,
        "checkpoint": recording.checkpoint,
        "updates": recording.updates,
        "seed": recording.seed,
        "instruction": recording.instruction,
        "deterministic": recording.deterministic,
        "truncated": recording.truncated,
        "steps": len(recording),
        "frames": {key: value for key, value in vars(frames).items() if key != "content"},
        "observations": recording.observation_texts,
        "attempt": recording.attempt.tolist(),
        "reward": to_numbers(trajectory.reward),
        "success": None if trajectory.success is None else trajectory.success.tolist(),
        "sub_goals": recording.sub_goals,
        "goals_completed": recording.goals_completed.tolist(),
        "actions": recording.action_names,
        "num_choices": recording.num_choices,
        "actions_taken": _actions_taken(recording),
        "action_bounds": None if recording.num_choices else _bounds(recording),
        "analysis": None if recording.analysis is None else _analysis_to_json(recording, recording.analysis),
    }


def _bounds(recording: TrialRecording) -> list[list[float]]:
    """Return the smallest and largest value of each number of a continuous action."""
    return np.stack(action_bounds(recording.env_action_space), axis=1).tolist()


def to_numbers(array: Shaped[np.ndarray, "..."] | None) -> Any:
    """Return nested lists of rounded numbers; None for NaN and infinity, which JSON does not have."""
    if array is None:
        return None
    if array.ndim > 1:
        return [to_numbers(row) for row in array]
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in array.tolist()]


def _actions_taken(recording: TrialRecording) -> list[list[int]] | list[list[float]]:
    """Return for every transition the indices into `actions` of its choices, or the numbers of a continuous action."""
    action = recording.trajectory.action
    rows = action.reshape(len(action), -1)
    if not recording.num_choices:
        leaves = [leaf for _, leaf in walk_space(recording.env_action_space)]
        is_integer = np.concatenate(
            [np.full(num_components(leaf), np.issubdtype(leaf.dtype, np.integer)) for leaf in leaves]
        )
        numbers = to_env_units(recording.env_action_space, rows)
        return to_numbers(np.where(is_integer, np.rint(numbers), numbers))
    return (rows + np.array([0, *accumulate(recording.num_choices)][:-1])).tolist()


def _analysis_to_json(recording: TrialRecording, analysis: AgentAnalysis) -> dict[str, Any]:
    """Return the analysis; `mean`, `low`, `high`: mode of a continuous action and one standard deviation.

    They are in the units of the environment. Without values there are no gammas either.
    """
    distributions = analysis.action_distributions
    mean, std = distributions.mean_TA, distributions.std_TA
    ends = (None, None, None) if mean is None or std is None else (mean, mean - std, mean + std)
    mode, low, high = (
        None if end is None else to_numbers(to_env_units(recording.env_action_space, np.tanh(end))) for end in ends
    )
    return {
        "probability": to_numbers(distributions.probability_TA),
        "mean": mode,
        "low": low,
        "high": high,
        "gammas": [] if analysis.q_TG is None else to_numbers(analysis.gammas_G),
        "q": to_numbers(analysis.q_TG),
        "value": to_numbers(analysis.value_TG),
        "attention": None if analysis.attention is None else _attention_to_json(analysis.attention),
    }


def _attention_to_json(attention: AttentionWeights) -> dict[str, Any]:
    layers, heads, timesteps, kept = attention.weight_LHTS.shape
    weight = np.rint(attention.weight_LHTS * _UNIT_WEIGHT).astype("<u2")
    return {
        "layers": layers,
        "heads": heads,
        "timesteps": timesteps,
        "kept": kept,
        "memory_length": attention.attention_window,
        "weight": b64encode(weight.tobytes()).decode(),
        "key": b64encode(attention.key_LHTS.astype("<u2").tobytes()).decode(),
    }
