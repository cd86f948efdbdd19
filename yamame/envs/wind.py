"""Wind: reach a known point in an unobserved wind (Ni et al. 2022; paper, figure 5)."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Float64, UInt8
from typing_extensions import override

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.rendering import AGENT, FLOOR, GREY, WALL, PlaneCanvas
from yamame.envs.rendering import GOAL as GREEN
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, SingleEnvAdapter, StepResult, parse_reset_options
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range

GOAL = np.array([0.0, 1.0])
"""Position of the goal."""
GOAL_RADIUS = 0.03
"""Maximum distance from the goal at which it counts as reached."""
MAX_MOVE = 0.1
"""Maximum move per step along each axis."""
MAX_WIND = 0.08
"""Maximum wind per step along each axis, less than the maximum move."""
NUM_TRAIN_TASKS, NUM_TEST_TASKS = 40, 20
_TASK_SEED = 1337


class WindVectorEnv(NumpyVectorEnv):
    """E points in the plane, each in its own wind.

    A step adds the action, in [-0.1, 0.1] along both axes, and the wind to the position, which starts at (0, 0).
    Observation `[E, 2]`: the position. Reward: 1 for every step that ends within 0.03 of the goal (0, 1), else 0. An
    episode is truncated after `horizon` steps and never terminates.

    A task is a wind, sampled uniformly from the 40 training tasks of the benchmark, or with `held_out` from its 20 test
    tasks.

    Reset by `options["reset_mask"]`, in the same wind where `options["new_task"]` is False. `info["success"]`: the
    step ended at the goal.
    """

    def __init__(
        self, num_envs: int = 1, *, horizon: int = 75, held_out: bool = False, render_mode: str | None = None
    ) -> None:
        if horizon < 1:
            raise UserError(f"horizon is {horizon}: give at least 1")
        max_distance = horizon * (MAX_MOVE + MAX_WIND)
        positions, moves = (spaces.Box(-limit, limit, (2,), np.float32) for limit in (max_distance, MAX_MOVE))
        super().__init__(num_envs, positions, moves, render_mode)
        self.wind = np.full((num_envs, 2), np.nan)
        """Wind of the task per step; NaN before the first reset."""
        self._tasks = wind_tasks()[NUM_TRAIN_TASKS:] if held_out else wind_tasks()[:NUM_TRAIN_TASKS]
        self._horizon = horizon
        self._position = np.zeros((num_envs, 2))
        self._time = np.zeros(num_envs, np.int64)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, "E 2"], dict[str, Any]]:
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, ~np.isnan(self.wind[:, 0]))
        self.wind[new_task] = self._tasks[self.np_random.integers(len(self._tasks), size=int(new_task.sum()))]
        self._position[rows] = 0.0
        self._time[rows] = 0
        return self._position.astype(np.float32), {}

    @override
    def step(self, actions: Float32[np.ndarray, "E 2"]) -> StepResult[Float32[np.ndarray, "E 2"]]:
        """Step every point. Actions are clipped to their range."""
        self._position += np.clip(actions, -MAX_MOVE, MAX_MOVE) + self.wind
        self._time += 1
        arrived = np.linalg.norm(self._position - GOAL, axis=1) <= GOAL_RADIUS
        out_of_time = self._time >= self._horizon
        observation = self._position.astype(np.float32)
        return observation, arrived.astype(np.float64), np.zeros_like(arrived), out_of_time, {"success": arrived}

    @override
    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """Return a frame: the goal green, the point red (at the edge if it is outside), the wind grey."""
        canvas = PlaneCanvas((-0.75, 0.75), (-0.25, 1.25), FLOOR)
        wind = np.nan_to_num(self.wind[index])
        for x in np.arange(-0.6, 0.7, 0.3):
            for y in np.arange(-0.1, 1.2, 0.3):
                canvas.arrow(np.array([x, y]), np.array([x, y]) + 1.5 * wind, GREY)
        canvas.disc(GOAL, GOAL_RADIUS, GREEN)
        canvas.disc(np.zeros(2), 0.012, WALL)
        canvas.disc(self._position[index], 0.025, AGENT)
        return canvas.image()


def wind_tasks() -> Float64[np.ndarray, "tasks 2"]:
    """Return the 60 winds of the benchmark: 40 training tasks, then 20 test tasks.

    Uniform in [-0.08, 0.08] along both axes, from NumPy's legacy generator with the benchmark's seed.
    """
    size = (NUM_TRAIN_TASKS + NUM_TEST_TASKS, 2)
    return np.random.RandomState(_TASK_SEED).uniform(-MAX_WIND, MAX_WIND, size)


class WindEnv(SingleEnvAdapter):
    """One point of `WindVectorEnv`, whose arguments it takes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(WindVectorEnv(1, **kwargs))


@dataclass(frozen=True, kw_only=True)
class WindConfig(EnvConfig):
    """One episode in an unknown wind, with evaluation in winds that are not trained on."""

    action_names = ("x", "y")

    horizon: int = 75
    """Steps of the episode."""
    held_out: bool = False
    """Sample the wind from the 20 test tasks instead of the 40 training tasks."""

    def __post_init__(self) -> None:
        check_range(self, "horizon", ge=1)

    @property
    @override
    def task_name(self) -> str:
        """`wind`, or `wind-held-out`."""
        return "wind-held-out" if self.held_out else "wind"

    @override
    def eval_config(self) -> EnvConfig:
        return replace(self, held_out=True)

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        points = WindVectorEnv(num_envs, horizon=self.horizon, held_out=self.held_out)
        return TrialWrapper(GymnasiumVectorAdapter(points, seed), horizon=self.horizon, attempts=1)
