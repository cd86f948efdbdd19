"""Stores for tests, and what can befall them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from replay_examples import numbered

from yamame.data.store import ReplayStore
from yamame.data.trajectory import Trajectory


def opened(directory: Path, capacity: int = 5, **settings: Any) -> ReplayStore:
    return ReplayStore(directory, capacity_trajectories=capacity, **{"cache_bytes": 1 << 20, **settings})


@contextmanager
def editing(directory: Path) -> Iterator[sqlite3.Connection]:
    """A transaction in a closed store, in which no constraint is checked."""
    with closing(sqlite3.connect(directory / "replay.sqlite")) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        yield connection


def on_disk(directory: Path) -> list[int]:
    with editing(directory) as connection:
        return [record_id for (record_id,) in connection.execute("SELECT id FROM records ORDER BY id")]


def record_of(directory: Path, trajectory_id: int) -> bytes:
    with editing(directory) as connection:
        record: bytes = connection.execute("SELECT record FROM records WHERE id = ?", (trajectory_id,)).fetchone()[0]
    return record


def replace_record(directory: Path, trajectory_id: int, record: object) -> None:
    with editing(directory) as connection:
        connection.execute("UPDATE records SET record = ? WHERE id = ?", (record, trajectory_id))


def corrupt(directory: Path, trajectory_id: int, byte: int = -1) -> None:
    """Flip the bits of a byte of a record."""
    record = bytearray(record_of(directory, trajectory_id))
    record[byte] ^= 0xFF
    replace_record(directory, trajectory_id, bytes(record))


def large(tag: int) -> Trajectory:
    """About 800 kB that do not compress."""
    trajectory = numbered(100, tag=tag)
    noise = np.random.default_rng(tag).integers(0, 256, (101, 8000), dtype=np.uint8)
    return Trajectory(**{**vars(trajectory), "observation": {"noise": noise}})
