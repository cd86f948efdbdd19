"""A run or a store, by its path."""

from dataclasses import dataclass
from pathlib import Path

from yamame.records.errors import UserError
from yamame.replay.examine import require_store
from yamame.replay.form import TrajectoryForm
from yamame.replay.task import TaskSpaces
from yamame.run.run_directory import CONFIG, REPLAY, replays_of, require_run
from yamame.run.session import read_config, read_spaces


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where trajectories lie, and the run that they belong to, if they do."""

    store: Path
    run: Path | None

    @staticmethod
    def at(path: Path) -> "Source":
        """A run's or a store's directory; `UserError` where there is neither, and for a run with several stores."""
        if (path / "data.mdb").is_file():
            return Source(store=path, run=path.parent if (path.parent / CONFIG).is_file() else None)
        run = require_run(path)
        if len(stores := replays_of(run)) > 1:
            named = ", ".join(map(str, stores))
            raise UserError(f"{run} has a replay for each of its learners: name one of {named}")
        return Source(store=require_store(run / REPLAY), run=run)

    @property
    def form(self) -> TrajectoryForm | None:
        """What its trajectories look like; None where no run says so."""
        return None if self.run is None else task_of(self.run).form


def task_of(run: Path) -> TaskSpaces:
    """What a run's files say of its task."""
    return TaskSpaces(**read_spaces(run), mask_key=read_config(run).env.mask_key)
