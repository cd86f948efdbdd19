"""`cluster_child.py FOLDER CLUSTER LEARNERS [ENV_STEPS]`: start a run in a cluster, or resume it."""

import sys
from pathlib import Path

from killable import small_config

from yamame.run_config import RunConfig
from yamame.training.run_files import RunMetadata
from yamame.training.start import resume_run, train_run


def config_of(cluster: str, *, learners: int) -> RunConfig:
    """A run without end, which saves after every iteration and keeps all trajectories."""
    return small_config(
        **{
            "ray.address": cluster,
            "ray.num_collectors": 2,
            "num_learners": learners,
            "env_steps": 100_000_000,
            "replay.capacity_trajectories": 10_000_000,
            "ray.collect_timeout_seconds": 5.0,
            "checkpoint.milestone_interval_env_steps": 0,
            "eval": {"trials": 4, "final_trials": 4, "num_envs": 4, "interval_env_steps": 0},
        }
    )


if __name__ == "__main__":
    directory, cluster, learners = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if (directory / "config.json").exists():
        resume_run(directory, env_steps=int(sys.argv[4]) if sys.argv[4:] else None, quiet=True)
    else:
        train_run(config_of(cluster, learners=learners), RunMetadata(recipe="small"), run_dir=directory, quiet=True)
