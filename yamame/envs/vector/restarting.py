"""What is survived, and how what has failed is begun again."""

import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Shaped, UInt8

from yamame.data.step import EpisodeStep
from yamame.envs.base import EpisodeVectorEnv, RenderableVectorEnv
from yamame.errors import UserError
from yamame.types import Fault, FaultKind, State, load_nested_state_dict, nested_state_dict

RETRY_DELAYS_SECONDS = (0.0, 1.0, 5.0)
"""Before each try to begin again: a port, a file or a licence may take a moment to become free."""

_T = TypeVar("_T")


class InvalidEnvOutputError(UserError):
    """An environment gave what nobody can use: the user's to mend at the start of a run, survived later."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind: FaultKind = kind


class WorkerError(RuntimeError):
    """A worker process is gone, or what it does failed; `fault` says how."""

    def __init__(self, fault: Fault) -> None:
        super().__init__("\n\n".join(filter(None, (fault.message, fault.traceback))))
        self.fault = fault


def is_recoverable(error: Exception) -> bool:
    """Whether making anew may help: not where the message is for the user, who has to mend something."""
    return isinstance(error, InvalidEnvOutputError) or not isinstance(error, UserError)


def fault_from_exception(error: Exception, who: str) -> Fault:
    """An exception of the environment or environments `who` as a record."""
    if isinstance(error, WorkerError):
        return error.fault
    if isinstance(error, InvalidEnvOutputError):
        message = str(error) if str(error).startswith(who) else f"{who}: {error}"
        return Fault(kind=error.kind, message=message)
    trace = "".join(traceback.format_exception(error))
    first_line = next(iter(str(error).splitlines()), "")
    return Fault(kind="exception", message=f"{who} raised {type(error).__name__}: {first_line}", traceback=trace)


def restart_with_retries(begin: Callable[[], _T], who: str, faults: list[Fault]) -> _T:
    """What `begin` gives, which is tried a few times; each failure is added to `faults`.

    Raises `UserError` when no try succeeds, and what `begin` raises for the user at once.
    """
    for pause in RETRY_DELAYS_SECONDS:
        time.sleep(pause)
        try:
            return begin()
        except Exception as error:
            if not is_recoverable(error):
                raise
            faults.append(fault_from_exception(error, who))
    last = faults[-1]
    raise UserError(
        f"{who} failed and could not be begun again in {len(RETRY_DELAYS_SECONDS)} tries: mend the environment "
        f"({last.message})\n{last.traceback}"
    )


def restart_seed(seed: int, row: int, restarts: int) -> int:
    """The seed of what takes the place of row `row` of environments of `seed` after so many `restarts`."""
    return int(np.random.SeedSequence(seed, spawn_key=(row, restarts)).generate_state(1)[0])


_WHO = "the vector environment"
_STATE = ("_seen", "_restarts", "_announces_success")


class RestartingVectorEnv:
    """What `make` makes from a seed, made anew from another one when it fails: then all its rows have failed.

    What fails in a reset has failed at the next step; until then it shows what it last did. In the first reset of all,
    and where it is a `UserError`, it is raised. Rows whose failure the environments tell themselves are passed on.
    """

    def __init__(self, make: Callable[[int], EpisodeVectorEnv], seed: int) -> None:
        self._make, self._seed = make, seed
        self._environments = make(seed)
        self.num_envs = self._environments.num_envs
        self.observation_space = self._environments.observation_space
        self.action_space = self._environments.action_space
        self.env_action_space = self._environments.env_action_space
        self._seen: Mapping[str, Shaped[np.ndarray, "E ..."]] = {}
        self._error: Exception | None = None
        self._restarts = 0
        self._announces_success = False

    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """See `Environments.reset`."""
        try:
            self._seen = self._environments.reset(reset_mask, new_task)
        except Exception as error:
            if not self._seen or not is_recoverable(error):
                raise
            self._error = error
        return self._seen

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """See `Environments.step`."""
        step = self._restarted(self._error) if self._error else self._stepped(action)
        self._seen = step.observation
        self._announces_success |= step.success is not None
        if self._announces_success and step.success is None:
            return replace(step, success=np.zeros(self.num_envs, np.bool_))
        return step

    @property
    def render_fps(self) -> float:
        """See `RenderableVectorEnv`."""
        return self._rendered().render_fps

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """See `RenderableVectorEnv`."""
        return self._rendered().render()

    def close(self) -> None:
        """Close the environments."""
        self._environments.close()

    def state_dict(self) -> State | None:
        """See `Resumable`: where the environments are, unless they are about to be made anew."""
        return None if self._error else nested_state_dict(self._environments, self, _STATE)

    def load_state_dict(self, state: State) -> None:
        """See `Resumable`."""
        load_nested_state_dict(self._environments, self, state)

    def _stepped(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        try:
            return self._environments.step(action)
        except Exception as error:
            if not is_recoverable(error):
                raise
            return self._restarted(error)

    def _restarted(self, error: Exception) -> EpisodeStep:
        """The step in which all rows have failed."""
        faults = [fault_from_exception(error, _WHO)]
        observation = restart_with_retries(self._restart, _WHO, faults)
        self._error = None
        return EpisodeStep(
            reward=np.zeros(self.num_envs, np.float32),
            terminated=np.zeros(self.num_envs, np.bool_),
            truncated=np.zeros(self.num_envs, np.bool_),
            is_transition=np.zeros(self.num_envs, np.bool_),
            observation=observation,
            failed=np.ones(self.num_envs, np.bool_),
            faults=faults,
        )

    def _restart(self) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        with suppress(Exception):
            self._environments.close()
        self._restarts += 1
        made = self._environments = self._make(restart_seed(self._seed, 0, self._restarts))
        if (made.observation_space, made.action_space) != (self.observation_space, self.action_space):
            raise UserError(f"{_WHO} has other spaces when it is made anew: make it the same each time")
        everywhere = np.ones(self.num_envs, np.bool_)
        return made.reset(everywhere, everywhere)

    def _rendered(self) -> RenderableVectorEnv:
        if not isinstance(self._environments, RenderableVectorEnv):
            raise UserError("this environment cannot be filmed: it has no pictures")
        return self._environments
