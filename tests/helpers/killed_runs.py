"""Runs that are killed at a chosen call and continue, and what two runs have in common if they are the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from yamame.data.codec import encode
from yamame.metrics.progress import ProgressBar
from yamame.metrics.registry import read_metrics
from yamame.run_config import RunConfig
from yamame.training.state import collect_state
from yamame.training.trainer import Trainer


class Killed(BaseException):
    """What a test kills a run with."""


@contextmanager
def killed_at(owner: Any, name: str, count: int) -> Iterator[None]:
    """Raise `Killed` in the `count`-th call of a method."""
    original, left = getattr(owner, name), [count]

    def watched(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            raise Killed
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, watched)
        yield


def start(directory: Path, config: RunConfig) -> Path:
    """A run that has done nothing but saved its first checkpoint."""
    run = Trainer(config, directory)
    run.save_checkpoint()
    run.close()
    return directory


def train(directory: Path, config: RunConfig) -> bool:
    """Resume a run; return whether it is finished."""
    run = Trainer(config, directory, resume=True)
    try:
        assert run.resume_warnings == []
        with ProgressBar(config.env_steps, quiet=True) as progress:
            run.train(progress)
        return run.is_finished()
    finally:
        run.close()


def outcome(directory: Path, config: RunConfig) -> dict[str, Any]:
    """All tensors of a checkpoint; the trials; the metrics but times. Ids of lost trials are not used again."""
    run = Trainer(config, directory, resume=True)
    tensors, _ = collect_state(run.components, run.distributed, {})
    store = run.components.replay.store
    trials = [encode(store.get(number)) for number in store.ids()]
    run.close()
    metrics = [
        {key: value for key, value in row.items() if "second" not in key and "wait" not in key}
        for row in read_metrics(directory)
    ]
    return {
        "tensors": {name: np.asarray(tensor).tobytes() for name, tensor in tensors.items()},
        "trials": trials,
        "metrics": metrics,
    }
