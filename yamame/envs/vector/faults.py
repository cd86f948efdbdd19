"""Faults of environments: invalid output, exceptions and restarts."""

import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64, Shaped
from typing_extensions import override

from yamame.data.masked_arrays import find_masked, has_masked
from yamame.data.observations import OutOfSpaceError, short_value
from yamame.data.step import MAX_ABS_REWARD
from yamame.errors import UserError, describe_error, error_message
from yamame.types import Fault, FaultKind

RETRY_DELAYS_SECONDS = (0.0, 1.0, 5.0)
"""Pause before each attempt to restart: a port, a file or a license may take a moment to become free."""
_REMEDY = "fix the environment or clean its output with a wrapper"
_SPACE_REMEDY = "declare the observation space as it is, at the end of episodes too, or clean the output with a wrapper"

MAX_RESET_SEED = 2**31 - 1

ENV_ERRORS = (Exception, SystemExit)
"""What environments may raise: `sys.exit` in an environment must not end the run."""

_T = TypeVar("_T")


class InvalidEnvOutputError(UserError):
    """An environment returned invalid values: a user error at the start of a run, a recoverable fault later."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind: FaultKind = kind

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.kind, str(self))


class WorkerError(RuntimeError):
    """A worker process died or failed."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault

    @override
    def __str__(self) -> str:
        return "\n\n".join(filter(None, (self.fault.message, self.fault.traceback)))


def is_recoverable(error: BaseException) -> bool:
    """Return whether a restart may help: not after a `UserError`, which only the user can fix."""
    return isinstance(error, InvalidEnvOutputError) or not isinstance(error, UserError)


def fault_from_exception(error: BaseException, name: str) -> Fault:
    """Return the record of an exception raised by the environment or environments called `name`."""
    if isinstance(error, WorkerError):
        return error.fault
    if isinstance(error, InvalidEnvOutputError):
        message = str(error) if str(error).startswith(name) else f"{name}: {error}"
        return Fault(kind=error.kind, message=message)
    trace = "".join(traceback.format_exception(error))
    first_line = next(iter(error_message(error).splitlines()), "")
    message = f"{name} raised {type(error).__name__}: {first_line}".rstrip(": ")
    return Fault(kind="exception", message=message, traceback=trace)


def reraise_env_error(error: BaseException, name: str) -> NoReturn:
    """Raise an error of the environment or environments called `name`; `sys.exit` as a `UserError`."""
    if isinstance(error, SystemExit):
        raise UserError(f"{name} called sys.exit({error.code!r})") from error
    raise error


def first_reset_error(error: BaseException) -> UserError:
    """Return the error of an environment that could not be reset once.

    It ends the run: nothing shows that the environment has ever worked.
    """
    if isinstance(error, UserError):
        return error
    fault = fault_from_exception(error, "the environment")
    return UserError(f"{fault.message} (no environment has been reset: fix it)")


def restart_with_retries(
    restart: Callable[[], _T], name: str, faults: list[Fault], *, remedy: str = "fix the environment"
) -> _T:
    """Return the result of `restart`, which is called until it succeeds, at most `len(RETRY_DELAYS_SECONDS)` times.

    Args:
        restart: Makes and resets the environment or environments.
        name: Their name in messages.
        faults: Failed attempts are appended here.
        remedy: What the user can do if all attempts fail.

    Raises:
        UserError: If no attempt succeeds, or as soon as an attempt raises an error that is not recoverable.
    """
    for delay in RETRY_DELAYS_SECONDS:
        time.sleep(delay)
        try:
            return restart()
        except ENV_ERRORS as error:
            if not is_recoverable(error):
                raise
            faults.append(fault_from_exception(error, name))
    last = faults[-1]
    raise UserError(
        f"{name} failed and could not be restarted after {len(RETRY_DELAYS_SECONDS)} attempts: {remedy} "
        f"({last.message})\n{last.traceback}".rstrip()
    )


