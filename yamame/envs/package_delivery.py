"""Package Delivery: a long road with forks, and packages to drop at the right places in the right way (appendix C)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float32, Float64, Int64, UInt8

from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY, NO_GOAL
from yamame.envs.base import TrialVectorEnv
from yamame.envs.rendering import AGENT, FLOOR, GOAL, HINT, WALL, GridCanvas
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, parse_reset_options
from yamame.envs.wrappers.instruction import GoalEnvConfig, make_instruction_trials
from yamame.errors import ConfigFieldError, check_range

FORWARD, LEFT, RIGHT = 0, 1, 2
FIRST_DROP, DROPS = 3, 4
NO_PACKAGE = FIRST_DROP + DROPS
PACKAGES_PER_DESTINATION = 3
_ROW = 10
"""Positions of the road beside each other in a picture."""


class PackageDeliveryVectorEnv(NumpyVectorEnv):
    """E roads in one call, each of `road_length` positions from 0 that lead back to 0.

    A task is a set of forks, each with its right side, the one valid way of dropping, and the destinations in rising
    order, from `min_destination` on; forks and destinations never coincide, nor are they at 0. Actions: forward
    (not at a fork); left, right (at a fork: forward by the right one, back to 0 by the other); four ways to drop a
    package; nothing. A package dropped in the valid way makes the position an achieved goal; in another way, at 0 or
    with none left, it leads back to 0; at a fork nothing happens. Observation `[E, 3]`: position, packages left, at a
    fork.

    Reset by `options["reset_mask"]`, on the same task where `options["new_task"]` is false.
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
        super().__init__(render_mode)
        self.num_envs, self.road_length = num_envs, road_length
        self.min_goals, self.max_goals, self.min_destination = min_goals, max_goals, min_destination
        highest = float(max(road_length, PACKAGES_PER_DESTINATION * max_goals))
        self.single_observation_space = spaces.Dict(
            {
                "observation": spaces.Box(0.0, highest, (3,), np.float32),
                ACHIEVED_KEY: spaces.Box(NO_GOAL, road_length - 1, (1, 1), np.float32),
                DESIRED_KEY: spaces.Box(NO_GOAL, road_length - 1, (max_goals, 1), np.float32),
            }
        )
        self.single_action_space = spaces.Discrete(NO_PACKAGE + 1)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.right_side = np.full((num_envs, road_length), -1)
        """LEFT or RIGHT at forks, -1 elsewhere."""
        self.valid_drop = np.full(num_envs, -1)
        """The action that drops; -1 before the first reset."""
        self.destinations = np.full((num_envs, max_goals), NO_GOAL, np.float32)
        self._position, self._packages = np.zeros((2, num_envs), np.int64)
        self._delivered = np.full(num_envs, NO_GOAL, np.float32)
        self._rows = np.arange(num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Float32[np.ndarray, "E ..."]], dict[str, Any]]:
        """Back to the beginning of the road, with all packages, in the rows of the mask."""
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, self.valid_drop >= 0)
        for row in np.flatnonzero(new_task):
            self._sample_task(int(row))
        self._position[rows] = 0
        self._packages[rows] = PACKAGES_PER_DESTINATION * (self.destinations[rows] != NO_GOAL).sum(axis=1)
        self._delivered[rows] = NO_GOAL
        self.show()
        return self._observe(), {}

    def step(
        self, actions: Int64[np.ndarray, "E"]
    ) -> tuple[
        dict[str, Float32[np.ndarray, "E ..."]],
        Float64[np.ndarray, "E"],
        Bool[np.ndarray, "E"],
        Bool[np.ndarray, "E"],
        dict[str, Any],
    ]:
        """One step on every road. Rewards are 0: they follow from the instruction."""
        position = self._position
        right_side = self.right_side[self._rows, position]
        fork = right_side >= 0
        drops = (actions >= FIRST_DROP) & (actions < NO_PACKAGE) & ~fork
        delivers = drops & (actions == self.valid_drop) & (self._packages > 0) & (position > 0)
        turns = fork & ((actions == LEFT) | (actions == RIGHT))
        forward = (~fork & (actions == FORWARD)) | (turns & (actions == right_side))
        back = (drops & ~delivers) | (turns & (actions != right_side))
        self._delivered = np.where(delivers, position, NO_GOAL).astype(np.float32)
        self._packages = self._packages - delivers
        self._position = np.where(back, 0, (position + forward) % self.road_length)
        never = np.zeros(self.num_envs, np.bool_)
        self.show()
        return self._observe(), np.zeros(self.num_envs), never, never.copy(), {}

    def _sample_task(self, row: int) -> None:
        rng, road = self.np_random, self.road_length
        num_forks = int(rng.integers(road // 10, road // 5 + 1))
        count = int(rng.integers(self.min_goals, self.max_goals + 1))
        places = rng.permutation(np.arange(1, road))
        forks, others = places[:num_forks], places[num_forks:]
        self.right_side[row] = -1
        self.right_side[row, forks] = rng.integers(LEFT, RIGHT + 1, num_forks)
        self.valid_drop[row] = FIRST_DROP + rng.integers(DROPS)
        self.destinations[row] = NO_GOAL
        self.destinations[row, :count] = np.sort(others[others >= self.min_destination][:count])

    def _observe(self) -> dict[str, Float32[np.ndarray, "E ..."]]:
        at_fork = self.right_side[self._rows, self._position] >= 0
        return {
            "observation": np.stack([self._position, self._packages, at_fork], axis=1).astype(np.float32),
            ACHIEVED_KEY: self._delivered[:, None, None].copy(),
            DESIRED_KEY: self.destinations[:, :, None].copy(),
        }

    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """What one road looks like, in rows from left to right: destinations green, forks yellow with the right side.

        The squares below are packages that are left.
        """
        rows = -(-self.road_length // _ROW)
        board = GridCanvas(_ROW + 2, 3 * rows + 1, WALL)

        def at(position: int) -> tuple[int, int]:
            return position % _ROW + 1, 3 * (rows - position // _ROW) - 1

        for position in range(self.road_length):
            board.fill(*at(position), FLOOR)
        for fork in map(int, np.flatnonzero(self.right_side[index] >= 0)):
            x, y = at(fork)
            left = self.right_side[index, fork] == LEFT
            board.fill(x, y, HINT)
            board.arrow(x, y + (1 if left else -1), HINT, up=bool(left), share=0.7)
        for destination in self.destinations[index, self.destinations[index] != NO_GOAL]:
            board.fill(*at(int(destination)), GOAL)
        board.disc(*at(int(self._position[index])), AGENT, share=0.6)
        for package in range(min(_ROW, int(self._packages[index]))):
            board.square(package + 1, 0, FLOOR, share=0.35)
        return board.image


@dataclass(frozen=True, kw_only=True)
class PackageDeliveryConfig(GoalEnvConfig):
    """Find out which way to turn and how to drop, and deliver; 2 to 4 destinations unless told otherwise."""

    max_goals: int = 4
    """Most destinations of a road; 1: the ablation "w/o multi-goal"."""
    road_length: int = 30
    """Positions of the road. It has a fork at every tenth to every fifth of them."""
    min_destination: int = 1
    """The first position that can be a destination: 1 in the paper. From 10 on, random actions are hardly ever paid."""
    horizon: int = 180
    """Steps of a trial."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "road_length", ge=10)
        check_range(self, "horizon", ge=1)
        check_range(self, "min_destination", ge=1)
        most = self.road_length - self.min_destination - self.road_length // 5
        if most < 1:
            farthest = self.road_length - 1 - self.road_length // 5
            problem = f"must be at most {farthest} on a road of {self.road_length} positions"
            raise ConfigFieldError(self, "min_destination", problem)
        if self.max_goals > most:
            problem = f"must be at most {most} on a road of {self.road_length} positions with destinations"
            raise ConfigFieldError(self, "max_goals", f"{problem} from {self.min_destination} on")

    @property
    def task_name(self) -> str:
        """Such as `package-delivery-30` or `package-delivery-30-from-10`."""
        nearest = f"-from-{self.min_destination}" if self.min_destination > 1 else ""
        return f"package-delivery-{self.road_length}{nearest}"

    @property
    def max_trial_steps(self) -> int:
        """The horizon."""
        return self.horizon

    @property
    def action_names(self) -> tuple[str, ...]:
        """See `EnvConfig.action_names`."""
        return ("forward", "left", "right", *(f"drop {way}" for way in range(1, DROPS + 1)), "nothing")

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build`."""
        roads = PackageDeliveryVectorEnv(
            num_envs,
            road_length=self.road_length,
            min_goals=min(2, self.max_goals),
            max_goals=self.max_goals,
            min_destination=self.min_destination,
        )
        return make_instruction_trials(
            GymnasiumVectorAdapter(roads, seed), horizon=self.horizon, hide_future_goals=self.hide_future_goals
        )
