"""Goals of every space are followed and relabeled like those of a Box."""

from collections.abc import Callable
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from collecting import collect_trials
from gymnasium import spaces
from tiny import TINY_RUN

import yamame
from yamame.collect.collector import Collector, RandomPolicy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY, INSTRUCTION_KEY, NO_GOAL
from yamame.data.relabeling import GoalStatistics, RelabelConfig, Relabeler
from yamame.data.trajectory import Trajectory
from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.goal_tolerance import find_goal_tolerance
from yamame.errors import UserError
from yamame.recipes.settings.presets import default_config
from yamame.training.components import build_components


def tolerance_of(make: Callable[[], Any]) -> float | None:
    with closing(make()) as env:
        return find_goal_tolerance(env)


Goal = Callable[[np.ndarray], Any]


def equal(achieved: Any, desired: Any) -> Any:
    if isinstance(desired, dict):
        return all(equal(achieved[name], part) for name, part in desired.items())
    if isinstance(desired, tuple):
        return all(map(equal, achieved, desired))
    return np.all(np.asarray(achieved) == desired)


class Cells(gymnasium.Env[Any, Any]):
    """A walk in a grid of 3 x 3. `goal_of` names its cells by values of a space."""

    action_space = spaces.Discrete(4)

    def __init__(self, goal_space: Any, goal_of: Goal, achieved_space: Any = None) -> None:
        self.goal_of = goal_of
        achieved_space = achieved_space or goal_space
        self.observation_space = spaces.Dict(
            {"place": spaces.MultiDiscrete([3, 3]), ACHIEVED_KEY: achieved_space, DESIRED_KEY: goal_space}
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place, self.target = self.np_random.integers(3, size=(2, 2))
        return self.observe(), {}

    def step(self, action: int) -> Any:
        move = [(1, 0), (-1, 0), (0, 1), (0, -1)][action]
        self.place = np.clip(self.place + move, 0, 2)
        return self.observe(), 5.0, False, False, {}

    def observe(self) -> dict[str, Any]:
        return {"place": self.place, ACHIEVED_KEY: self.goal_of(self.place), DESIRED_KEY: self.goal_of(self.target)}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
        return float(equal(achieved, desired)) - 1.0


def bits(place: np.ndarray) -> np.ndarray:
    return np.eye(3, dtype=np.int8)[place]


WORDS = ("left", "mid", "right")
KINDS: dict[str, tuple[Any, Goal]] = {
    "Box": (spaces.Box(0, 2, (2,)), lambda place: place.astype(np.float32)),
    "Box around zero": (spaces.Box(-1, 1, (2,)), lambda place: place - 1.0),
    "Box without dimensions": (spaces.Box(-1, 10, ()), lambda place: np.float32(3 * place[0] + place[1] - 1)),
    "Box of integers": (spaces.Box(0, 2, (2,), np.int64), lambda place: place),
    "Box of integers around zero": (spaces.Box(-1, 1, (2,), np.int64), lambda place: place - 1),
    "Box of bytes": (spaces.Box(0, 255, (2,), np.uint8), lambda place: place.astype(np.uint8)),
    "Box of bools": (
        spaces.Box(0, 1, (3, 3), np.bool_),
        lambda place: bits(place).astype(np.bool_)[:, [0, 1, 2]][[0, 1, 1]],
    ),
    "Box without bounds": (spaces.Box(-(2**63), 2**63 - 2, (2,), np.int64), lambda place: place - 1),
    "Box of the largest floats": (spaces.Box(-3.4e38, 3.4e38, (2,)), lambda place: place - 1.0),
    "board": (spaces.Box(0, 1, (2, 3)), lambda place: bits(place).astype(np.float32)),
    "MultiBinary": (spaces.MultiBinary(6), lambda place: bits(place).ravel()),
    "MultiBinary of two dimensions": (spaces.MultiBinary((2, 3)), bits),
    "Discrete": (spaces.Discrete(9), lambda place: 3 * place[0] + place[1]),
    "Discrete around zero": (spaces.Discrete(9, start=-1), lambda place: int(3 * place[0] + place[1] - 1)),
    "large Discrete": (spaces.Discrete(10**6), lambda place: 10**5 * place[0] + place[1]),
    "MultiDiscrete": (spaces.MultiDiscrete([3, 3]), lambda place: place),
    "MultiDiscrete around zero": (spaces.MultiDiscrete([3, 3], start=[-1, -3]), lambda place: place - [1, 3]),
    "Text": (spaces.Text(9, charset="lefmidrght,"), lambda place: f"{WORDS[place[0]][:4]},{WORDS[place[1]][:4]}"),
    "Dict": (
        spaces.Dict(row=spaces.Discrete(3, start=5), column=spaces.Box(-1, 1, (1,))),
        lambda place: {"row": place[0] + 5, "column": place[1:] - 1.0},
    ),
    "Tuple": (spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(3)]), lambda place: (place[0], bits(place)[1])),
}


