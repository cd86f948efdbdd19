"""Wind: reach a known point in a wind that only shows in where one is carried (Ni et al. 2022; paper, Figure 5)."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float32, Float64, UInt8

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.rendering import AGENT, FLOOR, GREY, WALL, PlaneCanvas
from yamame.envs.rendering import GOAL as GREEN
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, parse_reset_options
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range

GOAL = np.array([0.0, 1.0])
"""Where the reward is."""
GOAL_RADIUS = 0.03
"""Distance from it that is near enough."""
MAX_MOVE = 0.1
"""Largest move of one step along each axis."""
MAX_WIND = 0.08
"""Largest wind along each axis: any can be stood against."""
NUM_TRAIN_TASKS, NUM_TEST_TASKS = 40, 20
_TASK_SEED = 1337


class WindVectorEnv(NumpyVectorEnv):
    """E points in the plane, each in a wind of its own, in one call.

    A step adds the action, in [-0.1, 0.1] along both axes, and the wind to the position; it starts at (0, 0).
    Observation `[E, 2]`: the position. Reward: 1 for every step that ends within 0.03 of the goal (0, 1), else 0. An
    episode is truncated after `horizon` steps; nothing terminates it.

    A task is a wind, drawn uniformly from the benchmark's 40 training tasks, or from its other 20 with `held_out`.

    Reset by `options["reset_mask"]`, in the same wind where `options["new_task"]` is false. `info["success"]`: the
    step ends at the goal.
    """

    def __init__(
        self, num_envs: int = 1, *, horizon: int = 75, held_out: bool = False, render_mode: str | None = None
    ) -> None:
        if horizon < 1:
            raise UserError(f"horizon is {horizon}: give at least 1")
        super().__init__(render_mode)
        self.num_envs = num_envs
        farthest = horizon * (MAX_MOVE + MAX_WIND)
        self.single_observation_space = spaces.Box(-farthest, farthest, (2,), np.float32)
        self.single_action_space = spaces.Box(-MAX_MOVE, MAX_MOVE, (2,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.wind = np.full((num_envs, 2), np.nan)
        """Of the task, per step; NaN before the first reset."""
        self._tasks = wind_tasks()[NUM_TRAIN_TASKS:] if held_out else wind_tasks()[:NUM_TRAIN_TASKS]
        self._horizon = horizon
        self._position = np.zeros((num_envs, 2))
        self._time = np.zeros(num_envs, np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, "E 2"], dict[str, Any]]:
        """Back to (0, 0) in the rows of the mask."""
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, ~np.isnan(self.wind[:, 0]))
        self.wind[new_task] = self._tasks[self.np_random.integers(len(self._tasks), size=int(new_task.sum()))]
        self._position[rows] = 0.0
        self._time[rows] = 0
        self.show()
        return self._position.astype(np.float32), {}

    def step(
        self, actions: Float32[np.ndarray, "E 2"]
    ) -> tuple[
        Float32[np.ndarray, "E 2"],
        Float64[np.ndarray, "E"],
        Bool[np.ndarray, "E"],
        Bool[np.ndarray, "E"],
        dict[str, Any],
    ]:
        """One step of every point; actions are clipped to their range."""
        self._position += np.clip(actions, -MAX_MOVE, MAX_MOVE) + self.wind
        self._time += 1
        arrived = np.linalg.norm(self._position - GOAL, axis=1) <= GOAL_RADIUS
        out_of_time = self._time >= self._horizon
        observation = self._position.astype(np.float32)
        self.show()
        return observation, arrived.astype(np.float64), np.zeros_like(arrived), out_of_time, {"success": arrived}

    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """What one plane looks like: the goal green, the point red (at the edge if it is outside), its wind grey."""
        plane = PlaneCanvas((-0.75, 0.75), (-0.25, 1.25), FLOOR)
        wind = np.nan_to_num(self.wind[index])
        for x in np.arange(-0.6, 0.7, 0.3):
            for y in np.arange(-0.1, 1.2, 0.3):
                plane.arrow(np.array([x, y]), np.array([x, y]) + 1.5 * wind, GREY)
        plane.disc(GOAL, GOAL_RADIUS, GREEN)
        plane.disc(np.zeros(2), 0.012, WALL)
        plane.disc(self._position[index], 0.025, AGENT)
        return plane.image()


def wind_tasks() -> Float64[np.ndarray, "tasks 2"]:
    """The 60 winds, the same for everyone: 40 to train in, then 20 that are held out.

    Uniform in [-0.08, 0.08] along both axes, from NumPy's legacy generator with the benchmark's seed.
    """
    size = (NUM_TRAIN_TASKS + NUM_TEST_TASKS, 2)
    return np.random.RandomState(_TASK_SEED).uniform(-MAX_WIND, MAX_WIND, size)


@dataclass(frozen=True, kw_only=True)
class WindConfig(EnvConfig):
    """One episode in an unknown wind: the agent is judged in winds that it never trained in."""

    horizon: int = 75
    """Steps of the one episode."""
    held_out: bool = False
    """Draw the wind from the 20 tasks kept for evaluation, not from the 40 training tasks."""

    def __post_init__(self) -> None:
        check_range(self, "horizon", ge=1)

    @property
    def task_name(self) -> str:
        """`wind`, or `wind-held-out`."""
        return "wind-held-out" if self.held_out else "wind"

    @property
    def max_trial_steps(self) -> int:
        """The horizon."""
        return self.horizon

    def eval_config(self) -> EnvConfig:
        """The held-out tasks."""
        return replace(self, held_out=True)

    @property
    def action_names(self) -> tuple[str, ...]:
        """See `EnvConfig.action_names`."""
        return ("x", "y")

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build`."""
        points = WindVectorEnv(num_envs, horizon=self.horizon, held_out=self.held_out)
        return TrialWrapper(GymnasiumVectorAdapter(points, seed), horizon=self.horizon, attempts=1)
