"""Messages that docs/fault_tolerance.md quotes are those of the code: each fault is provoked. `…` is any text."""

import re
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from documents import SMALL_RUN
from guide_reader import DOCS
from gymnasium import spaces
from replay_examples import numbered

import yamame
from yamame import cli
from yamame.data.codec import MAGIC, SCHEMA_VERSION, CorruptedRecordError, decode, encode
from yamame.data.schema import TrajectorySchema
from yamame.runs.checkpoint import list_checkpoints

PAGE = (DOCS / "fault_tolerance.md").read_text(encoding="utf-8")
RECORD = encode(numbered(5))
SCHEMA = TrajectorySchema.from_spaces(spaces.Box(-np.inf, np.inf, (1,)), spaces.Discrete(9))


def quoted(header: str) -> dict[str, str]:
    """First cell -> message of each row of the table with this header. AssertionError for a row without a message."""
    rows = re.search(rf"^\| {re.escape(header)} \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert rows, header
    found = re.findall(r"^\| (.*?) \|[^`]*`([^`]*)`[^`]*\|$", rows[1], re.MULTILINE)
    assert len(found) == rows[1].count("\n"), f"a row of {header!r} quotes no message"
    return dict(found)


REASONS = quoted("record | reason")
RESUME_LINES = quoted("difference | line of `resume`")


def is_quoted(message: str, quotation: str) -> bool:
    return re.fullmatch(".+".join(map(re.escape, quotation.split("…"))), message) is not None


def with_version(record: bytes, version: int) -> bytes:
    return record[:4] + version.to_bytes(2, "little") + record[6:]


def with_payload(payload: bytes) -> bytes:
    """A record of version 1 whose length and checksum are right."""
    checksum = zlib.crc32(struct.pack("<HQ", 1, len(payload)) + payload)
    return struct.pack("<4sHIQ", MAGIC, 1, checksum, len(payload)) + payload


BYTES: dict[str, tuple[bytes, ...]] = {
    "empty, or written by another program": (b"", b"SQLite format 3\0" + RECORD),
    "cut short, or with bytes behind its end": (RECORD[:-7], RECORD + b"more"),
    "cut short within its header": (RECORD[:9],),
    "with flipped bits": (RECORD[:-1] + bytes([RECORD[-1] ^ 16]), RECORD[:30] + bytes([RECORD[30] ^ 1]) + RECORD[31:]),
    "written by a later version of Yamame": (with_version(RECORD, SCHEMA_VERSION + 1),),
    "of another program, with a checksum of ours": (with_payload(b"not compressed at all"),),
}
TRAJECTORIES: dict[str, dict[str, Any]] = {
    "with arrays that do not match each other": {"reward": np.zeros(4, np.float64)},
    "with NaN or infinity": {"reward": np.full(5, np.nan, np.float32)},
    "of a task with other observations": {"observation": {"position": np.zeros((6, 1), np.float32)}},
    "with actions outside of the space": {"action": np.full(5, 9)},
}
"""Fields of a trajectory that has been changed on the disk."""


@pytest.mark.parametrize("record", REASONS)
def test_a_reason_for_a_quarantine(record: str) -> None:
    if record in TRAJECTORIES:
        trajectory = numbered(5)
        for name, value in TRAJECTORIES[record].items():
            object.__setattr__(trajectory, name, value)  # without the checks of its constructor
        assert is_quoted(SCHEMA.validation_error(trajectory), REASONS[record])
    for data in BYTES.get(record, ()):
        with pytest.raises(CorruptedRecordError) as error:
            decode(data)
        assert is_quoted(str(error.value), REASONS[record])
    assert record in {**TRAJECTORIES, **BYTES}, "no fault of the test provokes this row"


def test_every_fault_has_its_row() -> None:
    assert set(REASONS) == {*BYTES, *TRAJECTORIES} and set(RESUME_LINES) == set(FAULTS)
    assert decode(RECORD).reward.size == 5 and not SCHEMA.validation_error(numbered(5))


def corrupt_the_latest_checkpoint(run: Path) -> None:
    latest = list_checkpoints(run / "checkpoints")[0]
    weights = max(latest.iterdir(), key=lambda path: path.stat().st_size)
    weights.write_bytes(weights.read_bytes()[:-1])


def change_a_norm(run: Path) -> None:
    change_the_config(run, "max_grad_norm", 0.5)


def change_the_network(run: Path) -> None:
    change_the_config(run, "d_model", 32)


def change_the_config(run: Path, field: str, value: float) -> None:
    path = run / "config.json"
    text, count = re.subn(rf'"{field}": [\d.e-]+', f'"{field}": {value}', path.read_text())
    assert count == 1
    path.write_text(text)


def shorten_the_metrics(run: Path) -> None:
    path = run / "metrics.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def spoil_a_line_of_the_metrics(run: Path) -> None:
    path = run / "metrics.jsonl"
    path.write_bytes(b"[" + path.read_bytes()[1:])


def delete_the_replay(run: Path) -> None:
    shutil.rmtree(run / "replay")


FAULTS: dict[str, Callable[[Path], None] | None] = {
    "the latest checkpoint is corrupted": corrupt_the_latest_checkpoint,
    "fields of the config were changed": change_a_norm,
    "the config is that of another network": change_the_network,
    "`metrics.jsonl` is shorter": shorten_the_metrics,
    "lines of `metrics.jsonl` are unreadable": spoil_a_line_of_the_metrics,
    "the state of the environments cannot be restored": None,
    "trajectories are missing": delete_the_replay,
}


class Unrestorable(gymnasium.Env[np.ndarray, int]):
    """Pays for action 1; it has no `state_dict`."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, **_: object) -> tuple[np.ndarray, dict[str, object]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        return np.zeros(1, np.float32), float(action), False, False, {}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stands between two iterations, with two checkpoints and trials in flight."""
    run = tmp_path_factory.mktemp("trained") / "run"
    settings = {**SMALL_RUN, "num_envs": 8, "env_steps_per_iteration": 40, "checkpoint.interval_seconds": 0.0}
    yamame.train("passive-tmaze", horizon=12, env_steps=200, run_dir=run, **settings)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("difference", [name for name, fault in FAULTS.items() if fault])
def test_a_line_of_resume(difference: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    fault = FAULTS[difference]
    assert fault is not None
    fault(run)
    code = cli.main(["resume", str(run), "--env-steps", "280", "--quiet"])
    assert code == (2 if RESUME_LINES[difference].startswith("yamame: ") else 0)
    (line,) = capsys.readouterr().err.splitlines()
    assert is_quoted(line, RESUME_LINES[difference])


@pytest.mark.slow
def test_resume_says_that_environments_cannot_be_restored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {**SMALL_RUN, "num_envs": 4, "env_steps_per_iteration": 40}
    run = yamame.train(Unrestorable, horizon=15, env_steps=80, run_dir=tmp_path / "run", **settings)
    capsys.readouterr()
    yamame.resume(run.directory, env_fn=Unrestorable, env_steps=120)
    (line,) = capsys.readouterr().err.splitlines()
    assert is_quoted(line, RESUME_LINES["the state of the environments cannot be restored"])
