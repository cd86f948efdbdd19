"""Weights & Biases. Its variables: WANDB_PROJECT, WANDB_ENTITY, WANDB_NAME, WANDB_MODE, WANDB_DIR, WANDB_API_KEY."""

import os
from collections.abc import Mapping
from typing import Any

import wandb

from yamame.metrics.trackers.base import DEFAULT_PROJECT, Ending, Tracker

_UPLOAD_SECONDS = 50.0
"""Limit for the upload at the end; `wandb sync` uploads the rest."""


class WandbTracker(Tracker):
    """A W&B run. Offline, each process of a run writes a folder of its own with the same run id.

    `_step` is the number of environment steps. Console output is not captured: the progress bar belongs to a terminal.
    """

    def __init__(self, *, name: str, run_id: str, config: Mapping[str, Any]) -> None:
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", DEFAULT_PROJECT),
            id=run_id,
            name=os.environ.get("WANDB_NAME", name),
            resume="allow",
            config=dict(config),
            allow_val_change=True,  # a resumed run may have more env_steps
            reinit="create_new",  # beside a run of the caller
            settings=wandb.Settings(console="off", finish_timeout=_UPLOAD_SECONDS),
        )

    def log(self, env_steps: int, values: Mapping[str, float]) -> None:
        """Log numbers by key."""
        self._run.log(dict(values), step=env_steps)

    def finish(self, ending: Ending, env_steps: int, result: Mapping[str, float]) -> None:
        """Write the result to the summary and close the run."""
        self._run.summary.update(dict(result))
        self._run.finish(exit_code={"finished": 0, "stopped": 255, "failed": 1}[ending])  # 255: W&B's code of Ctrl-C
