"""Read the files of a run directory: its config, origin, spaces, trackers and results."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yamame.config.coercion import coerce_field, field_types
from yamame.config.serialization import from_json, parse_json, to_tree
from yamame.data.schema import TaskSpec
from yamame.data.spaces import space_from_json
from yamame.errors import FieldPathError, UserError
from yamame.run_config import RunConfig
from yamame.runs.checkpoint import STATE, list_checkpoints
from yamame.runs.directory import CHECKPOINTS, CONFIG, METADATA, RESULT, SPACES, TRACKING, resolve_run_dir
from yamame.training.evaluate import EVAL_KEYS, EvalResult

RunResult = dict[str, Any]
"""The keys of `yamame train --json`."""
_EVAL_TYPES = {name: field_types(EvalResult)[name] for name in EVAL_KEYS}
_RESULT_TYPES = {**_EVAL_TYPES, "env_steps": int, "updates": int}
"""Key that every result has -> type of its value."""
_OTHER_TYPES: Mapping[str, Any] = {
    **dict.fromkeys(("wall_seconds", "train_seconds", "env_steps_per_second", "updates_per_second"), float),
    **dict.fromkeys(("seed", "policy_index"), int),
    "deterministic_actions": bool,
    "end_reason": str | None,
}
"""Key that some results lack, such as those of policy folders -> type of its value."""
_EVALUATIONS = ("random_baseline", "train_tasks")
"""Keys of further evaluations, which some results lack."""


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
    overrides: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
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
    with _readable_json(directory / RESULT) as content:
        others = {name: kind for name, kind in _OTHER_TYPES.items() if name in content}
        evaluations = [name for name in _EVALUATIONS if content.get(name) is not None]
        result = _coerce_values(content, {**_RESULT_TYPES, **others})
        return result | {name: _coerce_values(content[name], _EVAL_TYPES, f"{name}.") for name in evaluations}


def _coerce_values(content: Any, types: Mapping[str, Any], prefix: str = "") -> RunResult:
    """Return a JSON object with values of these types. Raises ValueError if one is missing, or `FieldPathError`."""
    if not isinstance(content, dict):
        raise ValueError(f"{prefix.rstrip('.')} is not a JSON object")
    if missing := [name for name in types if name not in content]:
        raise ValueError(f"it has no {prefix}{missing[0]}")
    return content | {name: to_tree(coerce_field(content[name], types[name], f"{prefix}{name}")) for name in types}


def random_baseline(directory: Path) -> RunResult | None:
    """Return the evaluation of uniformly random actions; None if the run has none yet, or an older version made it.

    It is in the result of a finished run, and in the JSON file of the latest checkpoint of another one.
    """
    result = read_result(directory)
    return _baseline_in_checkpoint(directory / CHECKPOINTS) if result is None else result.get("random_baseline")


def _baseline_in_checkpoint(checkpoints: Path) -> RunResult | None:
    """Return the evaluation of random actions in the latest checkpoint, without its tensors; None if unreadable."""
    try:
        latest = list_checkpoints(checkpoints)[0]
        baseline = parse_json((latest / STATE).read_text(encoding="utf-8"))["train_state"]["random_baseline"]
        return _coerce_values(baseline, _EVAL_TYPES, "random_baseline.")
    except (OSError, LookupError, TypeError, ValueError, RecursionError, UserError):
        return None


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
    except FieldPathError as error:  # which names the field alone
        raise UserError(f"{path}: {error}") from error
    except UserError:
        raise
    except Exception as problem:  # a corrupted file can make parsers raise anything
        raise UserError(f"{path} cannot be read ({problem}): the run directory is corrupted") from problem