def collector(kind: str, **settings: Any) -> Collector:
    space, goal_of = KINDS[kind]
    if kind == "Text":
        settings["goal_tolerance"] = 0.5  # a text has no distance
    trials = EnvFnConfig(env_fn=partial(Cells, space, goal_of), horizon=12, num_workers=0, **settings).build(4, 0)
    explorer = Explorer(NoExploration(), trials.action_space, 4, np.random.default_rng(0))
    return Collector(trials, kind, explorer)


@cache
def trials_of(kind: str) -> list[Trajectory]:
    one = collector(kind)
    return list(collect_trials(one, RandomPolicy(one.environments.action_space, np.random.default_rng(1)), 320))


@pytest.mark.parametrize(("attempts", "is_relabeled"), [(1, True), (2, False), (None, False)])
def test_trials_that_repeat_their_task_are_not_relabeled(
    attempts: int | None, is_relabeled: bool, tmp_path: Path
) -> None:
    """Not even those whose first attempt lasted to the end: after a success, the next attempt would have begun."""
    env = EnvFnConfig(env_fn=partial(Cells, *KINDS["Box"]), horizon=12, attempts=attempts, num_workers=0)
    components = build_components(default_config(env, env_steps=1_000), tmp_path, restarts=0)
    assert (components.replay.sampler.relabel is not None) == is_relabeled
    components.close()


@pytest.mark.parametrize("kind", KINDS)
def test_rewards_follow_the_goal_and_missed_ones_are_relabeled(kind: str) -> None:
    """The same trials as with a Box, whatever the space: rewards, ends, and which goals are achieved when."""
    found, expected = trials_of(kind), trials_of("Box")
    assert len(found) == len(expected) > 15
    relabeled, rng, statistics = 0, np.random.default_rng(0), GoalStatistics()
    for trial, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(trial.reward, other.reward)
        assert trial.success is not None and trial.success[-1] == other.success[-1]  # type: ignore[index]
        assert trial.goals is not None and trial.goals.instruction.shape[0] == 1
        np.testing.assert_array_equal(trial.goals.achieved_step, np.arange(len(trial)))
        shown = trial.observation[INSTRUCTION_KEY]
        assert shown.dtype == np.float32 and not (shown[0] == NO_GOAL).all()
        assert set(trial.observation) == {"place", INSTRUCTION_KEY}
        again, statistics = Relabeler(RelabelConfig(mode="all"))(trial, statistics, rng)
        if not trial.success[-1]:
            assert again.reward.sum() == 1 and again.terminated[-1]
            relabeled += 1
    assert relabeled > 5
    assert 2 <= len(statistics.index) <= 9


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"Text"}))
def test_the_tolerance_is_found(kind: str) -> None:
    space, goal_of = KINDS[kind]
    tolerance = tolerance_of(partial(Cells, space, goal_of))
    assert tolerance is not None and 0 <= tolerance <= 0.5


class Rewarded(Cells):
    def __init__(self, space: Any, goal_of: Goal, reward: Callable[[Any, Any], Any]) -> None:
        super().__init__(space, goal_of)
        self.reward = reward

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> float:
        return float(self.reward(achieved, desired))


def distance(achieved: Any, desired: Any) -> Any:
    return np.abs(np.asarray(achieved, np.int64) - desired).sum()


