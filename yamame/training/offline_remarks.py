"""What is printed of offline data whose task is not quite that of the run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from yamame.config.serialization import parse_json, to_json
from yamame.data.database import is_store
from yamame.envs.config import EnvConfig
from yamame.runs.directory import CONFIG, TASK

_OF_PROCESSES = ("num_workers", "step_timeout_seconds")
"""Fields of `EnvConfig`s that say where a task is simulated, not which one it is."""


def offline_remarks(sources: Sequence[str], env: EnvConfig) -> list[str]:
    """Return a line for each source whose task has other settings than `env`, such as another size of the room.

    Such data is used all the same: its observations and actions fit. Sources that do not store the settings of their
    task, as Minari datasets, have no line.
    """
    expected, lines = to_json(env), []
    for source in sources:
        found = _stored_env(Path(source))
        settings = [name for name in expected if name in found and name not in _OF_PROCESSES]
        different = [name for name in settings if found[name] != expected[name]]
        if different:
            pairs = (f"env.{name} {json.dumps(found[name])}, not {json.dumps(expected[name])}" for name in different)
            lines.append(f"the data in {source} is of another task: {'; '.join(pairs)}")
    return lines


def _stored_env(source: Path) -> Mapping[str, Any]:
    """Return the JSON of the env config of a run, of its replay store, or of histories; empty if there is none."""
    run = source.parent if is_store(source) else source
    for path, part in ((source / TASK, None), (run / CONFIG, "env")):
        try:
            described = parse_json(path.read_text(encoding="utf-8"))
            env = described if part is None else described[part]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if isinstance(env, Mapping):
            return env
    return {}
