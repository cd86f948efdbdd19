"""A whole run in a child of this process, which can be killed at any moment or kills itself at a touch of the disk."""

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import pytest
from tiny import TINY_NETWORK

from yamame.data.database import Database, Transaction
from yamame.recipes import config_from_overrides, load_recipe
from yamame.run_config import RunConfig
from yamame.runs import checkpoint
from yamame.training import start as runs
from yamame.training.run_files import RunMetadata

KILLED = -signal.SIGKILL
TOUCHES = ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink", "open", "link")


def small_config(**changes: Any) -> RunConfig:
    """A second or two of training, which saves after every iteration; iterations end in the middle of trials."""
    settings: dict[str, Any] = {
        **TINY_NETWORK,
        "env.road_length": 10,
        "env.horizon": 12,
        "env_steps": 2_400,
        "num_envs": 8,
        "replay.batch_size": 4,
        "replay.capacity_trajectories": 100,
        "checkpoint.interval_seconds": 0.0,
        "checkpoint.milestone_interval_env_steps": 1_000,
        "env_steps_per_iteration": 56,
        "updates_per_env_step": 0.02,
        "eval": {"trials": 4, "final_trials": 4, "num_envs": 4, "interval_env_steps": 600},
        **changes,
    }
    return config_from_overrides(load_recipe("package-delivery"), [], settings)


def train(config: RunConfig, directory: Path, *, before: Callable[[], None] = lambda: None) -> int:
    """Start or resume a run in a child; its process id. `before` is called there first."""

    def work() -> None:
        before()
        if (directory / "config.json").exists():
            runs.resume_run(directory, env_steps=None, quiet=True)
        else:
            runs.train_run(config, RunMetadata(recipe="small"), run_dir=directory, quiet=True)

    return start(work)


def start(work: Callable[[], Any]) -> int:
    """Call a function in a child, which exits with 1 if it raises; its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def wait(child: int) -> int:
    """The exit code of a child, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_after(child: int, seconds: float) -> int:
    """The exit code of a child that is killed after some time, if it is still there."""
    time.sleep(seconds)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return wait(child)


def counts_touches(count: "Synchronized[int]") -> Callable[[], None]:
    """What to call in a child so that it counts its touches of the disk."""

    def note() -> bool:
        count.value += 1
        return False

    return lambda: _watch_touches(note, after=True)


def dies_at_touch(number: int) -> Callable[[], None]:
    """What to call in a child so that it kills itself at that touch of the disk: before it, in the middle or after."""
    left = itertools.count(number, -1)
    return lambda: _watch_touches(lambda: next(left) == 0, after=number % 3 == 2, before=number % 3 == 0)


def _watch_touches(dies_now: Callable[[], bool], *, before: bool = False, after: bool = False) -> None:
    def watched(function: Callable[..., Any], half: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not dies_now():
                return function(*args, **kwargs)
            if not before:
                (function if after else half)(*args, **kwargs)
            return os.kill(os.getpid(), signal.SIGKILL)

        return call

    patch = pytest.MonkeyPatch()
    for name in TOUCHES:
        patch.setattr(os, name, watched(getattr(os, name), getattr(os, name)))
    patch.setattr(checkpoint, "write_synced", watched(checkpoint.write_synced, _write_half))
    patch.setattr(Database, "write", watched(Database.write, _write_without_commit))


def _write_half(path: Path, content: bytes) -> None:
    path.write_bytes(content[: len(content) // 2])


@contextmanager
def _write_without_commit(database: Database) -> Iterator[Transaction]:
    database._writer.execute("BEGIN IMMEDIATE")
    yield Transaction(database._writer)
    os.kill(os.getpid(), signal.SIGKILL)
