"""What `result.json` of a run has, for tests that write it by hand."""

from typing import Any


def evaluation_of(return_per_attempt: list[float], **changes: Any) -> dict[str, Any]:
    """The JSON of an evaluation over 8 trials without a success signal; the mean return is the sum of the attempts."""
    mean = sum(return_per_attempt)
    return {
        "return_mean": mean,
        "return_ci95": [mean, mean],
        "return_per_attempt": return_per_attempt,
        "return_per_attempt_ci95": [[each, each] for each in return_per_attempt],
        "success_rate": None,
        "success_per_attempt": None,
        "success_per_attempt_ci95": None,
        "trials": 8,
        **changes,
    }


def result_of(return_per_attempt: list[float], **changes: Any) -> dict[str, Any]:
    """The JSON of a result without an evaluation of random actions."""
    return evaluation_of(return_per_attempt) | {"train_tasks": None, "env_steps": 100, "updates": 1} | changes
