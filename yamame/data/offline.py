"""Learning from what was experienced before, in place of environments or beside them."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from yamame.collect.faults import RESTARTS
from yamame.config import RunConfig
from yamame.data.minari import is_dataset, read_trajectories
from yamame.data.schema import TaskSpec
from yamame.data.store import LMDBReplayStore
from yamame.data.trajectory import Trajectory
from yamame.data.verify import iter_valid_trajectories
from yamame.envs.base import TrialVectorEnv
from yamame.errors import UserError
from yamame.run_dir import replay_dirs
from yamame.types import State

_TRAJECTORIES_AT_ONCE = 64
_NO_LIMIT = 1 << 62


class OfflineCollector:
    """Stands where a collector would, and steps no environment: only the time passes that updates are paced by."""

    def __init__(self, environments: TrialVectorEnv, *, env_steps: int, num_envs: int) -> None:
        self.environments = environments
        self.env_steps = 0
        """What the run's pace would have collected by now."""
        self.remote_env_steps = 0
        """See `Collector`."""
        self._end, self._num_envs = env_steps, num_envs

    def close(self) -> None:
        """Close the environments."""
        self.environments.close()

    def counts(self) -> dict[str, float]:
        """No environment ever fails."""
        return {RESTARTS: 0.0}

    def metrics(self) -> dict[str, float]:
        """Nothing else."""
        return {}

    def step(self, policy: Any, *, deterministic: bool) -> list[tuple[int, Trajectory]]:
        """Let as much time pass as a vector step takes, but not beyond the end; no trial ever finishes."""
        self.env_steps = min(self.env_steps + self._num_envs, self._end)
        return []

    def state_dict(self) -> State:
        """See `Resumable`."""
        return {"env_steps": self.env_steps}

    def load_state_dict(self, state: State) -> bool:
        """Go on where `state_dict` was taken; there are no trials that could not."""
        self.env_steps = state["env_steps"]
        return True


def resolve_offline_length(config: RunConfig) -> RunConfig:
    """The config with `offline.total_updates` said in environment steps of its pace. `UserError` where it has none."""
    updates = config.offline.total_updates
    if not updates:
        return config
    if not config.updates_per_env_step:
        raise UserError("--updates-per-env-step is 0: a run on data alone would never learn")
    env_steps = config.learning_starts + int(updates / config.updates_per_env_step)
    while config.updates_due(env_steps=env_steps, updates=0) < updates:
        env_steps += 1
    return replace(config, env_steps=env_steps)


def open_offline_store(directory: Path, config: RunConfig, task: TaskSpec) -> LMDBReplayStore:
    """The store of a run's offline data, filled when it is first opened; what is damaged there is left behind.

    So the run has what it learns from whatever becomes of the sources, and changes nothing in them. `UserError` for
    data that is not of the task, or that holds nothing.
    """
    store = LMDBReplayStore(
        directory,
        capacity_trajectories=_NO_LIMIT,
        cache_bytes=config.replay.cache_bytes,
        max_bytes=config.replay.max_disk_bytes,
        compression_level=config.replay.compression_level,
        schema=task.schema,
    )
    if store.total_appended:
        return store
    try:
        for path in config.offline.data:
            before = len(store)
            trajectories = _trajectories(path, task)
            while some := list(islice(trajectories, _TRAJECTORIES_AT_ONCE)):
                store.extend(some)
            if len(store) == before:
                raise UserError(f"{path} holds no trajectories to learn from")
        store.sync()
    except BaseException:
        store.close()
        raise
    return store


def _trajectories(path: str, task: TaskSpec) -> Iterator[Trajectory]:
    stores = [Path(path)] if (Path(path) / "data.mdb").is_file() else replay_dirs(Path(path))
    if stores:
        return chain.from_iterable(_of_store(store, task) for store in stores)
    if is_dataset(path):
        return read_trajectories(path, task)
    raise UserError(f"{path} is no run, no replay store and no Minari dataset on this machine")


def _of_store(directory: Path, task: TaskSpec) -> Iterator[Trajectory]:
    form = task.schema
    for trajectory in iter_valid_trajectories(directory, None):
        if misfit := form.validation_error(trajectory):
            raise UserError(f"the trajectories in {directory} do not fit this task: {misfit}")
        yield trajectory
