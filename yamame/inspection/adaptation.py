"""The adaptation curve: how well an agent does in attempt 1, 2, ... on a task that it has not met before."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yamame.records.errors import UserError
from yamame.run.session import LATEST, evaluate_run, read_result

Pairs = list[tuple[float, float]]


@dataclass(frozen=True, kw_only=True)
class AdaptationCurve:
    """Means over trials, attempt by attempt, with 95 % intervals."""

    source: str
    """What was judged, such as `the end of the run`."""
    trials: int
    return_per_attempt: list[float]
    return_ci95: Pairs
    success_per_attempt: list[float] | None
    """None where the task announces no success."""
    success_ci95: Pairs | None


def load_final_adaptation(directory: Path) -> AdaptationCurve | None:
    """What the evaluation at the end of a run has found; None where it has not come to its end."""
    result = read_result(directory)
    if result is None or result.get("return_per_attempt") is None:
        return None
    return _adaptation(result, "the end of the run", directory)


def measure_adaptation(
    directory: Path, *, checkpoint: str = LATEST, trials: int = 64, seed: int | None = None, instruction: str = ""
) -> AdaptationCurve:
    """What a checkpoint achieves now; arguments and errors as of `evaluate_run`."""
    found = evaluate_run(directory, trials=trials, seed=seed, instruction=instruction, checkpoint=checkpoint)
    return _adaptation(found, f"the checkpoint of update {found['updates']:,}", directory)


def _adaptation(found: Mapping[str, Any], source: str, directory: Path) -> AdaptationCurve:
    try:
        success, success_ci95 = found["success_per_attempt"], found["success_per_attempt_ci95"]
        return AdaptationCurve(
            source=source,
            trials=int(found["trials"]),
            return_per_attempt=[float(mean) for mean in found["return_per_attempt"]],
            return_ci95=_pairs(found["return_per_attempt_ci95"]),
            success_per_attempt=None if success is None else [float(rate) for rate in success],
            success_ci95=None if success_ci95 is None else _pairs(success_ci95),
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise UserError(
            f"the result of {directory} cannot be read ({problem!r}): the run directory is damaged"
        ) from None


def _pairs(pairs: Any) -> Pairs:
    return [(float(low), float(high)) for low, high in pairs]