@pytest.mark.parametrize(
    ("kind", "reward", "tolerance"),
    [
        ("MultiBinary", lambda a, d: -distance(a, d), None),
        ("MultiBinary", lambda a, d: distance(a, d) <= 1, None),
        ("MultiBinary", lambda a, d: a[0] == d[0], None),
        ("Discrete", lambda a, d: abs(a - d) <= 1, 1.5),
        ("Discrete", lambda a, d: -abs(a - d), None),
        ("Discrete", lambda a, d: 0.0, None),
        ("MultiDiscrete", lambda a, d: np.abs(a - d).max() == 0, 0.5),
        ("MultiDiscrete", lambda a, d: a[1] == d[1], None),
        ("Box of integers", lambda a, d: np.abs(a - d).max() <= 1, 1.5),
        ("Dict", lambda a, d: abs(a["column"] - d["column"]).max() < 0.3 and a["row"] == d["row"], 0.3),
        ("Dict", lambda a, d: abs(a["column"] - d["column"]).max() < 0.3, None),
        ("Tuple", lambda a, d: a[0] == d[0], None),
    ],
)
def test_rewards_that_are_not_those_of_equal_goals(kind: str, reward: Any, tolerance: float | None) -> None:
    """None: the goals are observations, and the reward is that of the environment."""

    class Wide(Rewarded):
        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            super().reset(seed=seed)
            self.target = np.array([0, 0])
            return self.observe(), {}

    found = tolerance_of(partial(Wide, *KINDS[kind], reward))
    assert found is None if tolerance is None else found == pytest.approx(tolerance, abs=1e-6)


def test_achieved_and_desired_goals_may_have_other_starts() -> None:
    """They are compared by their values, not by their places in their spaces."""
    env = partial(Cells, spaces.Discrete(9, start=1), lambda place: 1 + place.sum(), spaces.Discrete(20, start=-10))
    trials = EnvFnConfig(env_fn=env, horizon=12, num_workers=0, goal_tolerance=0.5).build(1, 0)
    trials.reset()
    for _ in range(40):
        step = trials.step(np.zeros(1, np.int64))
        assert step.goals is not None
        hit = bool(step.goals.instruction[0, 0, 0] == step.goals.achieved[0, 0, 0])
        assert step.reward[0] == float(hit)


@pytest.mark.parametrize(
    ("space", "goal", "message"),
    [
        (spaces.Box(0, 2, (2,), np.int64), [0, 3], "the number 3 in 'achieved_goal', which is beyond the bounds"),
        (spaces.Box(-1, 2, (2,), np.int64), [-2, 0], "the number -2 in 'achieved_goal'"),
        (spaces.Box(-(2**40), 2**40, (2,), np.int64), [2**30, 1], r"the number 1073741824 in 'achieved_goal'.*float32"),
        (spaces.Discrete(2**40), 2**30 + 1, "the number 1073741825 in"),
    ],
)
def test_goals_that_cannot_be_told_apart_are_refused(space: Any, goal: Any, message: str) -> None:
    class Far(Cells):
        def observe(self) -> dict[str, Any]:
            return {**super().observe(), ACHIEVED_KEY: goal}

    zero = 0 if isinstance(space, spaces.Discrete) else np.zeros(2, np.int64)
    trials = EnvFnConfig(
        env_fn=partial(Far, space, lambda _: zero), horizon=3, num_workers=0, goal_tolerance=0.5
    ).build(1, 0)
    trials.reset()
    with pytest.raises(UserError, match=message):
        trials.step(np.zeros(1, np.int64))


@pytest.mark.parametrize(("start", "tolerance", "is_refused"), [(5e6, 0.1, True), (5e6, 1.0, False), (5.0, 0.1, False)])
@pytest.mark.parametrize("rows", [(), (1,)], ids=["one goal", "rows of goals"])
def test_goals_that_float32_rounds_beyond_the_tolerance_are_refused(
    start: float, tolerance: float, is_refused: bool, rows: tuple[int, ...]
) -> None:
    space = spaces.Box(0.0, 1e7, (*rows, 2), np.float64)
    cells = partial(Cells, space, lambda _: np.full(space.shape, start + 0.2))
    trials = EnvFnConfig(env_fn=cells, horizon=3, num_workers=0, goal_tolerance=tolerance).build(1, 0)
    if not is_refused:
        trials.reset()
        return
    message = r"^environment 0 has the number 5000000.2 in 'desired_goal', which float32 rounds by 0.2, more than half"
    with pytest.raises(UserError, match=message):
        trials.reset()


def test_a_run_relabels_goals_of_bits(tmp_path: Path) -> None:
    run = yamame.train(
        partial(Cells, *KINDS["MultiBinary"]),
        horizon=6,
        env_steps=240,
        run_dir=tmp_path / "run",
        env={"num_workers": 0},
        **{**TINY_RUN, "learning_starts": 100, "updates_per_env_step": 0.05},
    )
    assert run.result["success_rate"] is not None
    assert run.metrics()["relabel/relabeled_fraction"][-1] > 0.2
