"""What a run leaves behind, to compare two of them by."""

import hashlib
from pathlib import Path

from yamame.data.store import ReplayStore
from yamame.metrics.registry import read_metrics
from yamame.runs.checkpoint import load_latest_checkpoint
from yamame.training.run_files import read_config


def fingerprint(directory: Path) -> str:
    """Of all tensors of the last checkpoint: weights, optimizer, statistics, random streams, trials in flight."""
    tensors = load_latest_checkpoint(directory / "checkpoints").tensors
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode() + tensors[name].numpy().tobytes())
    return digest.hexdigest()


def replay_of(directory: Path) -> list[bytes]:
    """The rewards and actions of all that is stored, in order; every record is read."""
    capacity = read_config(directory).replay.capacity_trajectories
    with ReplayStore(directory / "replay", capacity_trajectories=capacity, cache_bytes=0) as store:
        stored = [store.get(number) for number in store.ids()]
        assert store.num_corrupted == 0
    return [trajectory.reward.tobytes() + trajectory.action.tobytes() for trajectory in stored]


def measured(directory: Path) -> list[dict[str, float]]:
    """All that was logged, but for what a clock said."""
    return [
        {key: value for key, value in line.items() if "second" not in key and key != "time/learner_wait_fraction"}
        for line in read_metrics(directory)
    ]
