"""Half-Cheetah-Velocity: run at a target velocity seen only in the reward (Finn et al. 2017; paper, figure 5)."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float32, Float64
from typing_extensions import override

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import SingleEnvConfig
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range

MAX_TARGET_VELOCITY = 3.0
"""Meters per second; targets are uniform in [0, this]."""
CONTROL_COST = 0.05

_Observation = Float64[np.ndarray, "17"]
_Action = Float32[np.ndarray, "6"]


class HalfCheetahVelocity(gymnasium.Wrapper[_Observation, _Action, _Observation, _Action]):
    """Gymnasium's HalfCheetah-v5 (MuJoCo) with the reward `-|v - v*| - 0.05 |a|^2`, where `v*` is not observed.

    v is the simulator's mean velocity over the step, `info["x_velocity"]`, in meters per second. An episode is
    truncated after `attempt_length` steps and never terminates. `reset` samples a new `v*` unless `options["new_task"]`
    is False.

    Raises:
        UserError: If MuJoCo is not installed.
    """

    def __init__(self, *, attempt_length: int = 200) -> None:
        try:
            from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise UserError("half-cheetah-velocity needs the package mujoco: pip install 'yamame[mujoco]'") from error
        super().__init__(HalfCheetahEnv())
        if attempt_length < 1:
            raise UserError(f"attempt_length is {attempt_length}: give at least 1")
        self.target_velocity = math.nan
        """v* of the task in meters per second; NaN before the first reset."""
        self._attempt_length = attempt_length
        self._time = 0

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Observation, dict[str, Any]]:
        observation, _ = self.env.reset(seed=seed)
        if math.isnan(self.target_velocity) or (options or {}).get("new_task", True):
            self.target_velocity = float(self.np_random.uniform(0.0, MAX_TARGET_VELOCITY))
        self._time = 0
        return observation, {}

    @override
    def step(self, action: _Action) -> tuple[_Observation, float, bool, bool, dict[str, Any]]:
        """Step the simulator by a twentieth of a second."""
        observation, _, _, _, info = self.env.step(action)
        self._time += 1
        too_fast = info["x_velocity"] - self.target_velocity
        reward = -abs(too_fast) - CONTROL_COST * float(np.square(action, dtype=np.float64).sum())
        out_of_time = self._time >= self._attempt_length
        return observation, float(reward), False, out_of_time, {"x_velocity": info["x_velocity"]}


@dataclass(frozen=True, kw_only=True)
class HalfCheetahVelocityConfig(SingleEnvConfig):
    """A few attempts at one unknown target velocity.

    Every trial samples its own. The paper does not say whether its tasks are a fixed set.
    """

    task_name = "half-cheetah-velocity"

    attempts: int = 3
    """Episodes of a trial, all with one target velocity; memory is kept between them."""
    attempt_length: int = 200
    """Steps of an attempt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "attempts", "attempt_length", ge=1)

    @property
    @override
    def required_extra(self) -> str:
        return "mujoco"

    @property
    @override
    def max_trial_steps(self) -> int:
        return self.attempts * self.attempt_length

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        env_fn = partial(HalfCheetahVelocity, attempt_length=self.attempt_length)
        return TrialWrapper(
            self.make_vector_env(env_fn, num_envs, seed), horizon=self.max_trial_steps, attempts=self.attempts
        )
