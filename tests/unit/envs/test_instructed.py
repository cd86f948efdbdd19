from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from yamame.collect.collector import Collector, Policy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.data.actions import zero_action
from yamame.data.goals import ACHIEVED_KEY, COMPLETED, DESIRED_KEY, INSTRUCTION_KEY, NO_GOAL
from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.vector.gymnasium_adapter import make_episode_vector_env
from yamame.envs.wrappers.instruction import InstructionWrapper, is_goal_env, make_trials
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError

NONE, DONE = NO_GOAL, COMPLETED


class Caller(gymnasium.Env[dict[str, np.ndarray], int]):
    """Achieves the number that the action calls, and also 7 when it calls 3; 9 ends the episode."""

    def __init__(self, instruction: tuple[int, ...] = (2, 3), slots: int = 3) -> None:
        self.instruction = instruction
        self.observation_space = spaces.Dict(
            {
                "heard": spaces.Box(0, 9, (1,), np.float32),
                ACHIEVED_KEY: spaces.Box(-1, 9, (2, 1), np.int64),
                DESIRED_KEY: spaces.Box(-1, 9, (slots, 1), np.int64),
            }
        )
        self.action_space = spaces.Discrete(10)
        self.desired = np.full((slots, 1), -1)
        self.desired[: len(instruction), 0] = instruction

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        shown = self.instruction[0] if self.instruction else 0  # a reset achieves nothing, whatever it shows
        return self._seen(shown), {}

    def step(self, action: int) -> Any:
        return self._seen(int(action)), 5.0, action == 9, False, {"success": True}

    def _seen(self, heard: int) -> dict[str, np.ndarray]:
        achieved = np.array([[heard], [7 if heard == 3 else -1]])
        return {"heard": np.array([heard], np.float32), ACHIEVED_KEY: achieved, DESIRED_KEY: self.desired}


def trials(*instructions: tuple[int, ...], horizon: int = 9, **settings: Any) -> TrialWrapper:
    environments = make_episode_vector_env([Caller(instruction) for instruction in instructions], seed=0)
    return make_trials(environments, horizon=horizon, **settings)


def shown(leaves: Any, env: int = 0) -> list[float]:
    return leaves[INSTRUCTION_KEY][env, :, 0].tolist()


def test_the_agent_sees_the_instruction_and_not_what_announces_it() -> None:
    one = trials((2, 3))
    leaves = one.reset()
    assert set(leaves) == {"heard", INSTRUCTION_KEY}
    assert shown(leaves) == [NONE, 2, 3]
    space = one.observation_space
    assert isinstance(space, spaces.Dict) and set(space.spaces) == {"heard", INSTRUCTION_KEY}
    leaf = space[INSTRUCTION_KEY]
    assert isinstance(leaf, spaces.Box) and leaf.dtype == np.int64 and leaf.shape == (3, 1)
    assert (leaf.low == COMPLETED).all() and (leaf.high == 9).all()


def test_rewards_follow_the_active_sub_goal_alone() -> None:
    one = trials((2, 3))
    one.reset()
    log = []
    for action in (3, 2, 2, 3):
        step = one.step(np.array([action]))
        log.append((step.reward[0], bool(step.terminated[0]), bool(step.success[0]), shown(step.final_observation)))
    assert log == [
        (0.0, False, False, [NONE, 2, 3]),
        (1.0, False, False, [NONE, DONE, 3]),
        (0.0, False, False, [NONE, DONE, 3]),
        (1.0, True, True, [NONE, DONE, DONE]),
    ]
    assert shown(step.observation) == [NONE, 2, 3]  # the next episode has started


def test_one_sub_goal_a_step_even_if_two_were_achieved() -> None:
    one = trials((3, 7))
    one.reset()
    first, second = one.step(np.array([3])), one.step(np.array([3]))
    assert (first.reward[0], first.terminated[0], second.reward[0], second.terminated[0]) == (1.0, False, 1.0, True)


def test_rows_are_at_their_own_sub_goals() -> None:
    several = trials((2, 3), (5,), (3, 2, 1))
    several.reset()
    step = several.step(np.array([2, 5, 2]))
    assert step.reward.tolist() == [1.0, 1.0, 0.0]
    assert step.terminated.tolist() == [False, True, False]
    assert [shown(step.final_observation, env) for env in range(3)] == [[NONE, DONE, 3], [NONE, NONE, DONE], [3, 2, 1]]
    assert several.step(np.array([3, 4, 3])).reward.tolist() == [1.0, 0.0, 1.0]


def test_a_hidden_plan_is_hidden() -> None:
    one = trials((2, 3, 4), hide_future_goals=True)
    assert shown(one.reset()) == [NONE, NONE, 2]
    assert shown(one.step(np.array([2])).observation) == [NONE, DONE, 3]


def test_the_environment_may_end_the_episode_and_the_horizon_does() -> None:
    one = trials((2, 3), horizon=2)
    one.reset()
    died = one.step(np.array([9]))
    assert (died.terminated[0], died.truncated[0], died.success[0]) == (True, False, False)
    one.step(np.array([0]))
    late = one.step(np.array([0]))
    assert (late.terminated[0], late.truncated[0]) == (False, True)


