"""Evaluations of finished runs after training, each made once and kept in a file."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from yamame.errors import UserError
from yamame.runs.checkpoint import MANIFEST, list_checkpoints
from yamame.runs.directory import BEST, BEST_CHECKPOINT, CHECKPOINTS, LATEST
from yamame.runs.durable_files import write_json
from yamame.training.trained_run import load_trained_run

EVALUATIONS = "evaluations.json"
"""Name of the file, beside the runs."""
_KEPT = ("return_mean", "success_rate", "trials", "env_steps")


class EvaluationCache:
    """Evaluations of runs by their path, length, checkpoint, its content and instruction, kept in `path`."""

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
            run: Run directory. It is known by its path from the folder of the file.
            env_steps: Length of the run; a longer one is re-evaluated.
            instruction: Instruction of all trials; empty: sampled by the task.
            checkpoint: `latest` or `best`.
        """
        folder = self._path.parent
        name = run.relative_to(folder) if run.is_relative_to(folder) else run.resolve()
        key = f"{name} at {env_steps}, {checkpoint} {_digest(run, checkpoint)}: {instruction}"
        if key not in self._known:
            trained = load_trained_run(run, checkpoint)
            evaluation = trained.evaluate(trials=None, seed=None, instruction=instruction)
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


def _digest(run: Path, checkpoint: str) -> str:
    """Return a digest of the newest checkpoint, by its manifest, so that a run that was made again is another one."""
    newest = list_checkpoints(run / (BEST if checkpoint == BEST_CHECKPOINT else CHECKPOINTS))[:1]
    manifests = [(path / MANIFEST).read_bytes() for path in newest if (path / MANIFEST).exists()]
    return hashlib.sha256(b"".join(manifests)).hexdigest()[:16]
