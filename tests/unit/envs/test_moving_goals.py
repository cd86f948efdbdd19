"""A `desired_goal` that changes within an episode ends the run in one line."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.envs.wrappers.instruction import make_trials
from yamame.errors import UserError

WALK = np.array([2, 2])


class Line(gymnasium.Env[Any, Any]):
    """Reach `goals[t]` from 0; action 2 goes one up. Episodes have six steps."""

    goal = spaces.Box(-9.0, 9.0, (1,), np.float64)
    observation_space = spaces.Dict(place=goal, achieved_goal=goal, desired_goal=goal)
    action_space = spaces.Discrete(3)

    def __init__(self, goals: tuple[float, ...] = (2.0,)) -> None:
        self.goals = goals
        self.episode = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time, self.place = 0, 0
        self.episode += 1
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.time, self.place = self.time + 1, self.place + int(action) - 1
        return self.observe(), 0.0, False, self.time == 6, {}

    def observe(self) -> Any:
        place, goal = np.array([float(self.place)]), np.array([self.goals[min(self.time, len(self.goals) - 1)]])
        return {"place": place, "achieved_goal": place, "desired_goal": goal}


def build(kind: str, goals: tuple[float, ...]) -> Any:
    if kind == "serial":
        envs: Any = SerialVectorEnv([Line(goals), Line()], 0)
    else:
        sync = SyncVectorEnv([partial(Line, goals), Line], autoreset_mode=AutoresetMode[kind])
        envs = GymnasiumVectorAdapter(sync, 0)
    return make_trials(envs, horizon=6)


@pytest.mark.parametrize("kind", ["serial", "SAME_STEP", "NEXT_STEP", "DISABLED"])
def test_the_first_step_with_another_goal_is_named(kind: str) -> None:
    envs = build(kind, (4.0, 4.0, 4.0, -1.5))
    envs.reset()
    for _ in range(2):
        envs.step(np.array([1, 1]))
    with pytest.raises(UserError) as error:
        envs.step(np.array([1, 1]))
    assert str(error.value) == (
        "environment 0 at step 3 of its episode changed 'desired_goal' from [4.0] to [-1.5], expected that of the "
        "first observation: return all sub-goals there, one a row, or rename the key, which makes it an observation "
        "like others and the reward that of the environment"
    )


@pytest.mark.parametrize("kind", ["serial", "SAME_STEP", "NEXT_STEP", "DISABLED"])
@pytest.mark.parametrize("goals", [(2.0, 2.0, -3.0), (2.0, 2.0005, 1.9995), (2.0,)])
def test_a_goal_may_change_when_it_is_reached_and_by_rounding_errors(kind: str, goals: tuple[float, ...]) -> None:
    envs = build(kind, goals)
    envs.reset()
    envs.step(WALK)
    assert envs.step(WALK).terminated.tolist() == [True, True]
    for _ in range(10):
        envs.step(WALK if goals[-1] == -3.0 else np.array([0, 1]))


def test_each_episode_has_its_own_goal() -> None:
    class Moves(Line):
        def observe(self) -> Any:
            return super().observe() | {"desired_goal": np.array([float(self.episode + 6)])}

    envs = make_trials(SerialVectorEnv([Moves()], 0), horizon=6)
    envs.reset()
    for _ in range(20):
        envs.step(np.array([1]))