def test_the_stored_trial_has_its_instruction_and_achieved_goals() -> None:
    collector = Collector(trials((2, 3), (9, 4)), "calls", Explorer(NoExploration(), spaces.Discrete(10), 2, RNG))
    finished = [
        pair for actions in ((3, 1), (2, 9), (3, 0)) for pair in collector.step(Scripted(actions), deterministic=True)
    ]
    assert [env for env, _ in finished] == [1, 0]
    died, done = finished[0][1], finished[1][1]
    assert died.goals is not None and done.goals is not None
    assert died.goals.instruction.tolist() == [[9], [4]] and died.goals.completion_steps() == [1]
    assert died.goals.achieved_goal.tolist() == [[1], [9]] and died.goals.achieved_step.tolist() == [0, 1]
    assert done.goals.achieved_goal.tolist() == [[3], [7], [2], [3], [7]]
    assert done.goals.achieved_step.tolist() == [0, 0, 1, 2, 2]
    assert done.reward.tolist() == [0, 1, 1] and done.goals.completion_steps() == [1, 2]
    assert done.observation[INSTRUCTION_KEY].shape == (4, 3, 1)
    assert done.success is not None and done.success.tolist() == [False, False, True]


RNG = np.random.default_rng(0)


class Scripted(Policy):
    """Follows the instruction."""

    version = 0

    def __init__(self, actions: tuple[int, ...]) -> None:
        self.actions = np.array(actions)

    def act(self, step: Any, *, deterministic: bool) -> np.ndarray:
        assert step.previous_action.dtype == zero_action(spaces.Discrete(10), 1).dtype
        return self.actions


class Fetch(gymnasium.Env[dict[str, np.ndarray], np.ndarray]):
    """As the goal environments of Gymnasium-Robotics: one goal, in coordinates that may be negative."""

    observation_space = spaces.Dict(
        {name: spaces.Box(-2, 2, (2,), np.float64) for name in ("observation", ACHIEVED_KEY, DESIRED_KEY)}
    )
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._seen(np.zeros(2)), {}

    def step(self, action: np.ndarray) -> Any:
        return self._seen(action.astype(np.float64)), -1.0, False, False, {}

    def _seen(self, place: np.ndarray) -> dict[str, np.ndarray]:
        return {"observation": place, ACHIEVED_KEY: place, DESIRED_KEY: np.array([-1.0, -0.5])}


def test_environments_of_one_goal_that_is_achieved_at_every_step() -> None:
    one = make_trials(make_episode_vector_env(Fetch(), seed=0), horizon=5, goal_tolerance=0.05)
    assert one.reset()[INSTRUCTION_KEY].tolist() == [[[-1.0, -0.5]]]
    assert one.step(np.array([[-0.9, -0.5]], np.float32)).reward[0] == 0.0
    assert one.step(np.array([[-0.96, -0.46]], np.float32)).terminated[0]


def test_a_factory_s_environments_that_announce_goals_are_instructed() -> None:
    config = EnvFnConfig(env_fn=Fetch, horizon=5, goal_tolerance=0.2, num_workers=0)
    one = config.build(2, seed=0)
    assert set(one.reset()) == {"observation", INSTRUCTION_KEY}
    assert one.step(np.array([[-0.9, -0.5], [-0.7, -0.5]], np.float32)).reward.tolist() == [1.0, 0.0]


def test_what_announces_goals() -> None:
    assert is_goal_env(Caller().observation_space)
    assert not is_goal_env(spaces.Dict({ACHIEVED_KEY: spaces.Box(0, 1, (1,))}))
    assert not is_goal_env(spaces.Box(0, 1, (1,)))


@pytest.mark.parametrize(
    ("leaves", "problem"),
    [
        ({}, "has no goals"),
        ({DESIRED_KEY: spaces.Box(0, 1, (2, 3))}, "has no goals"),
        ({ACHIEVED_KEY: spaces.Box(0, 1, (1, 2)), DESIRED_KEY: spaces.Box(0, 1, (2, 3))}, "have 2 numbers"),
        ({ACHIEVED_KEY: spaces.Discrete(3), DESIRED_KEY: spaces.Box(0, 1, (2, 3))}, "have 1 numbers"),
        ({name: spaces.Dict() for name in (ACHIEVED_KEY, DESIRED_KEY)}, "needs at least one number"),
        ({name: spaces.Box(-5, 5, (2, 3), np.int64) for name in (ACHIEVED_KEY, DESIRED_KEY)}, "-1 marks an unused row"),
        (
            {name: spaces.Box(0, 1, (1, 2)) for name in (ACHIEVED_KEY, DESIRED_KEY, INSTRUCTION_KEY)},
            "of its own: rename it",
        ),
    ],
)
def test_spaces_that_announce_no_goals_are_refused(leaves: dict[str, Any], problem: str) -> None:
    environment = Caller()
    environment.observation_space = spaces.Dict({"heard": spaces.Box(0, 9, (1,), np.float32), **leaves})
    with pytest.raises(UserError, match=problem):
        InstructionWrapper(make_episode_vector_env(environment, seed=0))


def test_sub_goals_after_an_unused_row_are_refused() -> None:
    with pytest.raises(UserError, match="desired_goal has a row of -1 before its last sub-goal"):
        trials((-1, 3)).reset()


def test_an_unused_row_achieves_nothing_at_any_tolerance() -> None:
    one = trials((0,), goal_tolerance=1.5)
    one.reset()
    steps = [one.step(np.array([action])) for action in (5, 1)]
    assert [float(step.reward[0]) for step in steps] == [0.0, 1.0] and not steps[0].terminated[0]


def test_an_empty_instruction_is_refused() -> None:
    with pytest.raises(UserError, match="empty desired_goal"):
        trials(()).reset()
