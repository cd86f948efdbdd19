"""What a worker process does: step its rows of the environments when it is told to, until its parent is gone."""

import itertools
import mmap
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import CloudpickleWrapper
from jaxtyping import Bool, Float32, Shaped

from yamame.data.actions import ACTION_MASK_KEY, NativeActionSpace, action_shape, num_choices, policy_action_space
from yamame.data.spaces import flatten_space, stored_dtype, stored_shape
from yamame.envs.vector.restarting import fault_from_exception
from yamame.envs.vector.serial import SerialVectorEnv, make_envs
from yamame.errors import UserError
from yamame.types import Fault

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


_ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True)
class SharedBuffers:
    """The arguments and results of `Environments.reset` and `step`; each worker writes its own rows."""

    reset_mask: Bool[np.ndarray, "E"]
    new_task: Bool[np.ndarray, "E"]
    action: Shaped[np.ndarray, "E ..."]
    """int64 `[E]` or `[E, C]`, or float64 `[E, A]`, which holds every float32 exactly."""
    reward: Float32[np.ndarray, "E"]
    terminated: Bool[np.ndarray, "E"]
    truncated: Bool[np.ndarray, "E"]
    success: Bool[np.ndarray, "E"]
    failed: Bool[np.ndarray, "E"]
    has_success: Bool[np.ndarray, "E"]
    """Whether `success` means anything in this row."""
    has_action_mask: Bool[np.ndarray, "E"]
    """Whether there are action masks in this row."""
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]]
    """What was last seen in every row; where actions are discrete, with a place for their mask."""


def create_memfd() -> int:
    """Descriptor of an empty file without a name, in memory where the system can: closed, nothing is left of it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("yamame-environments")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def map_buffers(
    file: int,
    observation_space: spaces.Space[Any],
    action_space: NativeActionSpace,
    num_envs: int,
    action_mask_key: str,
) -> SharedBuffers:
    """The arrays for environments of these spaces in a file: the same memory in every process that maps it."""
    action = (
        action_shape(policy_action_space(action_space)),
        np.float64 if isinstance(action_space, spaces.Box) else np.int64,
    )
    fields = {
        "reset_mask": ((), np.bool_),
        "new_task": ((), np.bool_),
        "action": action,
        "reward": ((), np.float32),
        "terminated": ((), np.bool_),
        "truncated": ((), np.bool_),
        "success": ((), np.bool_),
        "failed": ((), np.bool_),
        "has_success": ((), np.bool_),
        "has_action_mask": ((), np.bool_),
    }
    blank = {name: np.zeros((num_envs, *shape), dtype) for name, (shape, dtype) in fields.items()}
    leaves = {
        name: np.zeros((num_envs, *stored_shape(leaf)), stored_dtype(leaf))
        for name, leaf in flatten_space(observation_space).items()
        if name != action_mask_key
    }
    if sizes := num_choices(action_space):
        leaves[ACTION_MASK_KEY] = np.zeros((num_envs, sum(sizes)), np.bool_)
    mapped = _map(file, [*blank.values(), *leaves.values()])
    observation = dict(zip(leaves, mapped[len(blank) :], strict=True))
    return SharedBuffers(observation=observation, **dict(zip(blank, mapped[: len(blank)], strict=True)))


def _map(file: int, like: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Arrays of these shapes and dtypes, one after the other in a file."""
    starts = [0, *itertools.accumulate(-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in like)]
    os.ftruncate(file, starts[-1])
    memory = mmap.mmap(file, starts[-1])
    return [
        np.frombuffer(memory, array.dtype, array.size, start).reshape(array.shape)
        for array, start in zip(like, starts, strict=False)
    ]


RESET, STEP = b"r", b"s"
"""What a worker is asked to do with what the exchange says."""
OK, RECOVERED, ERROR, RESTARTING = b".", b"?", b"!", b"~"
"""What it answers. The second is followed by what was survived, a list of `Fault`, the third by a `Failure`; the fourth
only says that an environment is being made anew, and that it takes longer."""


@dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """What a worker is given first; it answers with its observation and action space."""

    make: Callable[[], gymnasium.Env[Any, Any]]
    num_envs: int
    """Environments of all workers together."""
    rows: slice
    """Those of this one."""
    seed: int
    action_mask_key: str
    """See `ActionMaskExtractor`."""


@dataclass(frozen=True, kw_only=True)
class RemoteError:
    """An exception on its way to another process."""

    fault: Fault
    is_user_error: bool = False
    """Whether it was a `UserError`."""


def worker_main(socket_file: int, memory_file: int) -> None:
    """The whole life of a worker."""
    channel = Channel(socket.socket(fileno=socket_file))
    with suppress(ConnectionError):
        try:
            rows = _Rows(channel.receive(), memory_file, channel)
        except Exception as error:
            _report(error, channel)
            return
        channel.send_byte(OK)
        channel.send(serialize(rows.spaces))
        while True:
            command = channel.receive_byte()
            try:
                faults = rows.reset() if command == RESET else rows.step()
            except Exception as error:
                _report(error, channel)
                continue
            channel.send_byte(RECOVERED if faults else OK)
            if faults:
                channel.send(serialize(list(faults)))
    rows.close()


class _Rows:
    """The environments of one worker; arguments and results lie in the exchange."""

    def __init__(self, share: WorkerSpec, memory_file: int, channel: Channel) -> None:
        def make_again() -> gymnasium.Env[Any, Any]:
            channel.send_byte(RESTARTING)
            return share.make()

        singles = make_envs(share.make, share.rows.stop - share.rows.start)
        self._environments = SerialVectorEnv(
            singles, share.seed, make=make_again, first_row=share.rows.start, action_mask_key=share.action_mask_key
        )
        self.spaces = self._environments.observation_space, self._environments.env_action_space
        self._exchange = map_buffers(memory_file, *self.spaces, share.num_envs, share.action_mask_key)
        self._rows = share.rows

    def reset(self) -> Sequence[Fault]:
        exchange, rows = self._exchange, self._rows
        self._show(self._environments.reset(exchange.reset_mask[rows], exchange.new_task[rows]))
        return ()

    def step(self) -> Sequence[Fault]:
        exchange, rows = self._exchange, self._rows
        step = self._environments.step(exchange.action[rows])
        exchange.reward[rows] = step.reward
        exchange.terminated[rows] = step.terminated
        exchange.truncated[rows] = step.truncated
        exchange.failed[rows] = ~step.is_transition
        if step.success is not None:
            exchange.success[rows] = step.success
            exchange.has_success[rows] = True
        self._show(step.observation)
        return step.faults

    def close(self) -> None:
        self._environments.close()

    def _show(self, observation: Mapping[str, Shaped[np.ndarray, "rows ..."]]) -> None:
        for name, leaf in observation.items():
            self._exchange.observation[name][self._rows] = leaf
        self._exchange.has_action_mask[self._rows] = ACTION_MASK_KEY in observation


def _report(error: Exception, channel: Channel) -> None:
    failure = (
        RemoteError(fault=Fault(kind="exception", message=str(error)), is_user_error=True)
        if isinstance(error, UserError)
        else RemoteError(fault=fault_from_exception(error, "a worker process"))
    )
    channel.send_byte(ERROR)
    channel.send(serialize(failure))
