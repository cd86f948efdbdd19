"""`Standing`: how far a run has come, beside what its parts know themselves."""

from dataclasses import dataclass
from typing import Any


@dataclass
class TrainState:
    """A record that JSON can hold."""

    train_seconds: float = 0.0
    """Spent collecting and updating, in all processes of the run."""
    wall_seconds: float = 0.0
    """Spent in all, evaluations and checkpoints included."""
    restarts: int = 0
    """Processes before this one."""
    random_baseline: dict[str, Any] | None = None
    """An evaluation of uniformly random actions."""
    next_eval_step: int = 0
    """Environment steps at which the next evaluation is due."""
    consecutive_solved: int = 0
    """Evaluations in a row that reached the config's `stop_return`."""
    best_eval_return: float | None = None
    """The highest mean return of an evaluation."""
    next_milestone_step: int = 0
    """Environment steps at which the next checkpoint is due that is kept for good."""
