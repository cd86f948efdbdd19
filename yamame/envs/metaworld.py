"""Meta-World: a robot arm, goals that only show in the reward, and test tasks kept apart (Yu et al. 2020)."""

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

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig, SingleEnvConfig
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range

MAX_ATTEMPT = 500
"""Steps after which Meta-World itself ends an attempt, and refuses to go on."""
BENCHMARKS = ("ML10", "ML45")
"""Those in which the test tasks are other ones, such as opening a door after learning to close it."""
VARIATIONS = 50
"""Variations of a task in each split: where the goal and the objects are."""

Split = Literal["train", "test"]

_Observation = Float32[np.ndarray, "40"]
_Action = Float32[np.ndarray, "4"]


class MetaworldEnv(gymnasium.Env[_Observation, _Action]):
    """One arm, whose task is drawn uniformly from `tasks` at every reset, unless `options["new_task"]` is false.

    Observation: the 39 numbers of Meta-World, of which the last three, the goal, are always 0, and one that is 1 right
    after a reset and 0 otherwise. Action: where the hand moves (3) and what the gripper does, each in [-1, 1]. The
    reward is Meta-World's own, from 0 to 10. An attempt is truncated after `attempt_length` steps, at most 500; nothing
    terminates it. `info["success"]`: at this step the task is done.

    Making the simulator of another task (not of another variation) takes a fifth of a second, and it is not kept: an
    environment of ML45 that kept all would hold a gigabyte.
    """

    def __init__(self, tasks: Sequence[Any], *, attempt_length: int = MAX_ATTEMPT) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (40,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.task: Any = None
        """Meta-World's record of the task; None before the first reset."""
        self._tasks = tasks
        self._attempt_length = attempt_length
        self._time = 0
        self._simulator: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Observation, dict[str, Any]]:
        """As Gymnasium: begins an attempt."""
        super().reset(seed=seed)
        if self.task is None or (options or {}).get("new_task", True):
            self._begin_task(self._tasks[int(self.np_random.integers(len(self._tasks)))])
        self._time = 0
        seen, _ = self._simulator.reset()
        return _with_flag(seen, 1.0), {}

    def step(self, action: _Action) -> tuple[_Observation, float, bool, bool, dict[str, Any]]:
        """As Gymnasium."""
        seen, reward, _, _, info = self._simulator.step(action)
        self._time += 1
        success = bool(info["success"] > 0)
        return _with_flag(seen, 0.0), float(reward), False, self._time >= self._attempt_length, {"success": success}

    def close(self) -> None:
        """Give the simulator back."""
        if self._simulator is not None:
            self._simulator.close()

    def _begin_task(self, task: Any) -> None:
        if self.task is None or task.env_name != self.task.env_name:
            self.close()
            self._simulator = _metaworld().ALL_V3_ENVIRONMENTS[task.env_name]()
        self.task = task
        self._simulator.set_task(task)


@cache
def load_tasks(name: str, seed: int) -> dict[Split, tuple[Any, ...]]:
    """Meta-World's records of the tasks to train on and to be judged on: 50 variations of each, drawn from `seed`.

    `name` is a task (ML1: the splits are different variations of it) or one of `BENCHMARKS` (different tasks). Takes
    2 seconds for one task, 11 for ML10, and 37 for ML45; asked again, this process knows the answer. Raises `UserError`
    for a name that Meta-World does not know, with the nearest that it does.
    """
    metaworld = _metaworld()
    known = (*metaworld.ML1.ENV_NAMES, *BENCHMARKS)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise UserError(f"Meta-World has no task {name!r}: did you mean {nearest!r}?")
    drawn = getattr(metaworld, name)(seed=seed) if name in BENCHMARKS else metaworld.ML1(name, seed=seed)
    return {"train": tuple(drawn.train_tasks), "test": tuple(drawn.test_tasks)}


@dataclass(frozen=True, kw_only=True)
class MetaworldConfig(SingleEnvConfig):
    """Attempts on one task whose goal has to be found out: ML1, ML10 or ML45 (paper, Figure 6).

    The authors' code gives one step more than all attempts have, which changes nothing. It also judged on the training
    goals of ML1 for a while; here the splits are apart.
    """

    name: str = "reach-v3"
    """A task such as `push-v3`, of which only the variation changes (ML1); or `ML10` or `ML45`, where the task does."""
    split: Split = "train"
    """Which tasks: those to train on or those to be judged on."""
    attempts: int = 5
    """Attempts on a task that make a trial."""
    attempt_length: int = MAX_ATTEMPT
    """Steps of an attempt. Differs from the benchmark, which has 500, where it is less: cheaper, but some tasks cannot
    be done so fast."""
    task_seed: int = 0
    """What Meta-World draws the variations of both splits from: comparable runs have the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "attempts", ge=1)
        check_range(self, "attempt_length", ge=1, le=MAX_ATTEMPT)
        check_range(self, "task_seed", ge=0)

    @property
    def task_name(self) -> str:
        """Such as `metaworld-reach-v3`, or `metaworld-reach-v3-test`."""
        return f"metaworld-{self.name}" + ("-test" if self.split == "test" else "")

    @property
    def max_trial_steps(self) -> int:
        """All steps of all attempts."""
        return self.attempts * self.attempt_length

    def eval_config(self) -> EnvConfig:
        """The test tasks."""
        return replace(self, split="test")

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build`; `UserError` for an unknown name names the nearest one."""
        tasks = load_tasks(self.name, self.task_seed)[self.split]
        make = partial(MetaworldEnv, tasks, attempt_length=self.attempt_length)
        return TrialWrapper(
            self.make_vector_env(make, num_envs, seed), horizon=self.max_trial_steps, attempts=self.attempts
        )


def _metaworld() -> Any:
    try:
        return importlib.import_module("metaworld")
    except ImportError as error:
        raise UserError("Meta-World needs the package metaworld: pip install 'yamame[metaworld]'") from error


def _with_flag(seen: Float64[np.ndarray, "39"], flag: float) -> _Observation:
    return np.append(seen, flag).astype(np.float32)
