"""Scores of sb3-contrib's RecurrentPPO on the tasks of unaided.py, at equal environment steps and at equal minutes.

pip install sb3-contrib
python benchmarks/recurrent_ppo.py --beside runs/unaided [--output-dir runs/recurrent_ppo] [--seeds 0] [--tasks wind]
                                   [--minutes-only]

It has its defaults, eight environments and one thread. It observes what the environment returns: the default agent's
previous action, reward and time are not among its inputs. A trial is an episode, and one that ends at its time limit
is bootstrapped from. With `--beside`, the folder of finished runs of the default agent, training goes on until both the
steps of the task and the seconds of that run are over, evaluated at either; with `--minutes-only`, until the seconds
are over. Seconds of other processes and of evaluations do not count.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # PyTorch reads them when it is imported

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv
from unaided_tasks import TASKS

from yamame.data.spaces import flatten_space
from yamame.envs.base import TrialVectorEnv
from yamame.errors import UserError
from yamame.runs.durable_files import write_json
from yamame.tools.study.execute import finished_result
from yamame.tools.study.report import markdown_table

NUM_ENVS = 8
TRIALS = 256
EVAL_SEED = 1_000_003

Observation = np.ndarray | dict[str, np.ndarray]


class TrialsVecEnv(VecEnv):
    """Trials of ours as environments of Stable-Baselines3. The only leaf of an observation is the observation."""

    def __init__(self, envs: TrialVectorEnv) -> None:
        self.envs = envs
        self.leaves = flatten_space(envs.observation_space)
        flat = {name: _flat_space(leaf) for name, leaf in self.leaves.items()}
        observed = spaces.Dict(flat) if len(flat) > 1 else next(iter(flat.values()))
        super().__init__(envs.num_envs, observed, envs.action_space)
        self.returns = np.zeros(envs.num_envs)
        self.finished: list[list[tuple[float, bool]]] = [[] for _ in range(envs.num_envs)]
        """Return and success of the trials of each environment."""

    def reset(self) -> Observation:
        self.returns[:] = 0.0
        return self._observation(self.envs.reset())

    def step_async(self, actions: np.ndarray) -> None:
        self.actions = actions

    def step_wait(self) -> tuple[Observation, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        step = self.envs.step(self.actions)
        done = step.terminated | step.truncated
        reward = np.where(step.is_transition, step.reward, 0.0).astype(np.float32)
        self.returns += reward
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        final = self._observation(step.final_observation)
        for env in np.flatnonzero(done):
            own = {name: leaf[env] for name, leaf in final.items()} if isinstance(final, dict) else final[env]
            infos[env] = {
                "terminal_observation": own,
                "TimeLimit.truncated": bool(step.truncated[env] and not step.terminated[env]),
            }
            success = step.success is not None and bool(step.success[env])
            self.finished[env].append((float(self.returns[env]), success))
            self.returns[env] = 0.0
        return self._observation(step.observation), reward, done, infos

    def _observation(self, leaves: Mapping[str, np.ndarray]) -> Observation:
        flat = {name: _flat(np.asarray(leaves[name]), space) for name, space in self.leaves.items()}
        return flat if len(flat) > 1 else next(iter(flat.values()))

    def close(self) -> None:
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def _flat_space(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """Return the space of a leaf as a vector: networks for images need 36 x 36 pixels, and RecurrentPPO fails with
    MultiDiscrete observations."""
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.Box(0.0, 1.0, (int(space.nvec.sum()),), np.float32)
    if isinstance(space, spaces.Box):
        scale = 255.0 if space.dtype == np.uint8 else 1.0
        low, high = ((bound.ravel() / scale).astype(np.float32) for bound in (space.low, space.high))
        return spaces.Box(low, high)
    return space


def _flat(leaf: np.ndarray, space: spaces.Space[Any]) -> np.ndarray:
    """Return the observations of a leaf of E environments in its `_flat_space`."""
    if isinstance(space, spaces.MultiDiscrete):
        choices = (leaf - space.start).reshape(len(leaf), -1).T
        return np.concatenate(
            [np.eye(n)[choice] for n, choice in zip(space.nvec.ravel(), choices, strict=True)], axis=1
        )
    if isinstance(space, spaces.Box):
        return leaf.reshape(len(leaf), -1) / np.float32(255.0 if space.dtype == np.uint8 else 1.0)
    return leaf


class EvaluateAt(BaseCallback):
    """Evaluates once `env_steps` are made and once `seconds` of training are over, and stops after both.

    Args:
        name: Task.
        env_steps: None: without limit.
        seconds: None: without limit. One of the two is a number.
    """

    def __init__(self, name: str, env_steps: int | None, seconds: float | None) -> None:
        super().__init__()
        self.name = name
        self.limits = {"steps": env_steps, "minutes": seconds}
        self.started, self.evaluating = time.process_time(), 0.0
        self.results: dict[str, dict[str, Any]] = {}

    def _on_step(self) -> bool:
        seconds = time.process_time() - self.started - self.evaluating
        spent = {"steps": self.num_timesteps, "minutes": seconds}
        left = {kind: limit for kind, limit in self.limits.items() if limit is not None and kind not in self.results}
        for kind in [kind for kind, limit in left.items() if spent[kind] >= limit]:
            before = time.process_time()
            found = evaluate(self.model, self.name)
            self.results[kind] = {**found, "env_steps": self.num_timesteps, "train_seconds": seconds}
            self.evaluating += time.process_time() - before
        return any(kind not in self.results for kind in left)


def evaluate(model: Any, name: str) -> dict[str, Any]:
    """Return mean return and success of sampled actions over new trials, the same number in each environment."""
    env = TrialsVecEnv(TASKS[name].env.eval_config().build(NUM_ENVS, EVAL_SEED))
    quota, states, starts = TRIALS // NUM_ENVS, None, np.ones(NUM_ENVS, np.bool_)
    observation = env.reset()
    while min(len(found) for found in env.finished) < quota:
        action, states = model.predict(observation, states, starts, deterministic=False)
        observation, _, starts, _ = env.step(action)
    env.close()
    trials = np.array([found[:quota] for found in env.finished], float).reshape(-1, 2)
    return {"return_mean": float(trials[:, 0].mean()), "success_rate": float(trials[:, 1].mean())}


def train(name: str, seed: int, seconds: float | None, env_steps: int | None) -> dict[str, Any]:
    """Return the evaluations of one run, by what was equal."""
    env = TrialsVecEnv(TASKS[name].env.build(NUM_ENVS, seed))
    policy = "MultiInputLstmPolicy" if isinstance(env.observation_space, spaces.Dict) else "MlpLstmPolicy"
    model = RecurrentPPO(policy, env, seed=seed, device="cpu")
    callback = EvaluateAt(name, env_steps, seconds)
    model.learn(10**12, callback=callback)
    env.close()
    return {kind: {**found, "score": TASKS[name].score(found)} for kind, found in callback.results.items()}


def main() -> int:
    options = parse(sys.argv[1:])
    torch.set_num_threads(1)
    try:
        for seed, name in product(options.seeds, options.tasks):
            path = options.output_dir / f"{name}-seed{seed}.json"
            if path.exists():
                continue
            ours = finished_result(options.beside / f"{name}-seed{seed}") if options.beside else None
            if options.beside and ours is None:
                raise UserError(f"{options.beside} has no finished run of {name}, seed {seed}")
            seconds = ours["train_seconds"] if ours else None
            env_steps = None if options.minutes_only else options.env_steps or TASKS[name].env_steps
            results = train(name, seed, seconds, env_steps)
            if ours:
                results["default agent"] = {"score": TASKS[name].score(ours), **{key: ours[key] for key in KEPT}}
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, results)
            print(f"{name} seed {seed}: " + ", ".join(f"{k} {v['score']:.2f}" for k, v in results.items()), flush=True)
        print_table(options.output_dir)
        return 0
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


KEPT = ("return_mean", "success_rate", "env_steps", "train_seconds")


def print_table(directory: Path) -> None:
    """Print a row for each task, with the scores of all seeds."""
    rows, leads = [], 0
    for name in TASKS:
        found = [json.loads(path.read_text()) for path in sorted(directory.glob(f"{name}-seed*.json"))]
        if not found:
            continue
        scores = {kind: [run[kind]["score"] for run in found if kind in run] for kind in KINDS}
        ours, rival = scores["default agent"], scores["minutes"]
        leads += bool(ours and rival and np.mean(ours) >= np.mean(rival))
        rows.append(
            {
                "task": name,
                **{KINDS[kind]: " / ".join(f"{one:.2f}" for one in each) for kind, each in scores.items()},
                "steps in equal minutes": " / ".join(f"{r['minutes']['env_steps']:,}" for r in found if "minutes" in r),
            }
        )
    print(markdown_table(rows))
    print(f"\nthe default agent is at least as good at equal minutes on {leads} of {len(rows)} tasks")


KINDS = {
    "default agent": "default agent",
    "steps": "RecurrentPPO, equal steps",
    "minutes": "RecurrentPPO, equal minutes",
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    summary, *_ = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(description=summary, allow_abbrev=False)
    parser.add_argument("--output-dir", type=Path, default=Path("runs/recurrent_ppo"), help="folder of the results")
    parser.add_argument("--beside", type=Path, help="folder of unaided.py with the same tasks and seeds")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="TASK", help=", ".join(TASKS))
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--env-steps", type=int, help="another number of steps for all tasks")
    length.add_argument("--minutes-only", action="store_true", help="train as long as the run beside it, not as far")
    options = parser.parse_args(arguments)
    if options.minutes_only and not options.beside:
        parser.error("--minutes-only needs --beside")
    return options


if __name__ == "__main__":
    sys.exit(main())
