"""A run or a store, by its path."""

from dataclasses import dataclass
from pathlib import Path

from yamame.records.errors import UserError
from yamame.replay.examine import require_store
from yamame.replay.form import TrajectorySchema
from yamame.replay.task import TaskSpec
from yamame.run.run_directory import CONFIG, REPLAY, replay_dirs, resolve_run_dir
from yamame.run.session import read_config, read_spaces


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """Where trajectories lie, and the run that they belong to, if they do."""

    store: Path
    run: Path | None

    @staticmethod
    def from_path(path: Path) -> "DataSource":
        """A run's or a store's directory; `UserError` where there is neither, and for a run with several stores."""
        if (path / "data.mdb").is_file():
            return DataSource(store=path, run=path.parent if (path.parent / CONFIG).is_file() else None)
        run = resolve_run_dir(path)
        if len(stores := replay_dirs(run)) > 1:
            named = ", ".join(map(str, stores))
            raise UserError(f"{run} has a replay for each of its learners: name one of {named}")
        return DataSource(store=require_store(run / REPLAY), run=run)

    @property
    def schema(self) -> TrajectorySchema | None:
        """What its trajectories look like; None where no run says so."""
        return None if self.run is None else task_spec_of(self.run).schema


def task_spec_of(run: Path) -> TaskSpec:
    """What a run's files say of its task."""
    return TaskSpec(**read_spaces(run), action_mask_key=read_config(run).env.action_mask_key)
