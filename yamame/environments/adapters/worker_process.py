"""What a worker process does: step its rows of the environments when it is told to, until its parent is gone."""

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Shaped

from yamame.environments.adapters.channel import Channel, serialize
from yamame.environments.adapters.exchange import map_buffers
from yamame.environments.adapters.restart import fault_from_exception
from yamame.environments.adapters.serial import SerialVectorEnv
from yamame.environments.adapters.singles import make_envs
from yamame.records.action_spaces import ACTION_MASK_KEY
from yamame.records.errors import UserError
from yamame.records.fault import Fault

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
        self._show(self._environments.reset(exchange.reset_mask[rows], exchange.sample_task[rows]))
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
