"""Whole runs on clusters of 1, 2 and 3 Ray nodes on this machine, and their simulation.

    python benchmarks/cluster_nodes.py [--seconds 20] [--costs benchmarks/cluster_costs.json] [--json]

Each node has one collector of 4 environments that wait 5 milliseconds a step, as a simulator would, so that two cores
carry three collectors and a learner. With few updates a step the collectors set the pace, with many the learner does.
The simulation has nothing of the runs: a vector step, an update and storing are measured in one process before each
run and after it (their means count, since other work of the machine comes and goes), requests and the object store by
cluster_cost.py, on a trajectory of about the same size.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import ray
import torch
from cluster_model import simulate
from cluster_plan import Plan, Work
from cluster_simulation import HERE, work_of
from gymnasium import spaces
from ray_nodes import cluster_of

from yamame.data.trajectory import Trajectory
from yamame.envs.env_fn import EnvFnConfig
from yamame.metrics.registry import read_metrics
from yamame.recipes.settings.presets import apply_size, default_config
from yamame.run_config import EvalConfig, RayConfig, RunConfig
from yamame.tools.bench.measure import describe_machine, format_machine
from yamame.training.components import build_components
from yamame.training.run_files import RunMetadata
from yamame.training.start import train_run

NODES, ENVIRONMENTS, STEPS = (1, 2, 3), 4, 50
WAIT_SECONDS = 5e-3
UPDATES_PER_ENV_STEP = {"collectors set the pace": 0.005, "the learner sets the pace": 0.1}
NEAREST_KIND = "T-Maze, 31 steps"
"""Of the trajectories in the table of costs the one of about this size."""


class Patient(gymnasium.Env[np.ndarray, int]):
    """Waits at every step, and ends after the steps of a trial."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: int) -> Any:
        time.sleep(WAIT_SECONDS)
        return self.np_random.uniform(-1, 1, 4).astype(np.float32), 0.0, False, False, {}


def config(nodes: int, updates_per_env_step: float, env_steps: int) -> RunConfig:
    """A run with a small network and no evaluations."""
    basis = default_config(EnvFnConfig(env_fn=Patient, horizon=STEPS, num_workers=0), env_steps=env_steps)
    basis = apply_size(basis, "tiny")
    return replace(
        basis,
        num_envs=nodes * ENVIRONMENTS,
        ray=RayConfig(address="auto", num_collectors=nodes),
        updates_per_env_step=updates_per_env_step,
        eval=EvalConfig(trials=1, final_trials=1, num_envs=1),
    )


def measured_work(costs: Mapping[str, Any], run: RunConfig) -> Work:
    """The parts of a run, alone in this process; what Ray adds is of the table of costs."""
    alone = replace(run, ray=RayConfig(), num_envs=ENVIRONMENTS)
    with tempfile.TemporaryDirectory() as folder, closing(build_components(alone, Path(folder), restarts=0)) as parts:
        steps, trajectories = [], list[Trajectory]()
        while len(trajectories) < 3 * ENVIRONMENTS:
            began = time.perf_counter()
            ended = parts.collector.step(parts.policy, deterministic=False)
            steps.append(time.perf_counter() - began)
            trajectories += [trajectory for _, trajectory in ended]
        began = time.perf_counter()
        parts.replay.store.extend(trajectories)
        append = (time.perf_counter() - began) / len(trajectories)
        updates = []
        for batch in parts.replay.sampler.iter_batches(25):
            began = time.perf_counter()
            parts.algorithm.update(batch)
            updates.append(time.perf_counter() - began)
    return replace(
        work_of(costs, NEAREST_KIND, size="small"),
        environments=ENVIRONMENTS,
        trial_steps=STEPS,
        vector_step_seconds=statistics.median(steps),
        append_seconds=append,
        update_seconds=statistics.median(updates[5:]),
        updates_per_env_step=run.updates_per_env_step,
    )


def mean_of(first: Work, second: Work) -> Work:
    keys = ("vector_step_seconds", "append_seconds", "update_seconds")
    return replace(first, **{key: (getattr(first, key) + getattr(second, key)) / 2 for key in keys})