def reset_seeds(sequence: np.random.SeedSequence, count: int) -> list[int]:
    """Return seeds for resets of environments, from 0 to 2**31 - 1: some simulators take signed integers of 32 bits."""
    return (sequence.generate_state(count) & MAX_RESET_SEED).tolist()


def restart_seed(seed: int, row: int, restarts: int) -> int:
    """Return the seed of the replacement of environment `row` after `restarts` restarts. `seed`: of all of them."""
    return reset_seeds(np.random.SeedSequence(seed, spawn_key=(row, restarts)), 1)[0]


def out_of_space_error(error: OutOfSpaceError, row: int, step: int) -> UserError:
    """Return the error of an observation that environment `row` returned at a step of its episode.

    It ends the run: a restart does not mend a space that was declared wrongly, and without its trials another task is
    learned.
    """
    return UserError(f"environment {row} at step {step} of its episode: {error}: {_SPACE_REMEDY}")


def stack_rewards(rewards: Sequence[Any] | np.ndarray, name: str = "a reward") -> Float64[np.ndarray, "E"]:
    """Return the rewards as an array; each may be an array or tensor of one element.

    Raises `InvalidEnvOutputError` if one of them is not a number.
    """
    return _stack_numbers(name, rewards).astype(np.float64, copy=False)


def close_envs(envs: Sequence[Any], *, first_row: int = 0) -> None:
    """Close environments. One that fails is reported in a line on stderr; the others are closed nevertheless."""
    for row, env in enumerate(envs, start=first_row):
        try:
            env.close()
        except ENV_ERRORS as error:
            print(f"environment {row} could not be closed ({describe_error(error)})", file=sys.stderr)


def stack_flags(name: str, flags: Sequence[Any] | np.ndarray) -> Bool[np.ndarray, "E"]:
    """Return bools as an array. Raises `InvalidEnvOutputError` if one of them is neither a bool nor 0 or 1."""
    flag = _stack_numbers(name, flags)
    if flag.dtype != np.bool_ and not np.isin(flag, (0, 1)).all():
        raise InvalidEnvOutputError("shape_mismatch", f"{name} is neither True nor False: {_REMEDY}")
    return flag.astype(np.bool_, copy=False)


def success_entry(info: Mapping[str, Any]) -> Any:
    """Return the entry of an info that signals success: `success`, else `is_success`; None if it has neither."""
    success = info.get("success")
    success = info.get("is_success") if success is None else success
    return success.item() if isinstance(success, np.ndarray) and success.size == 1 else success


def stack_successes(infos: Sequence[Mapping[str, Any]]) -> Bool[np.ndarray, "E"]:
    """Return the success signal of each info, False without one. Raises `UserError` as `stack_success_flags` does."""
    key = "success" if any(info.get("success") is not None for info in infos) else "is_success"
    values = [success_entry(info) for info in infos]
    return stack_success_flags(f"info[{key!r}]", [False if value is None else value for value in values])


def stack_success_flags(name: str, values: Sequence[Any] | np.ndarray) -> Bool[np.ndarray, "E"]:
    """Return success signals as bools.

    Raises `UserError` if one of them is neither a bool nor 0 or 1: a restart does not mend a signal of another kind,
    and trials that only end this way when they succeed would be left out.
    """
    try:
        return stack_flags(name, values)
    except InvalidEnvOutputError as error:
        found = next((value for value in values if not _is_flag(name, value)), values)
        raise UserError(
            f"{name} is {short_value(found)}, expected True or False (or 1 or 0): signal success so, at the end of "
            "episodes too"
        ) from error


def _is_flag(name: str, value: Any) -> bool:
    try:
        return stack_flags(name, [value]).shape == (1,)
    except InvalidEnvOutputError:
        return False


