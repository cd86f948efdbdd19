"""TensorBoard's view of a run, written without a thread, so that a full disk is noticed where it happens."""

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tensorboardX import summary
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import RecordWriter


class TensorBoardWriter:
    """A new event file in a folder, which may have some; every write reaches the operating system at once.

    `begins_at`: the step from which on TensorBoard is to hide what other files in the folder have.
    """

    def __init__(self, folder: Path, *, begins_at: int) -> None:
        continues = folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = RecordWriter(str(folder / f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}"))
        try:
            self._add(Event(file_version="brain.Event:2"))
            if continues:
                self._add(Event(step=begins_at, session_log=SessionLog(status=SessionLog.START)))
            self._writer.flush()
        except OSError:
            self.close()
            raise

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers at a step."""
        for key, value in values.items():
            self._add(Event(step=step, summary=summary.scalar(key, value)))
        self._writer.flush()

    def close(self) -> None:
        """Nothing is left to write, but for what a full disk did not take before."""
        with suppress(OSError):
            self._writer.close()

    def _add(self, event: Event) -> None:
        event.wall_time = time.time()
        self._writer.write(event.SerializeToString())
