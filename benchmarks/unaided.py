"""Scores of the default agent on tasks that nobody tuned it for, as a table.

python benchmarks/unaided.py [--output-dir runs/unaided] [--seeds 0 1 2] [--tasks cartpole wind] [--lanes 2] [FLAGS]

Flags of the config, such as --learner.tau 0.01, change the default of every task. The score of a run is
(return - random) / (good - random), within [0, 1], over the 256 trials after training. Finished runs are kept and
stopped ones are resumed, so the same command can be given again at any time; Ctrl-C stops with checkpoints. Other flags
need another folder.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from unaided_tasks import TASKS

from yamame.config.differences import first_difference
from yamame.config.flags import parse_flags
from yamame.errors import UserError
from yamame.metrics.confidence import aggregate
from yamame.recipes.settings.presets import default_config
from yamame.run_config import RunConfig
from yamame.runs.directory import CONFIG
from yamame.runs.durable_files import write_json
from yamame.tools.study.execute import finished_result
from yamame.tools.study.report import markdown_table
from yamame.training import start as runs
from yamame.training.evaluate import evaluate_random_policy
from yamame.training.run_files import RunMetadata, read_config

RANDOM_TRIALS = 1024


def main() -> int:
    options, flags = parse(sys.argv[1:])
    try:
        for name in options.tasks:
            make_config(name, 0, flags)  # a wrong flag raises before any training
        if options.measure_random:
            return measure_random(options.tasks)
        require_same_flags(options.output_dir, flags)
        jobs = list(product(options.seeds, options.tasks))
        if options.in_process:
            return 0 if all(train(name, seed, flags, options.output_dir) for seed, name in jobs) else 1
        if not options.report:
            with ThreadPoolExecutor(options.lanes) as lanes:
                codes = list(lanes.map(lambda job: run_in_subprocess(*job, flags, options.output_dir), jobs))
            if any(codes):
                print(f"{sum(map(bool, codes))} runs are not finished: give the command again", file=sys.stderr)
        write_report(options.output_dir, flags)
        return 0
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    summary, *_ = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(description=summary, allow_abbrev=False)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/unaided"), help="folder of the run directories")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--lanes", type=int, default=2, help="processes side by side, of one thread each")
    parser.add_argument("--report", action="store_true", help="only write the table of the finished runs")
    parser.add_argument("--measure-random", action="store_true", help="print the scores of random actions")
    parser.add_argument("--in-process", action="store_true", help="one after the other, in this process")
    return parser.parse_known_args(arguments)


def make_config(name: str, seed: int, flags: Sequence[str]) -> RunConfig:
    task = TASKS[name]
    return replace(parse_flags(default_config(task.env, env_steps=task.env_steps), flags, "unaided.py"), seed=seed)


def require_same_flags(directory: Path, flags: Sequence[str]) -> None:
    """Raise `UserError` if a run in the folder has another config than these flags give."""
    for name in TASKS:
        for run_dir in sorted(directory.glob(f"{name}-seed*")):
            if (run_dir / CONFIG).exists():
                found = read_config(run_dir)
                if difference := first_difference(found, make_config(name, found.seed, flags)):
                    raise UserError(f"{run_dir} has another config ({difference}): choose another --output-dir")


def run_in_subprocess(seed: int, name: str, flags: Sequence[str], directory: Path) -> int:
    run_dir = directory / f"{name}-seed{seed}"
    if finished_result(run_dir):
        return 0
    command = [sys.executable, __file__, "--in-process", "--output-dir", str(directory), "--tasks", name]
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    code = subprocess.run(
        [*command, "--seeds", str(seed), *flags], env={**os.environ, **threads}, check=False
    ).returncode
    result = finished_result(run_dir)
    score = f"{TASKS[name].score(result):.2f} in {result['train_seconds']:.0f} s" if result else f"exit code {code}"
    print(f"{name} seed {seed}: {score}", file=sys.stderr, flush=True)
    return 0 if result else code or 1


def train(name: str, seed: int, flags: Sequence[str], directory: Path) -> bool:
    """Bring a run to its end, from wherever it is. False if a signal stopped it."""
    config, run_dir = make_config(name, seed, flags), directory / f"{name}-seed{seed}"
    if (run_dir / CONFIG).exists():
        result = finished_result(run_dir) or runs.resume_run(run_dir, env_steps=None, quiet=True, config=config)
    else:
        result = runs.train_run(config, RunMetadata(recipe=name), run_dir=run_dir, quiet=True)
    return not result.get("stopped_by")


def measure_random(names: Sequence[str]) -> int:
    for name in names:
        result = evaluate_random_policy(make_config(name, 0, ()), trials=RANDOM_TRIALS)
        print(f"{name}: {getattr(result, TASKS[name].measure):.4g} {result.return_ci95}", flush=True)
    return 0


def write_report(directory: Path, flags: Sequence[str]) -> None:
    """Write the finished runs as `unaided.json`, and print their table."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, task in TASKS.items():
        for run_dir in sorted(directory.glob(f"{name}-seed*")):
            if result := finished_result(run_dir):
                kept = {key: result[key] for key in ("seed", task.measure, "env_steps", "updates", "train_seconds")}
                rows.setdefault(name, []).append({**kept, "score": task.score(result)})
    if not rows:
        raise UserError(f"no run in {directory} is finished")
    whole = aggregate([[run["score"] for run in found] for found in rows.values()])
    assert whole is not None
    summary = {"score": whole.mean, "ci95": whole.mean_ci95, "flags": list(flags), "tasks": rows}
    write_json(directory / "unaided.json", summary)
    table = [
        {
            "task": name,
            "score per seed": " / ".join(f"{run['score']:.2f}" for run in found),
            "mean": f"{np.mean([run['score'] for run in found]):.2f}",
            "result per seed": " / ".join(f"{run[TASKS[name].measure]:.4g}" for run in found),
            "seconds": " / ".join(f"{run['train_seconds']:.0f}" for run in found),
        }
        for name, found in rows.items()
    ]
    print(markdown_table(table))
    total = sum(run["train_seconds"] for found in rows.values() for run in found)
    interval = "" if whole.mean_ci95 is None else " [{:.3f}, {:.3f}]".format(*whole.mean_ci95)
    print(f"\nscore {whole.mean:.3f}{interval} over {len(rows)} tasks; {total / 3600:.2f} hours of one core")


if __name__ == "__main__":
    sys.exit(main())
