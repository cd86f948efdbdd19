"""Meta-World: a robot arm, goals seen only in the reward, and separate test tasks (Yu et al. 2020)."""

import difflib
import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Float64
from typing_extensions import override

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig, SingleEnvConfig
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range

MAX_ATTEMPT_LENGTH = 500
"""Steps after which Meta-World itself ends an attempt and raises."""
BENCHMARKS = ("ML10", "ML45")
"""Benchmarks whose test tasks differ from the training tasks, such as opening a door after closing it."""

Split = Literal["train", "test"]

_Observation = Float32[np.ndarray, "40"]
_Action = Float32[np.ndarray, "4"]


class MetaworldEnv(gymnasium.Env[_Observation, _Action]):
    """One arm, whose task is sampled uniformly from `tasks` at every reset, unless `options["new_task"]` is False.

    Observation: the 39 numbers of Meta-World, the last three of which, the goal, are always 0, and one that is 1 right
    after a reset and 0 otherwise. Action: movement of the hand (3) and of the gripper (1), each in [-1, 1]. The reward
    is Meta-World's own, from 0 to 10. An attempt is truncated after `attempt_length` steps, at most 500, and never
    terminates. `info["success"]`: the task is solved at this step.

    Making the simulator of another task (not of another variation) takes a fifth of a second. Simulators are not
    cached, since all of ML45 need a gigabyte.
    """

    def __init__(self, tasks: Sequence[Any], *, attempt_length: int = MAX_ATTEMPT_LENGTH) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (40,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.task: Any = None
        """Meta-World's record of the task; None before the first reset."""
        self._tasks = tasks
        self._attempt_length = attempt_length
        self._time = 0
        self._simulator: Any = None

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Observation, dict[str, Any]]:
        super().reset(seed=seed)
        if self.task is None or (options or {}).get("new_task", True):
            self._set_task(self._tasks[int(self.np_random.integers(len(self._tasks)))])
        self._time = 0
        observation, _ = self._simulator.reset()
        return _append(observation, 1.0), {}

    @override
    def step(self, action: _Action) -> tuple[_Observation, float, bool, bool, dict[str, Any]]:
        observation, reward, _, _, info = self._simulator.step(action)
        self._time += 1
        success = bool(info["success"] > 0)
        truncated = self._time >= self._attempt_length
        return _append(observation, 0.0), float(reward), False, truncated, {"success": success}

    @override
    def close(self) -> None:
        if self._simulator is not None:
            self._simulator.close()

    def _set_task(self, task: Any) -> None:
        if self.task is None or task.env_name != self.task.env_name:
            self.close()
            self._simulator = _metaworld().ALL_V3_ENVIRONMENTS[task.env_name]()
        self.task = task
        self._simulator.set_task(task)


@cache
def load_tasks(name: str, seed: int) -> dict[Split, tuple[Any, ...]]:
    """Return Meta-World's records of the training and test tasks, 50 variations of each. Cached in this process.

    Takes 2 seconds for one task, 11 for ML10, and 37 for ML45.

    Args:
        name: A task (ML1: the splits are different variations of it) or one of `BENCHMARKS` (different tasks).
        seed: Seed of the variations.

    Raises:
        UserError: If the name is unknown, with the closest match.
    """
    metaworld = _metaworld()
    known = (*metaworld.ML1.ENV_NAMES, *BENCHMARKS)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise UserError(f"Meta-World has no task {name!r}: did you mean {nearest!r}?")
    benchmark = getattr(metaworld, name)(seed=seed) if name in BENCHMARKS else metaworld.ML1(name, seed=seed)
    return {"train": tuple(benchmark.train_tasks), "test": tuple(benchmark.test_tasks)}


@dataclass(frozen=True, kw_only=True)
class MetaworldConfig(SingleEnvConfig):
    """Attempts at one task whose goal is not observed: ML1, ML10 or ML45 (paper, figure 6).

    Differs from some versions of the authors' code, which evaluated ML1 on the training goals.
    """

    name: str = "reach-v3"
    """A task such as `push-v3`, of which only the variation changes (ML1), or a benchmark, `ML10` or `ML45`."""
    split: Split = "train"
    """Training or test tasks."""
    attempts: int = 5
    """Attempts of a trial, all at one task."""
    attempt_length: int = MAX_ATTEMPT_LENGTH
    """Steps of an attempt. Less than the 500 of the benchmark is cheaper, but some tasks cannot be solved as fast."""
    task_seed: int = 0
    """Seed of the variations of both splits: comparable runs have the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "attempts", ge=1)
        check_range(self, "attempt_length", ge=1, le=MAX_ATTEMPT_LENGTH)
        check_range(self, "task_seed", ge=0)

    @property
    @override
    def required_extra(self) -> str:
        return "metaworld"

    @property
    @override
    def task_name(self) -> str:
        """Such as `metaworld-reach-v3`, or `metaworld-reach-v3-test`."""
        return f"metaworld-{self.name}" + ("-test" if self.split == "test" else "")

    @property
    @override
    def max_trial_steps(self) -> int:
        return self.attempts * self.attempt_length

    @override
    def eval_config(self) -> EnvConfig:
        return replace(self, split="test")

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        tasks = load_tasks(self.name, self.task_seed)[self.split]
        env_fn = partial(MetaworldEnv, tasks, attempt_length=self.attempt_length)
        return TrialWrapper(
            self.make_vector_env(env_fn, num_envs, seed), horizon=self.max_trial_steps, attempts=self.attempts
        )


def _metaworld() -> Any:
    try:
        return importlib.import_module("metaworld")
    except ImportError as error:
        raise UserError("Meta-World needs the package metaworld: pip install 'yamame[metaworld]'") from error


def _append(observation: Float64[np.ndarray, "39"], number: float) -> _Observation:
    return np.append(observation, number).astype(np.float32)