def plan_of(costs: Mapping[str, Any], nodes: int) -> Plan:
    """Nodes on this machine: the network between their object stores is its loopback."""
    pixels = max(costs["trajectories"].values(), key=lambda row: row["bytes"])
    return Plan(
        collectors=nodes,
        collectors_per_node=1,
        bits_per_second=8e6 * pixels["bytes"] / pixels["microseconds"]["get_far"]["median"],
        latency_seconds=costs["round_trip_microseconds"]["far"]["median"] / 2e6,
    )


def speeds_of_run(run: RunConfig) -> dict[str, float]:
    """Of the second half of a real run."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        train_run(run, RunMetadata(recipe="patient"), run_dir=directory, quiet=True)
        lines = read_metrics(directory)
    first, last = lines[len(lines) // 2], lines[-1]
    seconds = last["wall_seconds"] - first["wall_seconds"]
    half = lines[len(lines) // 2 + 1 :]
    return {
        "env_steps_per_second": (last["env_steps"] - first["env_steps"]) / seconds,
        "updates_per_second": (last["updates"] - first["updates"]) / seconds,
        "collector_idle": statistics.mean(line.get("collectors/idle_fraction", 0.0) for line in half),
        "policy_lag_updates": statistics.mean(line.get("collectors/policy_lag_updates_mean", 0.0) for line in half),
        "seconds": seconds,
    }


def compare(costs: Mapping[str, Any], nodes: int, updates_per_env_step: float, seconds: float) -> dict[str, Any]:
    """One point, measured and simulated."""
    run, plan = config(nodes, updates_per_env_step, env_steps=nodes * ENVIRONMENTS * STEPS), plan_of(costs, nodes)
    before, load = measured_work(costs, run), os.getloadavg()[0]
    expected = simulate(before, plan).env_steps_per_second
    with cluster_of([f"node {number}" for number in range(nodes)], cpus=1):
        iterations = max(8, round(2 * seconds * expected / run.env_steps))
        measured = speeds_of_run(replace(run, env_steps=iterations * run.env_steps))
    work = mean_of(before, measured_work(costs, run))
    simulated = simulate(work, plan, iterations=60, warm_up=10)
    return {
        "measured": measured,
        "simulated": {key: getattr(simulated, key) for key in measured if key != "seconds"},
        "error": simulated.env_steps_per_second / measured["env_steps_per_second"] - 1.0,
        "vector_step_seconds": work.vector_step_seconds,
        "update_seconds": work.update_seconds,
        "load_average_before": load,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run's second half, which is measured")
    parser.add_argument("--costs", type=Path, default=HERE / "cluster_costs.json", help="output of cluster_cost.py")
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    options = parser.parse_args()
    costs = json.loads(options.costs.read_text(encoding="utf-8"))
    machine = describe_machine(torch.device("cpu"))
    print(f"{format_machine(machine)}, Ray {ray.__version__}\n")
    print(
        "| pace | nodes | env steps/s | simulated | error | updates/s | simulated | idle | simulated "
        "| age | simulated |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    points: dict[str, Any] = {}
    for pace, updates_per_env_step in UPDATES_PER_ENV_STEP.items():
        for nodes in NODES:
            point = compare(costs, nodes, updates_per_env_step, options.seconds)
            points[f"{pace}, {nodes}"] = point
            print(f"| {pace} | {nodes} | {cells(point)} |", flush=True)
    if options.json:
        print(json.dumps({"points": points, "machine": machine}))


def cells(point: Mapping[str, Any]) -> str:
    measured, simulated = point["measured"], point["simulated"]
    return " | ".join(
        (
            f"**{measured['env_steps_per_second']:,.0f}** | {simulated['env_steps_per_second']:,.0f}",
            f"{point['error']:+.0%}",
            f"{measured['updates_per_second']:.1f} | {simulated['updates_per_second']:.1f}",
            f"{measured['collector_idle']:.0%} | {simulated['collector_idle']:.0%}",
            f"{measured['policy_lag_updates']:.0f} | {simulated['policy_lag_updates']:.0f}",
        )
    )


if __name__ == "__main__":
    main()
