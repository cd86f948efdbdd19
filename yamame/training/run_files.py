"""Read the files of a run directory: its config, origin, spaces, trackers and results."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yamame.config.serialization import from_json, parse_json
from yamame.data.schema import TaskSpec
from yamame.data.spaces import space_from_json
from yamame.errors import UserError
from yamame.run_config import RunConfig
from yamame.runs.checkpoint import STATE, list_checkpoints
from yamame.runs.directory import CHECKPOINTS, CONFIG, METADATA, RESULT, SPACES, TRACKING, resolve_run_dir

RunResult = dict[str, Any]
"""The keys of `yamame train --json`."""


@dataclass(frozen=True, kw_only=True)
class RunMetadata:
    """Origin of a run's config."""

    recipe: str
    preset: str = "small"
    """Preset of the recipe."""
    expected: str = ""
    """Result that was measured with these settings, in words; "": there is none."""
    command: str = ""
    """Command line; empty for runs started from Python or by a sweep."""
    overrides: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Path of each changed field -> (the recipe's default, the run's value)."""


@dataclass(frozen=True, kw_only=True)
class TrackingRecord:
    """The experiment trackers of a run."""

    run_id: str
    """Id of the run in all of them."""
    trackers: tuple[str, ...] = ()
    """Their names."""
    env_steps: int = -1
    """Environment steps up to which they had the metrics of the run when it was last resumed."""

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{32}", self.run_id):
            raise ValueError(f"run_id is {self.run_id!r}")


def read_config(directory: Path) -> RunConfig:
    """Read the config of a run. Raises `UserError` if there is no run."""
    with _readable_json(resolve_run_dir(directory) / CONFIG) as content:
        return from_json(RunConfig, content)


def read_metadata(directory: Path) -> RunMetadata:
    """Read the origin of a run's config."""
    with _readable_json(resolve_run_dir(directory) / METADATA) as content:
        return from_json(RunMetadata, {**content, "type": RunMetadata}, "metadata")


def read_tracking(directory: Path) -> TrackingRecord | None:
    """Read the trackers of a run; None if it never had any."""
    if not (directory / TRACKING).exists():
        return None
    with _readable_json(directory / TRACKING) as content:
        return from_json(TrackingRecord, {**content, "type": TrackingRecord}, "tracking")


def read_task_spec(directory: Path, config: RunConfig | None = None) -> TaskSpec:
    """Read the spaces and the horizon of a run's task. `config` is as in `load_trained_run`."""
    mask_key = (config or read_config(directory)).env.action_mask_key
    with _readable_json(resolve_run_dir(directory) / SPACES) as content:
        horizon = content["horizon"]
        if type(horizon) is not int or horizon < 1:
            raise ValueError(f"horizon is {horizon!r}")
        return TaskSpec(
            observation_space=space_from_json(content["observation_space"]),
            action_space=space_from_json(content["action_space"]),
            horizon=horizon,
            action_mask_key=mask_key,
        )


def read_result(directory: Path) -> RunResult | None:
    """Read the result of a run; None if it has not finished."""
    if not (resolve_run_dir(directory) / RESULT).exists():
        return None
    with _readable_json(directory / RESULT) as result:
        return result


def random_baseline(directory: Path) -> RunResult | None:
    """Return the evaluation of uniformly random actions; None if the run has none yet, or an older version made it.

    It is in the result of a finished run, and in the JSON file of the latest checkpoint of another one.
    """
    result = read_result(directory)
    if result is None:
        result = _latest_train_state(directory / CHECKPOINTS)
    baseline: RunResult | None = result.get("random_baseline")
    return baseline


def _latest_train_state(checkpoints: Path) -> dict[str, Any]:
    """Return the counters of the latest checkpoint, without its tensors; empty if they cannot be read."""
    try:
        latest = list_checkpoints(checkpoints)[0]
        state = parse_json((latest / STATE).read_text(encoding="utf-8"))["train_state"]
        return dict(state)
    except (OSError, LookupError, TypeError, ValueError):
        return {}


def random_baseline_return(directory: Path) -> float | None:
    """Return the mean return of uniformly random actions; None as in `random_baseline`."""
    baseline = random_baseline(directory)
    mean: float | None = baseline["return_mean"] if baseline else None
    return mean


@contextmanager
def _readable_json(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON object in a file. Raises `UserError` if the file or the body fails."""
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise TypeError("it is not a JSON object")
        yield content
    except UserError:
        raise
    except Exception as problem:  # a corrupted file can make parsers raise anything
        raise UserError(f"{path} cannot be read ({problem}): the run directory is corrupted") from problem
