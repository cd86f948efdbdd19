"""MLflow. Its variables: MLFLOW_EXPERIMENT_NAME, MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN."""

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from yamame.metrics.trackers.base import DEFAULT_PROJECT, Ending, Tracker

_RUN_ID_TAG = "yamame.run_id"
_MAX_PARAMS = 100
"""Parameters that a request can have."""
_FORBIDDEN = re.compile(r"[^\w\-. :/]")
"""Characters that keys of MLflow cannot have."""


class MlflowTracker(Tracker):
    """An MLflow run, found by its tag `yamame.run_id`. Its parameters are those of the first process."""

    def __init__(self, *, name: str, run_id: str, config: Mapping[str, Any]) -> None:
        self._client = MlflowClient()
        experiment = self._experiment_id(os.environ.get("MLFLOW_EXPERIMENT_NAME", DEFAULT_PROJECT))
        found = self._client.search_runs([experiment], f"tags.`{_RUN_ID_TAG}` = '{run_id}'", max_results=1)
        if found:
            self._run_id = found[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            return
        self._run_id = self._client.create_run(experiment, run_name=name, tags={_RUN_ID_TAG: run_id}).info.run_id
        params = [Param(_FORBIDDEN.sub("_", path), str(value)) for path, value in config.items()]
        for start in range(0, len(params), _MAX_PARAMS):
            self._client.log_batch(self._run_id, params=params[start : start + _MAX_PARAMS])

    def log(self, env_steps: int, values: Mapping[str, float]) -> None:
        """Log numbers by key."""
        now = int(1000 * time.time())
        metrics = [Metric(_FORBIDDEN.sub("_", key), value, now, env_steps) for key, value in values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def finish(self, ending: Ending, env_steps: int, result: Mapping[str, float]) -> None:
        """Log the result and close the run."""
        self.log(env_steps, result)
        self._client.set_terminated(
            self._run_id, {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}[ending]
        )

    def _experiment_id(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return self._client.create_experiment(name)
            except MlflowException:  # another run has created it
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return found.experiment_id
