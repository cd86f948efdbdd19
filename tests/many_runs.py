"""What tests of commands that make many runs share: tiny networks, and how to look at what was made and said."""

import itertools
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from yamame.cli import main
from yamame.iteration import TrainingIteration

_SMALL = (
    "--num-envs 4 --replay.batch-size 2 --agent.timestep-encoder.hidden-sizes 8 --agent.timestep-encoder.output-size 8 "
    "--agent.trajectory-encoder.d-model 8 --agent.trajectory-encoder.num-heads 2 --agent.trajectory-encoder.num-layers 1 "
    "--agent.trajectory-encoder.d-ff 16 --agent.actor.hidden-sizes 8 --agent.critic.hidden-sizes 8 "
    "--eval.final-trials 4 --eval.trials 4 --eval.num-envs 4 "
    "--env-steps-per-iteration 64 --updates-per-env-step 0.02"
)
SMALL = _SMALL.split()


def told(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The JSON object that a command prints, and what it says on stderr."""
    capsys.readouterr()
    assert main([*args, "--json", "--quiet"]) == code
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    return json.loads(out), err


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """What a mistake is told: one line on stderr, exit code 2, nothing on stdout."""
    capsys.readouterr()
    assert main(list(args)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def snapshot(folder: Path) -> dict[str, int]:
    """When each file was written last."""
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def interrupt_in_round(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let SIGINT come while the next run is in its round of this number."""
    original, rounds = TrainingIteration.run, itertools.count(1)

    def interrupted(self: TrainingIteration, *args: Any) -> Any:
        if next(rounds) == number:
            signal.raise_signal(signal.SIGINT)
        return original(self, *args)

    patch.setattr(TrainingIteration, "run", interrupted)
