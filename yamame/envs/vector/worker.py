"""Main function of a worker process, and its channel and shared memory to the parent process."""

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
from jaxtyping import Bool, Float64, Shaped

from yamame.data.actions import ACTION_MASK_KEY, NativeActionSpace, action_shape, num_choices, policy_action_space
from yamame.data.spaces import flatten_space, stored_dtype, stored_shape
from yamame.envs.vector.construction import make_envs
from yamame.envs.vector.faults import ENV_ERRORS, InvalidEnvOutputError, WorkerError, fault_from_exception
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.errors import UserError
from yamame.types import Fault

RESET, STEP = b"r", b"s"
"""Commands to a worker, whose arguments are in the shared buffers."""
OK, RECOVERED, ERROR, RESTARTING = b".", b"?", b"!", b"~"
"""Replies of a worker. RECOVERED is followed by a list of `Fault`, ERROR by a `UserError` or `WorkerError`. RESTARTING
is not the last reply: an environment is being replaced, so the command takes longer."""
_FLAGS = ("reset_mask", "new_task", "terminated", "truncated", "success", "failed", "has_success", "has_action_mask")
"""Columns of `SharedBuffers` with one bool for each environment."""
_LENGTH = struct.Struct("!Q")
_ALIGNMENT = 64


class Channel:
    """One end of a socket pair. Every method raises `ConnectionError` if the other end is closed."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def set_timeout(self, seconds: float | None) -> None:
        """Set the time after which every method raises `TimeoutError` if the other end is silent; None: never."""
        self._socket.settimeout(seconds)

    def send_byte(self, byte: bytes) -> None:
        """Send one byte. Most of the cost of a vector step is the wake-up that this causes."""
        self._socket.sendall(byte)

    def receive_byte(self) -> bytes:
        """Return the next byte from the other end."""
        return self._read(1)

    def send(self, message: bytes) -> None:
        """Send the result of `serialize`."""
        self._socket.sendall(_LENGTH.pack(len(message)) + message)

    def receive(self) -> Any:
        """Return the next message, deserialized."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return pickle.loads(self._read(length)).fn

    def close(self) -> None:
        """Close the connection, even if another process holds this end as well."""
        with suppress(OSError):  # the other end is closed already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read(self, length: int) -> bytes:
        received = bytearray()
        while len(received) < length:
            data = self._socket.recv(length - len(received))
            if not data:
                raise ConnectionResetError("the other end is closed")
            received += data
        return bytes(received)


def serialize(message: Any) -> bytes:
    """Return any object as bytes; functions and classes that cannot be imported by value. Raises as pickle does."""
    return pickle.dumps(CloudpickleWrapper(message))


@dataclass(frozen=True, kw_only=True)
class SharedBuffers:
    """Arguments and results of `EpisodeVectorEnv.reset` and `step` in shared memory. A worker writes its own rows."""

    reset_mask: Bool[np.ndarray, "E"]
    new_task: Bool[np.ndarray, "E"]
    action: Shaped[np.ndarray, "E ..."]
    """int64 `[E]` or `[E, C]`, or float64 `[E, A]`, which represents every float32 exactly."""
    reward: Float64[np.ndarray, "E"]
    terminated: Bool[np.ndarray, "E"]
    truncated: Bool[np.ndarray, "E"]
    success: Bool[np.ndarray, "E"]
    failed: Bool[np.ndarray, "E"]
    has_success: Bool[np.ndarray, "E"]
    """Whether `success` is meaningful in this row."""
    has_action_mask: Bool[np.ndarray, "E"]
    """Whether this row has an action mask."""
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]]
    """Last observation of every row, with a leaf for action masks if actions are discrete."""


