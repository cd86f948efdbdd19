"""`cluster_child.py FOLDER CLUSTER [ENV_STEPS]`: begin a run with collectors in a cluster, or go on with it."""

import sys
from pathlib import Path

from killable import small_config

from yamame.run.config import RunConfig
from yamame.run.session import About, go_on, start


def config_of(cluster: str) -> RunConfig:
    """A run without end, which saves after every round and keeps all that it has seen."""
    return small_config(
        **{
            "cluster": cluster,
            "collectors": 2,
            "env_steps": 100_000_000,
            "replay.capacity_trajectories": 10_000_000,
            "remote": {"timeout_seconds": 5.0, "keep_seconds": 60.0},
            "milestone_every_env_steps": 0,
            "evaluation": {"trials": 4, "final_trials": 4, "num_envs": 4, "every_env_steps": 0},
        }
    )


if __name__ == "__main__":
    directory, cluster = Path(sys.argv[1]), sys.argv[2]
    if (directory / "config.json").exists():
        go_on(directory, env_steps=int(sys.argv[3]) if sys.argv[3:] else None, quiet=True)
    else:
        start(config_of(cluster), About(recipe="small"), run_dir=directory, quiet=True)
