"""Stores for tests, and what can befall them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
from replay_examples import numbered

from yamame.data.database import TABLES, key_of
from yamame.data.store import LMDBReplayStore
from yamame.data.trajectory import Trajectory


def opened(directory: Path, capacity: int = 5, **settings: Any) -> LMDBReplayStore:
    return LMDBReplayStore(directory, capacity_trajectories=capacity, **{"cache_bytes": 1 << 20, **settings})


@contextmanager
def editing(directory: Path) -> Iterator[tuple[lmdb.Transaction, dict[str, Any]]]:
    """A transaction in a closed store, and its tables."""
    with lmdb.open(str(directory), max_dbs=len(TABLES), map_size=1 << 26) as environment:
        tables = {name: environment.open_db(name.encode()) for name in TABLES}
        with environment.begin(write=True) as transaction:
            yield transaction, tables


def on_disk(directory: Path) -> list[int]:
    with editing(directory) as (transaction, tables):
        return [int.from_bytes(key, "big") for key in transaction.cursor(tables["records"]).iternext(values=False)]


def corrupt(directory: Path, trajectory_id: int, byte: int = -1) -> None:
    """Flip the bits of a byte of a record."""
    with editing(directory) as (transaction, tables):
        record = bytearray(transaction.get(key_of(trajectory_id), db=tables["records"]))
        record[byte] ^= 0xFF
        transaction.put(key_of(trajectory_id), bytes(record), db=tables["records"])


def large(tag: int) -> Trajectory:
    """About 800 kB that do not compress."""
    trajectory = numbered(100, tag=tag)
    noise = np.random.default_rng(tag).integers(0, 256, (101, 8000), dtype=np.uint8)
    return Trajectory(**{**vars(trajectory), "observation": {"noise": noise}})
