"""Package Delivery: deliver packages along a road with forks, by an unknown action (paper, appendix C)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Int64, UInt8
from typing_extensions import override

from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY, NO_GOAL
from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import GoalEnvConfig
from yamame.envs.rendering import AGENT, FLOOR, GOAL, HINT, WALL, GridCanvas
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, StepResult, parse_reset_options
from yamame.envs.wrappers.instruction import make_trials
from yamame.errors import ConfigFieldError, check_range

FORWARD, LEFT, RIGHT = 0, 1, 2
FIRST_DROP, DROPS = 3, 4
NO_PACKAGE = FIRST_DROP + DROPS
PACKAGES_PER_DESTINATION = 3
_ROW = 10
"""Positions of the road per row of a frame."""


class PackageDeliveryVectorEnv(NumpyVectorEnv):
    """E roads of `road_length` positions from 0; the last position leads back to 0.

    A task is a set of forks, each with its correct side, the one valid drop action, and the destinations in ascending
    order, at `min_destination` or later. A tenth to a fifth of the positions are forks, 3 to 6 of 30 (authors' code; in
    the paper 2 to 6). Forks and destinations never coincide and are never at 0. Actions: forward
    (not at a fork); left, right (at a fork: forward if correct, otherwise back to 0); four drop actions; nothing. A
    package dropped by the valid action makes the position an achieved goal; a drop by another action, at 0 or without
    packages leads back to 0; at a fork a drop has no effect. Observation `[E, 3]`: position, packages left, at a fork.

    Reset by `options["reset_mask"]`, on the same task where `options["new_task"]` is False. The arguments are fields of
    `PackageDeliveryConfig`, and the minimum number of destinations.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        road_length: int = 30,
        min_goals: int = 2,
        max_goals: int = 4,
        min_destination: int = 1,
        render_mode: str | None = None,
    ) -> None:
        max_value = float(max(road_length, PACKAGES_PER_DESTINATION * max_goals))
        space = spaces.Dict(
            {
                "observation": spaces.Box(0.0, max_value, (3,), np.float32),
                ACHIEVED_KEY: spaces.Box(NO_GOAL, road_length - 1, (1, 1), np.float32),
                DESIRED_KEY: spaces.Box(NO_GOAL, road_length - 1, (max_goals, 1), np.float32),
            }
        )
        super().__init__(num_envs, space, spaces.Discrete(NO_PACKAGE + 1), render_mode)
        self.road_length, self.min_destination = road_length, min_destination
        self.min_goals, self.max_goals = min_goals, max_goals
        self.correct_side = np.full((num_envs, road_length), -1)
        """LEFT or RIGHT at forks, -1 elsewhere."""
        self.valid_drop = np.full(num_envs, -1)
        """The valid drop action; -1 before the first reset."""
        self.destinations = np.full((num_envs, max_goals), NO_GOAL, np.float32)
        self._position, self._packages = np.zeros((2, num_envs), np.int64)
        self._delivered = np.full(num_envs, NO_GOAL, np.float32)
        self._rows = np.arange(num_envs)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Float32[np.ndarray, "E ..."]], dict[str, Any]]:
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, self.valid_drop >= 0)
        for row in np.flatnonzero(new_task):
            self._sample_task(int(row))
        self._position[rows] = 0
        self._packages[rows] = PACKAGES_PER_DESTINATION * (self.destinations[rows] != NO_GOAL).sum(axis=1)
        self._delivered[rows] = NO_GOAL
        return self._observe(), {}

    @override
    def step(self, actions: Int64[np.ndarray, "E"]) -> StepResult[dict[str, Float32[np.ndarray, "E ..."]]]:
        """Step every road. Rewards are 0 and nothing ends: `InstructionWrapper` adds both."""
        position = self._position
        correct_side = self.correct_side[self._rows, position]
        fork = correct_side >= 0
        drops = (actions >= FIRST_DROP) & (actions < NO_PACKAGE) & ~fork
        delivers = drops & (actions == self.valid_drop) & (self._packages > 0) & (position > 0)
        turns = fork & ((actions == LEFT) | (actions == RIGHT))
        forward = (~fork & (actions == FORWARD)) | (turns & (actions == correct_side))
        back = (drops & ~delivers) | (turns & (actions != correct_side))
        self._delivered = np.where(delivers, position, NO_GOAL).astype(np.float32)
        self._packages = self._packages - delivers
        self._position = np.where(back, 0, (position + forward) % self.road_length)
        never = np.zeros(self.num_envs, np.bool_)
        return self._observe(), np.zeros(self.num_envs), never, never.copy(), {}

    def _sample_task(self, row: int) -> None:
        rng, road = self.np_random, self.road_length
        num_forks = int(rng.integers(road // 10, road // 5 + 1))
        count = int(rng.integers(self.min_goals, self.max_goals + 1))
        positions = rng.permutation(np.arange(1, road))
        forks, others = positions[:num_forks], positions[num_forks:]
        self.correct_side[row] = -1
        self.correct_side[row, forks] = rng.integers(LEFT, RIGHT + 1, num_forks)
        self.valid_drop[row] = FIRST_DROP + rng.integers(DROPS)
        self.destinations[row] = NO_GOAL
        self.destinations[row, :count] = np.sort(others[others >= self.min_destination][:count])

    def _observe(self) -> dict[str, Float32[np.ndarray, "E ..."]]:
        at_fork = self.correct_side[self._rows, self._position] >= 0
        return {
            "observation": np.stack([self._position, self._packages, at_fork], axis=1).astype(np.float32),
            ACHIEVED_KEY: self._delivered[:, None, None].copy(),
            DESIRED_KEY: self.destinations[:, :, None].copy(),
        }

    @override
    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """Return a frame: the road in rows from left to right, destinations green, forks yellow with the correct side.

        The squares at the bottom are the packages left.
        """
        rows = -(-self.road_length // _ROW)
        canvas = GridCanvas(_ROW + 2, 3 * rows + 1, WALL)

        def at(position: int) -> tuple[int, int]:
            return position % _ROW + 1, 3 * (rows - position // _ROW) - 1

        for position in range(self.road_length):
            canvas.fill(*at(position), FLOOR)
        for fork in map(int, np.flatnonzero(self.correct_side[index] >= 0)):
            x, y = at(fork)
            left = self.correct_side[index, fork] == LEFT
            canvas.fill(x, y, HINT)
            canvas.arrow(x, y + (1 if left else -1), HINT, up=bool(left), fraction=0.7)
        for destination in self.destinations[index, self.destinations[index] != NO_GOAL]:
            canvas.fill(*at(int(destination)), GOAL)
        canvas.disc(*at(int(self._position[index])), AGENT, fraction=0.6)
        for package in range(min(_ROW, int(self._packages[index]))):
            canvas.square(package + 1, 0, FLOOR, fraction=0.35)
        return canvas.image


@dataclass(frozen=True, kw_only=True)
class PackageDeliveryConfig(GoalEnvConfig):
    """Find out where to turn and how to drop, and deliver to 2 to `max_goals` destinations."""

    action_names = ("forward", "left", "right", *(f"drop {number}" for number in range(1, DROPS + 1)), "nothing")

    max_goals: int = 4
    """Maximum number of destinations; 1: the ablation "w/o multi-goal"."""
    road_length: int = 30
    """Positions of the road. A tenth to a fifth of them are forks."""
    min_destination: int = 1
    """First position that can be a destination: 1 in the paper. From 10 on, random actions hardly ever get a reward."""
    horizon: int = 180
    """Steps of a trial."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "road_length", ge=10)
        check_range(self, "horizon", "min_destination", ge=1)
        max_goals = self.road_length - self.min_destination - self.road_length // 5
        if max_goals < 1:
            last = self.road_length - 1 - self.road_length // 5
            problem = f"must be at most {last} on a road of {self.road_length} positions"
            raise ConfigFieldError(self, "min_destination", problem)
        if self.max_goals > max_goals:
            problem = f"must be at most {max_goals} on a road of {self.road_length} positions with destinations"
            raise ConfigFieldError(self, "max_goals", f"{problem} from {self.min_destination} on")

    @property
    @override
    def task_name(self) -> str:
        """Such as `package-delivery-30` or `package-delivery-30-from-10`."""
        suffix = f"-from-{self.min_destination}" if self.min_destination > 1 else ""
        return f"package-delivery-{self.road_length}{suffix}"

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        roads = PackageDeliveryVectorEnv(
            num_envs,
            road_length=self.road_length,
            min_goals=min(2, self.max_goals),
            max_goals=self.max_goals,
            min_destination=self.min_destination,
        )
        return make_trials(
            GymnasiumVectorAdapter(roads, seed), horizon=self.horizon, hide_future_goals=self.hide_future_goals
        )
