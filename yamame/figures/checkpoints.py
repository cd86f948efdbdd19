"""The checkpoints that a run has kept."""

from pathlib import Path

from yamame.learning.checkpoint import list_checkpoints
from yamame.run.run_directory import BEST, CHECKPOINTS, MILESTONES


def list_kept_checkpoints(run: Path) -> list[Path]:
    """Milestones, the best and the newest ones, in the order of their updates, each number of updates once."""
    folders = [run / folder for folder in (CHECKPOINTS, BEST, MILESTONES)]
    by_updates = {path.name: path for folder in folders for path in list_checkpoints(folder)}
    return [by_updates[name] for name in sorted(by_updates) if not name.endswith(".replaced")]


def checkpoint_updates(checkpoint: Path) -> int:
    """Gradient updates that made it."""
    return int(checkpoint.name.partition("-")[2])
