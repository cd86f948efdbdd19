"""The checkpoints that a run has kept."""

from pathlib import Path

from yamame.learning.checkpoint import newest_first
from yamame.run.run_directory import BEST, CHECKPOINTS, MILESTONES


def kept_checkpoints(run: Path) -> list[Path]:
    """Milestones, the best and the newest ones, in the order of their updates, each number of updates once."""
    folders = [run / folder for folder in (CHECKPOINTS, BEST, MILESTONES)]
    by_updates = {path.name: path for folder in folders for path in newest_first(folder)}
    return [by_updates[name] for name in sorted(by_updates) if not name.endswith(".replaced")]


def updates_of(checkpoint: Path) -> int:
    """Gradient updates that made it."""
    return int(checkpoint.name.partition("-")[2])
