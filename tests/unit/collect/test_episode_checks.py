"""`check_env`: episodes that repeat, seeds without effect, copies that share state, and no false alarms."""

import random

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

import yamame

REPEATS = "all episodes after the first are one and the same"
SAME_SEEDS = "every seed gives the same sequence of episodes"
SHARED = "two copies of the environment side by side give other trials than one alone"
UNSEEDED = "the same seed and actions give different trials"


class Point(gymnasium.Env):
    """Sound: the start is sampled from `np_random`."""

    observation_space, action_space = spaces.Box(-50.0, 50.0, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.x = 0, self.start(seed)
        return self.observe(), {}

    def start(self, seed):
        return self.np_random.uniform(-1, 1)

    def observe(self):
        return np.array([self.x], np.float32)

    def step(self, action):
        self.t += 1
        self.x += 1 if action else -1
        return self.observe(), -abs(float(self.x)), self.t == 4, False, {}


class Reseeds(Point):
    def start(self, seed):
        return np.random.default_rng(0 if seed is None else seed).uniform(-1, 1)


class KeepsItsSeed(Point):
    """Each reset starts the random numbers of the last seed again."""

    seed = 0

    def start(self, seed):
        self.seed = self.seed if seed is None else seed
        return np.random.default_rng(self.seed).uniform(-1, 1)


class OneLevel(Point):
    """The seed of the first reset selects a level for good. It is not visible at the start."""

    level = None

    def start(self, seed):
        self.level = self.np_random.uniform(-1, 1) if self.level is None else self.level
        return 0.0

    def step(self, action):
        observation, *rest = super().step(action)
        return observation + np.float32(self.level), *rest


class LaterSeeded(Point):
    """Only what happens in a step is the same in all later episodes."""

    def start(self, seed):
        self.rng = np.random.default_rng(1 if seed is None else seed)
        return 0.0

    def step(self, action):
        self.x += self.rng.uniform(-1, 1)
        return super().step(action)


class OwnNumbers(Point):
    """Ignores seeds."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def start(self, seed):
        return self.rng.uniform(-1, 1)


class GlobalInInit(Point):
    def __init__(self):
        np.random.seed(0)

    def start(self, seed):
        return np.random.uniform(-1, 1)


class OneArray(Point):
    state = np.zeros(1)

    def start(self, seed):
        self.state[0] = super().start(seed)
        return self.state[0]

    def step(self, action):
        self.x = self.state[0]
        result = super().step(action)
        self.state[0] = self.x
        return result


class OneClock(Point):
    """Only the end of the episode depends on the other copies."""

    clock = 0

    def start(self, seed):
        OneClock.clock = 0
        return super().start(seed)

    def step(self, action):
        OneClock.clock += 1
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, OneClock.clock >= 4, truncated, info


class DefaultArgument(Point):
    def __init__(self, visits=[]):  # noqa: B006 -- the mistake that is to be found
        self.visits = visits

    def start(self, seed):
        self.visits.clear()
        return super().start(seed)

    def step(self, action):
        self.visits.append(action)
        observation, _, *rest = super().step(action)
        return observation, float(len(self.visits)), *rest


class SeedsPython(Point):
    """Repeatable alone, but each reset of a copy starts the random numbers of all Python again."""

    def start(self, seed):
        if seed is not None:
            random.seed(seed)
        return random.uniform(-1, 1)


class Unseeded(Point):
    def start(self, seed):
        return np.random.uniform(-1, 1)


class TwoStarts(Point):
    def start(self, seed):
        return float(self.np_random.integers(2))


class FixedStart(Point):
    def start(self, seed):
        return 0.0


class FixedArms(Point):
    """A bandit without any random number."""

    def step(self, action):
        return np.zeros(1, np.float32), [0.2, 0.7][action], True, False, {}

    def start(self, seed):
        return 0.0


class RareStart(Point):
    def start(self, seed):
        return float(self.np_random.random() < 0.01)


class Many(VectorEnv):
    def __init__(self, make):
        self.envs, self.num_envs, self.metadata = [make(), make()], 2, {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = Point.observation_space, Point.action_space
        self.observation_space, self.action_space = (
            batch_space(Point.observation_space, 2),
            batch_space(Point.action_space, 2),
        )

    def reset(self, *, seed=None, options=None):
        rows = (options or {}).get("reset_mask", [True, True])
        for row, (env, starts) in enumerate(zip(self.envs, rows, strict=True)):
            if starts:
                env.reset(seed=None if seed is None else seed + row)
        return np.stack([env.observe() for env in self.envs]), {}

    def step(self, actions):
        results = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        *parts, _ = map(np.array, zip(*results, strict=True))
        return *parts, {}


INNER = Point()


@pytest.mark.parametrize(
    ("env", "found"),
    [
        (Reseeds, [REPEATS]),
        (KeepsItsSeed, [REPEATS]),
        (OneLevel, [REPEATS]),
        (LaterSeeded, [REPEATS]),
        (lambda: Many(Reseeds), [REPEATS]),
        (OwnNumbers, [SAME_SEEDS]),
        (GlobalInInit, [SAME_SEEDS, SHARED]),
        (OneArray, [SHARED]),
        (OneClock, [SHARED]),
        (DefaultArgument, [SHARED]),
        (SeedsPython, [SHARED]),
        (lambda: gymnasium.Wrapper(INNER), [SHARED]),
        (lambda: Many(OneArray), [SHARED]),
        (Unseeded, [UNSEEDED]),
        (Point, []),
        (TwoStarts, []),
        (RareStart, []),
        (FixedStart, []),
        (FixedArms, ["the observation never changes"]),
        (lambda: Many(Point), []),
        (lambda: gymnasium.make("Taxi-v4"), ["no trial of random actions ended"]),
        (lambda: gymnasium.make("CliffWalking-v1"), ["no trial of random actions ended"]),
        (lambda: gymnasium.make("FrozenLake-v1", is_slippery=False, map_name=None, desc=["SG", "HG"]), []),
    ],
)
def test_findings(env, found):
    findings = yamame.check_env(env, horizon=8)
    assert [finding[: len(start)] for finding, start in zip(findings, found, strict=False)] == found, findings
    assert len(findings) == len(found), findings


@pytest.mark.parametrize(
    "name", ["legal_actions", "get_avail_agent_actions", "valid_action_mask", "get_mask", "invalid_actions"]
)
def test_masks_under_another_name_are_found(name):
    class Other(Point):
        pass

    setattr(Other, name, lambda self: [True, False])
    (finding,) = yamame.check_env(Other, horizon=32)
    assert finding.startswith(f"{name} of the environment is not used: return the mask in info['action_mask']")


def test_masks_in_info_under_another_name_are_found():
    class Other(Point):
        def reset(self, **kwargs):
            return super().reset(**kwargs)[0], {"legal_moves": [0]}

    (finding,) = yamame.check_env(Other, horizon=32)
    assert finding.startswith("legal_moves of the environment is not used")


def test_a_mask_inside_of_the_observation_is_found():
    class Nested(Point):
        observation_space = spaces.Dict(state=spaces.Dict(point=Point.observation_space, mask=spaces.MultiBinary(2)))

        def reset(self, **kwargs):
            return self.nested(super().reset(**kwargs)[0]), {}

        def step(self, action):
            observation, *others = super().step(action)
            return self.nested(observation), *others

        def nested(self, observation):
            return {"state": {"point": observation, "mask": np.ones(2, np.int8)}}

    (finding,) = yamame.check_env(Nested, horizon=32)
    assert finding.startswith("state/mask of the environment is not used")


@pytest.mark.parametrize(
    ("space", "observe", "name"),
    [
        (spaces.Dict(point=Point.observation_space), lambda point: {"point": point, "hint": 1}, "hint"),
        (spaces.Tuple([Point.observation_space]), lambda point: (point, 1), "1"),
        (
            spaces.Dict(body=spaces.Dict(point=Point.observation_space)),
            lambda point: {"body": {"point": point, "gear": 2}},
            "body/gear",
        ),
    ],
)
def test_parts_that_are_not_in_the_space_are_found(space, observe, name):
    class More(Point):
        observation_space = space

        def reset(self, **kwargs):
            observation, info = super().reset(**kwargs)
            return observe(observation), info

        def step(self, action):
            observation, *others = super().step(action)
            return observe(observation), *others

    (finding,) = yamame.check_env(More, horizon=32)
    assert finding.startswith(f"observation {name!r} is not in the observation space")


@pytest.mark.parametrize(("marker", "is_found"), [(1e6, True), (-1e9, True), (60.0, False)])
def test_numbers_that_mark_missing_values_are_found(marker, is_found):
    class NoEcho(Point):
        observation_space = spaces.Box(-np.inf, np.inf, (2,))

        def observe(self):
            return np.array([self.x, marker if self.t == 2 else self.x], np.float32)

    findings = yamame.check_env(NoEcho, horizon=32)
    assert len(findings) == is_found, findings
    assert all(f.startswith(f"observation 'observation' at [1] is sometimes {marker:g}, so far") for f in findings)


def test_a_time_limit_that_is_shorter_than_the_horizon_is_found():
    class Truncates(Point):
        def step(self, action):
            *parts, over, _, info = super().step(action)
            return *parts, False, over, info

    (finding,) = yamame.check_env(Truncates, horizon=32)
    assert finding == "every trial is truncated after 4 steps: pass horizon=4, which sets the discount"
    assert yamame.check_env(Point, horizon=32) == []


class AtTheGoal(Point):
    """Goals in millimeters, written in meters: all are within the tolerance of 0.001."""

    observation_space = spaces.Dict(dict.fromkeys(("achieved_goal", "desired_goal"), spaces.Box(-1.0, 1.0, (1,))))

    def observe(self):
        return {"achieved_goal": np.full(1, 1e-5 * self.x, np.float32), "desired_goal": np.zeros(1, np.float32)}


def test_goals_that_are_reached_at_once_are_found():
    finding = (
        "every trial of random actions reaches its goal in the first step, within the tolerance of 0.001 in each "
        "number: set env.goal_tolerance"
    )
    assert finding in yamame.check_env(AtTheGoal, horizon=32)

    class Meters(AtTheGoal):
        def observe(self):
            return {**super().observe(), "desired_goal": np.full(1, 0.5, np.float32)}

    assert not any("reaches its goal" in finding for finding in yamame.check_env(Meters, horizon=32))
