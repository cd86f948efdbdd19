"""Evaluations of finished runs after training, each made once and kept in a file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yamame.errors import UserError
from yamame.runs.directory import BEST, BEST_CHECKPOINT, LATEST
from yamame.runs.durable_files import write_json
from yamame.training.start import evaluate_run

EVALUATIONS = "evaluations.json"
"""Name of the file, beside the runs."""
_KEPT = ("return_mean", "success_rate", "trials", "env_steps")


class EvaluationCache:
    """Evaluations of runs by their name, length, checkpoint and instruction, kept in `path`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Any] = {}
        if path.exists():
            try:
                self._known = dict(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError, RecursionError) as problem:
                raise UserError(f"{path} cannot be read ({problem}): remove it, it is made again") from problem

    def evaluate(
        self, run: Path, env_steps: int, *, instruction: str = "", checkpoint: str = LATEST
    ) -> Mapping[str, Any]:
        """Return the evaluation of a checkpoint over `eval.final_trials` trials, with seeds that training never uses.

        Args:
            run: Run directory.
            env_steps: Length of the run; a longer one is re-evaluated.
            instruction: Instruction of all trials; empty: sampled by the task.
            checkpoint: `latest` or `best`.
        """
        key = f"{run.name} at {env_steps}, {checkpoint}: {instruction}"
        if key not in self._known:
            evaluation = evaluate_run(run, trials=None, seed=None, instruction=instruction, checkpoint=checkpoint)
            self._known[key] = {name: evaluation[name] for name in _KEPT}
            write_json(self._path, self._known)
        known: Mapping[str, Any] = self._known[key]
        return known

    def best_return(self, run: Path, env_steps: int) -> float | None:
        """Return the mean return of the best checkpoint, re-evaluated; None if the run has none.

        The maximum over many evaluations (MMER) overestimates the return of the checkpoint that reached it; this does
        not.
        """
        if not (run / BEST).exists():
            return None
        return float(self.evaluate(run, env_steps, checkpoint=BEST_CHECKPOINT)["return_mean"])
