"""Fields of the config that may have other values when a run is resumed, and what of them is written."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from yamame.config.differences import diff_configs, flatten_config
from yamame.errors import UserError
from yamame.run_config import RunConfig
from yamame.runs.directory import METADATA, RESULT
from yamame.runs.durable_files import write_json
from yamame.training.run_files import read_metadata

RESUMABLE = (
    "env_steps",
    "eval",
    "checkpoint",
    "fault_tolerance",
    "env.num_workers",
    "env.step_timeout_seconds",
    "learner.learning_rate",
    "learner.lr_decay_updates",
    "learner.lr_decay_env_steps",
    "learner.entropy_decay_env_steps",
    "learner.bonus_anneal_env_steps",
    "learner.max_grad_norm",
)
"""Fields and sections that may have other values when a run is resumed."""


def check_resumable(directory: Path, config: RunConfig, changed: RunConfig, *, env_steps: int | float | None) -> None:
    """Raise `UserError` for a field in which a run cannot change when it is resumed: in any if it has finished.

    Args:
        directory: Run directory.
        config: Config of the run.
        changed: Config with which it is to be resumed.
        env_steps: New number of environment steps; None: that of the config.
    """
    paths = diff_configs(config, changed)
    for path in paths:
        if not _is_resumable(path):
            raise UserError(
                f"{path} cannot change when a run is resumed, only {', '.join(RESUMABLE)} can: train a new run, which "
                "may start with the weights of this one (init_from)"
            )
    if paths and env_steps is None and (directory / RESULT).exists():
        raise UserError(f"{directory} has finished: pass env_steps, too, to train on with another {', '.join(paths)}")


def write_changes(directory: Path, saved: Mapping[str, Any], config: RunConfig) -> None:
    """Add the fields that a resume changes to the overrides in the metadata, unless that is unreadable.

    Args:
        directory: Run directory.
        saved: Flattened config of the checkpoint.
        config: Config from now on.
    """
    try:
        metadata = read_metadata(directory)
    except UserError:  # a run needs it for its report alone
        return
    overrides = dict(metadata.overrides)
    for path, value in flatten_config(config).items():
        if _is_resumable(path) and saved.get(path, value) != value:
            overrides[path] = overrides.get(path, (saved[path],))[0], value
    if overrides != metadata.overrides:
        write_json(directory / METADATA, asdict(replace(metadata, overrides=overrides)))


def _is_resumable(path: str) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in RESUMABLE)
