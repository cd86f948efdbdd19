"""Helpers for tests of commands: tiny networks, what a command prints, and an interrupt while training."""

import itertools
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tiny import TINY_NETWORK, as_flags

from yamame.cli import main
from yamame.training.trainer import Trainer

SMALL = as_flags(
    {
        **TINY_NETWORK,
        "num_envs": 4,
        "replay.batch_size": 2,
        "eval": {"trials": 4, "final_trials": 4, "num_envs": 4},
        "env_steps_per_iteration": 64,
        "updates_per_env_step": 0.02,
    }
)


def output_json(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """Run a command; return the JSON object that it prints, and stderr."""
    capsys.readouterr()
    assert main([*args, "--json", "--quiet"]) == code
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    return json.loads(out), err


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Run a command with invalid input; return its one line on stderr."""
    capsys.readouterr()
    assert main(list(args)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def snapshot(directory: Path) -> dict[str, int]:
    """Return when each file was written last."""
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


def interrupt_in_iteration(
    patch: pytest.MonkeyPatch, number: int, signal_number: signal.Signals = signal.SIGINT
) -> None:
    """Raise a signal while the next run is in its iteration of this number, from 1."""
    original, numbers = Trainer._run_iteration, itertools.count(1)

    def interrupted(self: Trainer, *args: Any) -> Any:
        if next(numbers) == number:
            signal.raise_signal(signal_number)
        return original(self, *args)

    patch.setattr(Trainer, "_run_iteration", interrupted)
