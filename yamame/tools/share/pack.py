"""Writes the policy folder of a run."""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from yamame.config.named_code import without_environments
from yamame.errors import UserError, wrap_os_errors
from yamame.metrics.registry import EVAL, EVAL_RETURN, EVAL_TRAIN_TASKS, RETURN, read_metrics
from yamame.runs.checkpoint import ACTING, WEIGHTS, flatten_tensors, save_checkpoint
from yamame.runs.directory import CHECKPOINTS, CONFIG, METADATA, METRICS, RESULT, SPACES
from yamame.runs.durable_files import write_json
from yamame.runs.shared_policy import write_manifest
from yamame.training.evaluate import evaluate_random_policy
from yamame.training.run_files import RunResult, random_baseline, read_config, read_metadata, read_result
from yamame.training.trained_run import TrainedRun, load_trained_run

MAX_ROWS = 200
"""Rows of the curve of training, and of the evaluations in it."""
_AXES = ("env_steps", "updates", "wall_seconds")
_CURVES = (RETURN.partition("/")[0], EVAL, EVAL_TRAIN_TASKS)
"""Groups of metrics that are kept."""
_OF_TRAINING = ("seed", "wall_seconds", "train_seconds", "env_steps_per_second", "updates_per_second", "end_reason")
"""Keys of the result of a run that describe its training."""


def pack_policy(
    run: TrainedRun,
    folder: Path,
    *,
    acting_only: bool = False,
    trials: int | None = None,
    quiet: bool = True,
) -> RunResult:
    """Write the policy folder of a run and evaluate the policy from that folder.

    The weights are those of the run, bit for bit.

    Args:
        run: The run, or another policy.
        folder: New or empty folder.
        acting_only: Leave out critics and target networks. Such a policy has no values to show, and no run can start
            with its weights.
        trials: Number of evaluation trials; None: `eval.final_trials`.
        quiet: Hide progress.

    Returns:
        The content of `result.json`: the evaluation, that of random actions in the same environment, and what the run's
        result says of its training.

    Raises:
        UserError: If the folder is not empty or the environment cannot be made.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not an empty folder: choose another one")
    read_metadata(run.directory)  # refused before anything is written
    trained = read_result(run.directory) or {}
    acting_only |= run.checkpoint.has_acting_weights_only
    with wrap_os_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".packing-", dir=folder.parent) as temporary:
            partial = Path(temporary) / folder.name
            _save_weights(run, partial, acting_only=acting_only)
            for name in (CONFIG, SPACES, METADATA):
                shutil.copyfile(run.directory / name, partial / name)
            rows = "".join(f"{json.dumps(row)}\n" for row in thin_metrics(read_metrics(run.directory)))
            (partial / METRICS).write_text(rows, encoding="utf-8")
            packed = load_trained_run(partial, config=run.config)
            evaluation = packed.evaluate(trials=trials, seed=None, quiet=quiet)
            of_training = {name: value for name, value in trained.items() if name in _OF_TRAINING}
            baseline = _evaluate_random_actions(run, evaluation["trials"])
            result = {**evaluation, "seed": run.config.seed, **of_training, "random_baseline": baseline}
            write_json(partial / RESULT, result)
            write_manifest(partial, "acting" if acting_only else "all")
            partial.replace(folder)
    return result


def thin_metrics(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return about `MAX_ROWS` rows of training and as many with evaluations, with the returns alone, to six digits."""
    numbers = range(len(rows))
    evaluated = [number for number in numbers if EVAL_RETURN in rows[number]]
    kept = sorted({*_spread(numbers), *_spread(evaluated), *numbers[-1:]})
    return [
        {
            key: float(f"{value:.6g}") if isinstance(value, float) else value
            for key, value in rows[number].items()
            if key in _AXES or key.partition("/")[0] in _CURVES
        }
        for number in kept
    ]


def folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _evaluate_random_actions(run: TrainedRun, trials: int) -> RunResult | None:
    """Return the evaluation of random actions in the environment in which the policy is evaluated.

    It is that of the run, unless the environment is another one, or a function that the run could not store.
    """
    with without_environments():
        own = read_config(run.directory).env
    if run.config.env == own:
        return random_baseline(run.directory)
    return evaluate_random_policy(run.config, trials=trials).to_json()


def _save_weights(run: TrainedRun, folder: Path, *, acting_only: bool) -> None:
    """Save a checkpoint that has the weights, and the counters that evaluations and reports read."""
    weights = run.config.algorithm.acting_state(run.model) if acting_only else run.model.state_dict()
    tensors, algorithm = flatten_tensors({"model": weights})
    state = {
        "algorithm": algorithm,
        "env_steps": run.checkpoint.state["env_steps"],
        "train_state": vars(run.train_state),
        **({WEIGHTS: ACTING} if acting_only else {}),
    }
    save_checkpoint(folder / CHECKPOINTS, step=run.checkpoint.step, tensors=tensors, state=state)


def _spread(numbers: Sequence[int]) -> Sequence[int]:
    """Return at most `MAX_ROWS` of the numbers, evenly spread."""
    return numbers[:: math.ceil(len(numbers) / MAX_ROWS) or 1]