def validate_infos(infos: Sequence[Any]) -> None:
    """Raise `InvalidEnvOutputError` if an info is not a mapping."""
    for info in infos:
        if type(info) is not dict and not isinstance(info, Mapping):
            raise InvalidEnvOutputError("shape_mismatch", f"info is a {type(info).__name__}, not a dict: {_REMEDY}")


def _stack_numbers(name: str, values: Sequence[Any] | np.ndarray) -> Shaped[np.ndarray, "E"]:
    """Return numbers as an array. `UserError` for masked ones: a restart mends no missing number."""
    if has_masked(values) if isinstance(values, np.ndarray) else find_masked(values) is not None:
        raise UserError(f"{name} is masked (numpy.ma), which stands for no number: return one")
    try:
        array = np.array(values)
        if array.ndim > 1 and array.size == len(array) and not isinstance(values, np.ndarray):
            array = array.flatten()
    except (ValueError, TypeError, RuntimeError):  # single numbers beside arrays, or tensors with gradients
        try:
            array = np.array([_single_number(name, value) for value in values])
        except (ValueError, TypeError, RuntimeError) as error:
            raise InvalidEnvOutputError("shape_mismatch", f"{name} is not a number: {error}") from error
    if array.dtype.kind not in "biuf":
        raise InvalidEnvOutputError("shape_mismatch", f"{name} is not a number: {_REMEDY}")
    if array.ndim != 1:
        raise InvalidEnvOutputError("shape_mismatch", f"{name} has shape {array.shape[1:]}: make it one number")
    return array


def _single_number(name: str, value: Any) -> Any:
    """Return an array or tensor of one element, also one with gradients, as a number."""
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.size != 1:
        raise InvalidEnvOutputError("shape_mismatch", f"{name} has shape {array.shape}: make it one number")
    return array.reshape(())


def validate_finite(
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]],
    reward: Float[np.ndarray, "E"] | None,
    step: Int64[np.ndarray, "E"],
    first_row: int = 0,
) -> None:
    """Raise if an observation or reward is not finite, or a reward is too large to learn from.

    Args:
        observation: Leaves of the observation.
        reward: Rewards; None: not checked.
        step: Step of each environment's episode, for the message.
        first_row: Index of the first of these environments, for the message.

    Raises:
        InvalidEnvOutputError: Names the first environment that is not finite, the leaf and the step of its episode.
        UserError: For a reward of `MAX_ABS_REWARD` or more. It ends the run: without such trials another task is
            learned.
    """
    arrays = {f"in observation '{name}'": leaf for name, leaf in observation.items() if leaf.dtype.kind == "f"}
    if reward is not None:
        arrays["as reward"] = reward
    for where, array in arrays.items():
        if not np.isfinite(array).all():
            row = int(np.argmin(_finite_rows(array)))
            what = "NaN" if np.isnan(array[row]).any() else "infinity"
            name = f"environment {first_row + row}"
            message = f"{name} returned {what} {where} at step {step[row]} of its episode: {_REMEDY}"
            raise InvalidEnvOutputError("nonfinite", message)
    if reward is not None and np.abs(reward).max(initial=0.0) >= MAX_ABS_REWARD:
        row = int(np.abs(reward).argmax())
        raise UserError(
            f"environment {first_row + row} returned the reward {reward[row]:g} at step {step[row]} of its episode, "
            f"expected magnitudes below {MAX_ABS_REWARD:g}: scale or clip rewards"
        )


def nonfinite_rows(
    observation: Mapping[str, Shaped[np.ndarray, "E ..."]], reward: Float[np.ndarray, "E"]
) -> Bool[np.ndarray, "E"]:
    """Return the environments for which `validate_finite` raises."""
    arrays = [reward, *(leaf for leaf in observation.values() if leaf.dtype.kind == "f")]
    return ~np.logical_and.reduce([_finite_rows(array) for array in arrays])


def _finite_rows(array: Shaped[np.ndarray, "E ..."]) -> Bool[np.ndarray, "E"]:
    return np.isfinite(array).reshape(len(array), -1).all(axis=1)
