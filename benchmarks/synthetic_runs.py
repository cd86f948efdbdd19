"""Run directories with configs of real recipes and random metrics."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from yamame.config.serialization import to_json
from yamame.recipes import config_from_overrides, load_recipe

RECIPES = ("dark-key-to-door", "passive-tmaze", "maze-runner", "package-delivery", "half-cheetah-velocity")
SEEDS = 4
SIZES = (128, 256, 64)
DISCOUNTS = (0.9, 0.95, 0.99, 0.993, 0.996)


def make_runs(folder: Path, *, runs: int, lines: int) -> None:
    """Runs of several recipes and widths with four seeds each; a few stopped or failed, most finished."""
    for number in range(runs):
        recipe = RECIPES[number // SEEDS % len(RECIPES)]
        width = SIZES[number // SEEDS // len(RECIPES) % len(SIZES)]
        seed, repeat = number % SEEDS, number // (SEEDS * len(RECIPES) * len(SIZES))
        run = folder / f"{recipe}-width-{width}{f'-{repeat}' if repeat else ''}-seed-{seed}"
        run.mkdir(parents=True)
        overrides = {
            "seed": seed,
            "agent.trajectory_encoder.d_model": width,
            "checkpoint.interval_seconds": 60.0 + repeat,
        }
        config = to_json(config_from_overrides(load_recipe(recipe), [], overrides))
        _write(run / "config.json", config)
        _write(run / "metadata.json", {"recipe": recipe, "expected": ""})
        rng = np.random.default_rng(number)
        fraction = 1.0 if number % 7 else 0.35 + 0.1 * seed
        last = write_metrics(
            run / "metrics.jsonl", rng, lines=lines, env_steps=config["env_steps"], fraction=fraction, width=width
        )
        if fraction == 1.0:
            _write(
                run / "result.json",
                {
                    **last,
                    "return_mean": last["eval/return_mean"],
                    "success_rate": last["eval/success_rate"],
                    "env_steps_per_second": last["env_steps"] / last["wall_seconds"],
                    "updates_per_second": last["updates"] / last["wall_seconds"],
                    "return_per_attempt": [],
                    "trials": 256,
                },
            )
        elif seed % 2:
            _write(
                run / "status.json",
                {
                    "status": "failed",
                    "reason": "environment 3 gave an observation that is not finite (fault 101 of this run: mend it)",
                },
            )
        else:
            _write(run / "status.json", {"status": "stopped", "reason": "SIGINT"})


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")


def write_metrics(
    path: Path, rng: np.random.Generator, *, lines: int, env_steps: int, fraction: float, width: int
) -> dict[str, Any]:
    """About 25 numbers a line; an evaluation every tenth line. The last evaluation, and what the last line counts."""
    time_T = np.linspace(0, fraction, lines)
    start, slope = rng.uniform(0.25, 0.45), rng.uniform(9, 14)
    best = 0.7 + 0.25 * (width / 256) + rng.normal(0, 0.02)
    skill = best / (1 + np.exp(-slope * (time_T - start)))
    speed = 2000 + 400 * rng.normal(size=lines).cumsum() / np.sqrt(lines) + rng.normal(0, 90, lines)
    columns: dict[str, np.ndarray] = {
        "rollout/num_trials": np.floor(time_T * 20_000),
        "rollout/return_mean": 10 * skill * 0.92 + rng.normal(0, 0.25, lines),
        "rollout/trial_length_mean": 200 - 120 * skill + rng.normal(0, 3, lines),
        "rollout/success_rate": np.clip(skill * 0.92 + rng.normal(0, 0.03, lines), 0, 1),
        **{
            f"rollout/return_mean_attempt_{i}": 10 * skill * (1 - np.exp(-i * (0.15 + skill))) / 5
            + rng.normal(0, 0.04, lines)
            for i in range(1, 6)
        },
        "faults/restarts": np.floor(time_T * 3 * rng.random()),
        "time/collect_seconds": 1000 / np.maximum(speed, 100),
        "time/update_seconds": np.abs(rng.normal(3.4, 0.2, lines)),
        "replay/trajectories": np.minimum(20_000, time_T * 30_000).round(),
        "replay/median_age_updates": 4000 * np.minimum(time_T, 0.6) + rng.normal(0, 20, lines),
        "replay/num_corrupted": np.zeros(lines),
        "time/learner_wait_fraction": np.abs(rng.normal(0.04, 0.02, lines)),
        "optim/nonfinite_updates": np.zeros(lines),
        "loss/td": 3 * np.exp(-3 * time_T) + np.abs(rng.normal(0.2, 0.08, lines)),
        "critic/td_error_abs": 0.8 * np.exp(-2 * time_T) + np.abs(rng.normal(0.2, 0.03, lines)),
        "critic/q_normalized": skill * 1.5 + rng.normal(0, 0.05, lines),
        "critic/q_ensemble_std": 0.6 * np.exp(-2 * time_T) + np.abs(rng.normal(0.1, 0.01, lines)),
        "loss/policy_gradient": 0.6 - 1.4 * skill + rng.normal(0, 0.05, lines),
        "actor/entropy": 1.4 - 1.1 * skill + rng.normal(0, 0.02, lines),
        "loss/filtered_bc": 1.1 - 0.7 * skill + rng.normal(0, 0.02, lines),
        "actor/filtered_bc_fraction": 0.5 + 0.1 * np.sin(5 * time_T) + rng.normal(0, 0.02, lines),
        "optim/grad_norm": np.exp(rng.normal(2.5 - 2 * time_T, 0.5)),
        "critic/td_target_mean": 7 * skill + rng.normal(0, 0.1, lines),
        "critic/popart_std": 1 + 3 * skill,
        **{
            f"critic/td_target_mean_gamma_{discount}": 7 * skill * (1 - np.exp(-0.012 / (1 - discount)))
            for discount in DISCOUNTS
        },
        "time/env_steps_per_second": speed,
        "time/updates_per_second": speed / 60,
    }
    steps = np.round(time_T * env_steps).astype(int)
    line: dict[str, Any] = {}
    evaluation: dict[str, float] = {}
    with path.open("w") as file:
        for at in range(lines):
            counts = {
                "env_steps": int(steps[at]),
                "updates": int(steps[at] / 60),
                "wall_seconds": round(float(time_T[at]) * env_steps / 2000, 3),
            }
            if at % 10 == 0 or at == lines - 1:
                mean, half = float(10 * skill[at] + rng.normal(0, 0.2)), 0.5
                evaluation = {
                    "eval/return_mean": mean,
                    "eval/return_ci95_low": mean - half,
                    "eval/return_ci95_high": mean + half,
                    "eval/success_rate": float(np.clip(skill[at], 0, 1)),
                }
                line = counts | {key: float(column[at]) for key, column in columns.items()} | evaluation
            else:
                line = counts | {key: float(column[at]) for key, column in columns.items()}
            file.write(json.dumps(line) + "\n")
    return line | evaluation
