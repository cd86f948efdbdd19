"""What a worker process does: step its rows of the environments when it is told to, until its parent is gone."""

import socket
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Shaped

from yamame.environments.adapters.channel import Channel, packed
from yamame.environments.adapters.exchange import map_exchange
from yamame.environments.adapters.serial import SerialEnvironments
from yamame.environments.adapters.vectorize import make_singles
from yamame.records.action_spaces import MASK_LEAF
from yamame.records.errors import UserError

RESET, STEP = b"r", b"s"
"""What a worker is asked to do with what the exchange says."""
DONE, FAILED = b".", b"!"
"""What it answers. A `Failure` follows the second."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a worker is given first; it answers with its observation and action space."""

    make: Callable[[], gymnasium.Env[Any, Any]]
    num_envs: int
    """Environments of all workers together."""
    rows: slice
    """Those of this one."""
    seed: int
    mask_key: str
    """See `ActionMasks`."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An exception on its way to another process."""

    message: str
    for_user: bool = False
    """Whether it was a `UserError`."""


def serve(socket_file: int, memory_file: int) -> None:
    """The whole life of a worker."""
    channel = Channel(socket.socket(fileno=socket_file))
    with suppress(ConnectionError):
        try:
            rows = _Rows(channel.receive(), memory_file)
        except Exception as error:
            _report(error, channel)
            return
        channel.signal(DONE)
        channel.send(packed(rows.spaces))
        while True:
            command = channel.wait()
            try:
                rows.reset() if command == RESET else rows.step()
            except Exception as error:
                _report(error, channel)
            else:
                channel.signal(DONE)
    rows.close()


class _Rows:
    """The environments of one worker; arguments and results lie in the exchange."""

    def __init__(self, share: Share, memory_file: int) -> None:
        numbers = range(share.rows.start, share.rows.stop)
        singles = make_singles(share.make, len(numbers))
        named = [_Numbered(single, row) for single, row in zip(singles, numbers, strict=True)]
        self._environments = SerialEnvironments(named, share.seed, first_row=share.rows.start, mask_key=share.mask_key)
        self.spaces = self._environments.observation_space, self._environments.native_action_space
        self._exchange = map_exchange(memory_file, *self.spaces, share.num_envs, share.mask_key)
        self._rows = share.rows

    def reset(self) -> None:
        exchange, rows = self._exchange, self._rows
        self._show(self._environments.reset(exchange.mask[rows], exchange.new_task[rows]))

    def step(self) -> None:
        exchange, rows = self._exchange, self._rows
        step = self._environments.step(exchange.action[rows])
        exchange.reward[rows] = step.reward
        exchange.terminated[rows] = step.terminated
        exchange.truncated[rows] = step.truncated
        if step.success is not None:
            exchange.success[rows] = step.success
            exchange.announces_success[rows] = True
        self._show(step.observation)

    def close(self) -> None:
        self._environments.close()

    def _show(self, observation: Mapping[str, Shaped[np.ndarray, "rows ..."]]) -> None:
        for name, leaf in observation.items():
            self._exchange.observation[name][self._rows] = leaf
        self._exchange.masked[self._rows] = MASK_LEAF in observation


class _Numbered(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Says which environment it was that raised."""

    def __init__(self, environment: gymnasium.Env[Any, Any], row: int) -> None:
        super().__init__(environment)
        self._row = row

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        try:
            return self.env.reset(seed=seed, options=options)
        except Exception as error:
            raise _RowError(self._row) from error

    def step(self, action: Any) -> Any:
        try:
            return self.env.step(action)
        except Exception as error:
            raise _RowError(self._row) from error


class _RowError(Exception):
    """Carries the number of an environment; the cause is what it raised."""


def _report(error: Exception, channel: Channel) -> None:
    who, cause = "a worker process", error
    if isinstance(error, _RowError) and isinstance(error.__cause__, Exception):
        who, cause = f"environment {error}", error.__cause__
    if isinstance(cause, UserError):
        failure = Failure(message=str(cause), for_user=True)
    else:
        trace = "".join(traceback.format_exception(cause))
        failure = Failure(message=f"{who} raised {type(cause).__name__}: {cause}\n\n{trace}")
    channel.signal(FAILED)
    channel.send(packed(failure))