def create_memfd() -> int:
    """Return the descriptor of an empty anonymous file, in memory where the system supports it."""
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
    """Map the buffers for environments of these spaces into a file: shared by every process that maps it."""
    policy_space = policy_action_space(action_space)
    action_dtype = np.float64 if isinstance(policy_space, spaces.Box) else np.int64
    arrays = {name: np.zeros(num_envs, np.bool_) for name in _FLAGS} | {
        "action": np.zeros((num_envs, *action_shape(policy_space)), action_dtype),
        "reward": np.zeros(num_envs, np.float64),
    }
    leaves = {
        name: np.zeros((num_envs, *stored_shape(leaf)), stored_dtype(leaf))
        for name, leaf in flatten_space(observation_space).items()
        if name != action_mask_key
    }
    if sizes := num_choices(action_space):
        leaves[ACTION_MASK_KEY] = np.zeros((num_envs, sum(sizes)), np.bool_)
    like = [*arrays.values(), *leaves.values()]
    starts = [0, *itertools.accumulate(-(-array.nbytes // _ALIGNMENT) * _ALIGNMENT for array in like)]
    os.ftruncate(file, starts[-1])
    memory = mmap.mmap(file, starts[-1])
    mapped = [
        np.frombuffer(memory, array.dtype, array.size, start).reshape(array.shape)
        for array, start in zip(like, starts, strict=False)
    ]
    observation = dict(zip(leaves, mapped[len(arrays) :], strict=True))
    return SharedBuffers(observation=observation, **dict(zip(arrays, mapped[: len(arrays)], strict=True)))


@dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """First message to a worker, which replies with its observation and action space."""

    env_fn: Callable[[], gymnasium.Env[Any, Any]]
    num_envs: int
    """Number of environments of all workers together."""
    rows: slice
    """Environments of this worker."""
    seed: int
    action_mask_key: str


def worker_main(socket_file: int, memory_file: int) -> None:
    """Step the environments of a worker on command until the parent closes the channel."""
    channel = Channel(socket.socket(fileno=socket_file))
    with suppress(ConnectionError):
        try:
            envs = _WorkerEnvs(channel.receive(), memory_file, channel)
        except ENV_ERRORS as error:
            _send_error(error, channel)
            return
        channel.send_byte(OK)
        channel.send(serialize(envs.spaces))
        while True:
            command = channel.receive_byte()
            try:
                faults = envs.reset() if command == RESET else envs.step()
            except ENV_ERRORS as error:
                _send_error(error, channel)
                continue
            channel.send_byte(RECOVERED if faults else OK)
            if faults:
                channel.send(serialize(list(faults)))
    envs.vector_env.close()


class _WorkerEnvs:
    """Environments of one worker, with arguments and results in the shared buffers."""

    def __init__(self, spec: WorkerSpec, memory_file: int, channel: Channel) -> None:
        def make_replacement() -> gymnasium.Env[Any, Any]:
            channel.send_byte(RESTARTING)
            return spec.env_fn()

        self.vector_env = SerialVectorEnv(
            make_envs(spec.env_fn, spec.rows.stop - spec.rows.start),
            spec.seed,
            env_fn=make_replacement,
            first_row=spec.rows.start,
            action_mask_key=spec.action_mask_key,
        )
        self.spaces = self.vector_env.observation_space, self.vector_env.env_action_space
        self._buffers = map_buffers(memory_file, *self.spaces, spec.num_envs, spec.action_mask_key)
        self._rows = spec.rows

    def reset(self) -> Sequence[Fault]:
        buffers, rows = self._buffers, self._rows
        self._write_observation(self.vector_env.reset(buffers.reset_mask[rows], buffers.new_task[rows]))
        return ()

    def step(self) -> Sequence[Fault]:
        buffers, rows = self._buffers, self._rows
        step = self.vector_env.step(buffers.action[rows])
        buffers.reward[rows] = step.reward
        buffers.terminated[rows] = step.terminated
        buffers.truncated[rows] = step.truncated
        buffers.failed[rows] = ~step.is_transition
        if step.success is not None:
            buffers.success[rows] = step.success
            buffers.has_success[rows] = True
        self._write_observation(step.observation)
        return step.faults

    def _write_observation(self, observation: Mapping[str, Shaped[np.ndarray, "rows ..."]]) -> None:
        for name, leaf in observation.items():
            self._buffers.observation[name][self._rows] = leaf
        self._buffers.has_action_mask[self._rows] = ACTION_MASK_KEY in observation


def _send_error(error: BaseException, channel: Channel) -> None:
    if isinstance(error, InvalidEnvOutputError):
        sent: UserError | WorkerError = InvalidEnvOutputError(error.kind, str(error))
    elif isinstance(error, UserError):
        sent = UserError(str(error))
    else:
        sent = WorkerError(fault_from_exception(error, "a worker process"))
    channel.send_byte(ERROR)
    channel.send(serialize(sent))
