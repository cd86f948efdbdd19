"""Trackio. Its variables: TRACKIO_PROJECT, TRACKIO_DIR, TRACKIO_SPACE_ID, TRACKIO_SERVER_URL."""

import os
from collections.abc import Mapping
from typing import Any

import trackio

from yamame.metrics.trackers.base import DEFAULT_PROJECT, Ending, Tracker


class TrackioTracker(Tracker):
    """A Trackio run. Trackio finds runs by name, so the name contains the id."""

    def __init__(self, *, name: str, run_id: str, config: Mapping[str, Any]) -> None:
        self._run = trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", DEFAULT_PROJECT),
            name=f"{name}-{run_id[:8]}",
            config=dict(config),
            resume="allow",
            embed=False,
        )

    def log(self, env_steps: int, values: Mapping[str, float]) -> None:
        """Log numbers by key."""
        self._run.log(dict(values), step=env_steps)

    def finish(self, ending: Ending, env_steps: int, result: Mapping[str, float]) -> None:
        """Log the result and close the run."""
        if result:
            self._run.log(dict(result), step=env_steps)
        self._run.finish()
