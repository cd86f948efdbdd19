"""Signals of one byte, and messages where there is more to say, between two processes."""

import pickle
import socket
import struct
from contextlib import suppress
from typing import Any

from gymnasium.vector.utils import CloudpickleWrapper

_LENGTH = struct.Struct("!Q")


class Channel:
    """One end of a socket pair. Every method raises `ConnectionError` as soon as the other end is gone."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def set_timeout(self, seconds: float | None) -> None:
        """From now on every method raises `TimeoutError` when the other end is silent for longer; None: never."""
        self._socket.settimeout(seconds)

    def send_byte(self, byte: bytes) -> None:
        """Send one byte: what a vector step costs is mostly the waking up that this causes."""
        self._socket.sendall(byte)

    def receive_byte(self) -> bytes:
        """The next byte that the other end sends."""
        return self._read(1)

    def send(self, message: bytes) -> None:
        """Send what `packed` gave."""
        self._socket.sendall(_LENGTH.pack(len(message)) + message)

    def receive(self) -> Any:
        """The next message, unpacked."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return pickle.loads(self._read(length)).fn

    def close(self) -> None:
        """Let the other end know, even where another process still holds this end."""
        with suppress(OSError):  # the other end is gone already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, length: int) -> bytes:
        parts = bytearray()
        while len(parts) < length:
            part = self._socket.recv(length - len(parts))
            if not part:
                raise ConnectionResetError("the other end is closed")
            parts += part
        return bytes(parts)


def serialize(message: Any) -> bytes:
    """Any object as bytes, functions and classes by value where no import finds them. Raises what pickling raises."""
    return pickle.dumps(CloudpickleWrapper(message))
