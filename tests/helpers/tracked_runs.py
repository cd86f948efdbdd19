"""What real trackers have stored of runs, read with their own readers."""

import json
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

STORES = {
    "WANDB_MODE": "offline",
    "WANDB_DIR": "{folder}",
    "WANDB_SILENT": "true",
    "TRACKIO_DIR": "{folder}/trackio",
    "MLFLOW_TRACKING_URI": "sqlite:///{folder}/mlflow.db",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


@contextmanager
def trackers_in(folder: Path) -> Iterator[None]:
    """Inside, trackers write to a folder and use no network."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in STORES.items():
            patch.setenv(name, value.format(folder=folder))
        for name in ("WANDB_PROJECT", "TRACKIO_PROJECT", "MLFLOW_EXPERIMENT_NAME"):
            patch.delenv(name, raising=False)
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "trackio" and hasattr(module, "TRACKIO_DIR"):  # read when it was imported
                patch.setattr(module, "TRACKIO_DIR", folder / "trackio")
        yield
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()  # it has read its variables, too


@dataclass
class TrackedRun:
    """A run in a tracker."""

    run_id: str
    config: dict[str, Any]
    lines: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    """Step and values by key of each call of `log`."""
    result: dict[str, float] = field(default_factory=dict)
    endings: list[Any] = field(default_factory=list)
    """Exit code or status of each process."""


def read_wandb(folder: Path) -> list[TrackedRun]:
    """All runs of offline files in WANDB_DIR, oldest first. A process that is killed leaves no ending."""
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()  # its service can still be writing after a run has finished
    files = [list(_wandb_records(path)) for path in folder.glob("wandb/offline-run-*/*.wandb")]
    files.sort(key=_start_nanoseconds)  # names of folders have seconds only
    runs: dict[str, TrackedRun] = {}
    for records in files:
        run_id = ""
        for record in records:
            kind = record.WhichOneof("record_type")
            if kind == "run":
                run_id = record.run.run_id
                config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
                runs.setdefault(run_id, TrackedRun(run_id, config)).config = config
            elif kind == "history":
                items = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                values = {key: value for key, value in items.items() if not key.startswith("_")}
                runs[run_id].lines.append((record.history.step.num, values))
            elif kind == "summary":
                items = {item.key: json.loads(item.value_json) for item in record.summary.update}
                runs[run_id].result |= {key: value for key, value in items.items() if key.startswith("result/")}
            elif kind == "exit":
                runs[run_id].endings.append(record.exit.exit_code)
    return list(runs.values())


def _start_nanoseconds(records: list[Any]) -> int:
    """Return when a run started; 0 for a process that was killed before it had written anything."""
    return next((record.run.start_time.ToNanoseconds() for record in records if record.HasField("run")), 0)


def _wandb_records(path: Path) -> Iterator[Any]:
    """Records of W&B's offline file: W&B's messages in LevelDB's log format, of blocks of 32 KiB."""
    from wandb.proto.wandb_internal_pb2 import Record

    header, block, whole, last = 7, 32_768, 1, 4
    content = path.read_bytes()
    assert content[:4] == b":W&B"
    at, record = header, b""
    while at + header <= len(content):
        if block - at % block < header:
            at += block - at % block
            continue
        _, length, kind = struct.unpack_from("<IHB", content, at)
        record += content[at + header : at + header + length]
        at += header + length
        if kind in (whole, last):
            yield Record.FromString(record)
            record = b""


def read_trackio(folder: Path) -> list[TrackedRun]:
    """All runs of the project `yamame` in TRACKIO_DIR, which must be `folder` where trackio is imported."""
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    assert Path(trackio.utils.TRACKIO_DIR) == folder
    runs = []
    for stored in trackio.Api().runs("yamame"):
        run = TrackedRun(stored.name, stored.config)
        for line in SQLiteStorage.get_logs("yamame", stored.name):
            values = {key: value for key, value in line.items() if key not in ("step", "timestamp")}
            if any(key.startswith("result/") for key in values):
                run.result = values
            else:
                run.lines.append((line["step"], values))
        runs.append(run)
    return runs


def read_mlflow() -> list[TrackedRun]:
    """All runs of the experiment `yamame` in MLFLOW_TRACKING_URI."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("yamame")
    assert experiment is not None
    runs = []
    for stored in client.search_runs([experiment.experiment_id]):
        lines: dict[int, dict[str, float]] = {}
        result = {}
        for key, value in stored.data.metrics.items():
            if key.startswith("result/"):
                result[key] = value
                continue
            for metric in client.get_metric_history(stored.info.run_id, key):
                assert key not in lines.setdefault(metric.step, {}), "logged twice"
                lines[metric.step][key] = metric.value
        run_id = stored.data.tags["yamame.run_id"]
        ending = [stored.info.status]
        runs.append(TrackedRun(run_id, dict(stored.data.params), sorted(lines.items()), result, ending))
    return runs
