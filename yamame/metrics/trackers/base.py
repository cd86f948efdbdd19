"""The interface of an experiment tracker, and the trackers of this folder by name."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any, Literal

from yamame.discovery import classes_in, module_names
from yamame.errors import UserError
from yamame.metrics import trackers

DEFAULT_PROJECT = "yamame"
"""Project or experiment of a run, unless the tracker's environment variable names another one."""

Ending = Literal["finished", "stopped", "failed"]
"""How the process ends: with a result, by a signal, or by an error."""


class Tracker(ABC):
    """A run in an experiment tracker.

    One thread makes all calls, so that they may take long. Any exception ends the tracking, but not the run.

    Args:
        name: Name of the run, for people.
        run_id: Id of the run. If the tracker has a run with this id, it is continued.
        config: Fields of the run's config by path, as JSON values.
    """

    @abstractmethod
    def __init__(self, *, name: str, run_id: str, config: Mapping[str, Any]) -> None: ...

    @abstractmethod
    def log(self, env_steps: int, values: Mapping[str, float]) -> None:
        """Log finite numbers by key. Environment steps never decrease."""

    @abstractmethod
    def finish(self, ending: Ending, env_steps: int, result: Mapping[str, float]) -> None:
        """Log the result, send what has not been sent, and close the run.

        Args:
            ending: How the process ends.
            env_steps: Environment steps of the run.
            result: Numbers by key; empty if the run has not finished.
        """


def tracker_names() -> list[str]:
    """Return the names of the trackers of this folder without importing them."""
    return [name for name in module_names(trackers) if name != "base"]


def check_trackers(names: Iterable[str]) -> None:
    """Raise `UserError` for a string alone, and for a tracker that does not exist or whose package is not installed."""
    if isinstance(names, str):
        raise UserError(f"track: expected a list, got {names!r} alone: pass track=[{names!r}]")
    for name in names:
        if name not in tracker_names():
            raise UserError(f"unknown tracker {name!r}: choose among {', '.join(tracker_names())}")
        package = find_spec(name)
        if package is None or package.origin is None:  # the second: a folder, such as the one that W&B writes to
            raise UserError(f"tracking with {name} needs the package {name}: pip install 'yamame[{name}]'")


def load_tracker(name: str) -> type[Tracker]:
    """Import the file of a tracker and return its class."""
    (tracker,) = classes_in(trackers, name, Tracker)  # type: ignore[type-abstract]
    return tracker
