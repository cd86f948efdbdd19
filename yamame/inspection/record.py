"""`record`: let a checkpoint of a run act through one trial, and look into it."""

from pathlib import Path

from yamame.inspection.recording import Recording
from yamame.run.config import RunConfig
from yamame.run.session import NEWEST

LONGEST = 2000
"""Transitions beyond which a trial is cut, so that a recording stays small enough to be looked at."""


def record(
    directory: Path,
    *,
    checkpoint: str = NEWEST,
    seed: int | None = None,
    instruction: str = "",
    deterministic: bool | None = None,
    pictures: bool = True,
    keep: int = 32,
    longest: int = LONGEST,
    config: RunConfig | None = None,
) -> Recording:
    """One trial of what the run is judged on, begun from `seed` (evaluations' own if None).

    `checkpoint` and `config` are as in `evaluate_run`, `instruction` is what to do instead of what the task would draw,
    `deterministic` whether the most likely action is taken (None: as the run's evaluations do). `keep` attention weights
    are kept of each moment. Raises `UserError` where there is no such checkpoint, and for an instruction that nobody can
    follow there.
    """
    raise NotImplementedError
