"""Reading a replay database whose file may be damaged, record by record and without dying of it."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from yamame.data import salvage_process as careful_child
from yamame.data.salvage_process import FRAME, Kind


@dataclass(frozen=True, kw_only=True)
class Found:
    """One thing in a database: a record, its mark, a problem in reading it, or why one was set aside."""

    kind: Kind
    """Marks come before all records."""
    key: bytes
    value: bytes


def read_all(directory: Path) -> Iterator[Found]:
    """All that can be read, in a process of its own; beside processes that write, too."""
    command = [sys.executable, "-I", careful_child.__file__, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        try:
            while header := child.stdout.read(FRAME.size):
                kind, key_bytes, value_bytes = FRAME.unpack(header)
                yield Found(kind=Kind(kind), key=child.stdout.read(key_bytes), value=child.stdout.read(value_bytes))
        except GeneratorExit:
            child.kill()
            raise
    if child.returncode:
        yield Found(kind=Kind.PROBLEM, key=b"", value=b"nothing more can be read")


def is_whole(directory: Path) -> bool:
    """Whether every record can be read, whatever is inside."""
    return all(found.kind is not Kind.PROBLEM for found in read_all(directory))
