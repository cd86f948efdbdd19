"""A recording as JSON for the page: numbers rounded, attention as packed integers, pictures apart."""

from base64 import b64encode
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from jaxtyping import Shaped

from yamame.inspection.recording import ActionDistributions, TrialRecording
from yamame.model.trajectory_encoders.explanation import AttentionWeights

_DIGITS = 5
_WHOLE_WEIGHT = 65535
"""What a weight of 1 is sent as."""


@dataclass(frozen=True)
class Pictures:
    """The different pictures of a recording, laid end to end."""

    content: bytes
    sizes: list[int]
    """Bytes of each."""
    of_moment: list[int | None]
    """Which one each moment looks like."""
    of_end: dict[int, int]
    """The like of transitions that ended an attempt."""

    @staticmethod
    def from_recording(recording: TrialRecording) -> "Pictures":
        """Each picture once, however often it was seen."""
        different: dict[bytes, int] = {}

        def place(frame: bytes | None) -> int | None:
            return None if frame is None else different.setdefault(frame, len(different))

        of_moment = [place(frame) for frame in recording.frames]
        of_end = {step: different.setdefault(frame, len(different)) for step, frame in recording.attempt_end_frames.items()}
        return Pictures(b"".join(different), [len(frame) for frame in different], of_moment, of_end)


def recording_to_json(recording: TrialRecording, pictures: Pictures) -> dict[str, Any]:
    """Everything but the bytes of the pictures."""
    trajectory, insight = recording.trajectory, recording.insight
    intention = insight.action_distributions
    return {
        "task": recording.task,
        "checkpoint": recording.checkpoint,
        "updates": recording.updates,
        "seed": recording.seed,
        "instruction": recording.instruction,
        "deterministic": recording.deterministic,
        "truncated": recording.truncated,
        "steps": len(recording),
        "pictures": {"sizes": pictures.sizes, "of_moment": pictures.of_moment, "of_end": pictures.of_end},
        "seen": recording.observation_texts,
        "attempt": recording.attempt.tolist(),
        "reward": numbers(trajectory.reward),
        "success": None if trajectory.success is None else trajectory.success.tolist(),
        "sub_goals": recording.sub_goals,
        "goals_completed": recording.goals_completed.tolist(),
        "actions": recording.action_names,
        "choices": intention.choices,
        "actions_taken": _taken(recording),
        "probability": numbers(intention.probability_TA),
        **_spread(intention),
        "discounts": numbers(insight.gammas_G),
        "q": numbers(insight.q_TG),
        "value": numbers(insight.value_TG),
        "attention": None if insight.attention is None else _attention(insight.attention),
    }


def numbers(array: Shaped[np.ndarray, "..."] | None) -> Any:
    """Nested lists of numbers with a few digits; None for those that are not finite, which JSON does not know."""
    if array is None:
        return None
    if array.ndim > 1:
        return [numbers(row) for row in array]
    return [float(f"{value:.{_DIGITS}g}") if np.isfinite(value) else None for value in array.tolist()]


def _spread(intention: ActionDistributions) -> dict[str, Any]:
    """A continuous action in [-1, 1]: the most likely one, and a deviation to both sides of it."""
    mean, deviation = intention.mean_TA, intention.std_TA
    if mean is None or deviation is None:
        return {"mean": None, "low": None, "high": None}
    low, high = np.tanh(mean - deviation), np.tanh(mean + deviation)
    return {"mean": numbers(np.tanh(mean)), "low": numbers(low), "high": numbers(high)}


def _taken(recording: TrialRecording) -> list[list[int]] | list[list[float]]:
    """For every transition the places in `actions` of the choices made, or the numbers of a continuous action."""
    action = recording.trajectory.action
    rows = action.reshape(len(action), -1)
    sizes = recording.insight.action_distributions.choices
    if not sizes:
        return rows.tolist()
    return (rows + np.array([0, *accumulate(sizes)][:-1])).tolist()


def _attention(attention: AttentionWeights) -> dict[str, Any]:
    layers, heads, moments, kept = attention.weight_LHTS.shape
    weight = np.rint(attention.weight_LHTS * _WHOLE_WEIGHT).astype("<u2")
    return {
        "layers": layers,
        "heads": heads,
        "moments": moments,
        "kept": kept,
        "memory_length": attention.memory_length,
        "weight": b64encode(weight.tobytes()).decode(),
        "key": b64encode(attention.key_LHTS.astype("<u2").tobytes()).decode(),
    }
