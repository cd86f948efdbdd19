from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from yamame.data.step import VectorStep
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError


class Script:
    """Environments that end as a list says: per step one letter a row ('.' continues, T, C(ut), B(oth), L(ate))."""

    def __init__(self, *steps: str) -> None:
        self.num_envs = len(steps[0])
        self.observation_space = spaces.Box(0, 1e6, (1,), np.float32)
        self.action_space = self.env_action_space = spaces.Discrete(2)
        self.script = list(steps)
        self.now = 0
        self.resets: list[tuple[int, list[bool], list[bool]]] = []

    def reset(self, reset_mask: np.ndarray, new_task: np.ndarray) -> dict[str, np.ndarray]:
        self.resets.append((self.now, reset_mask.tolist(), new_task.tolist()))
        return self._observation(np.where(reset_mask, 0.5, 0.0))

    def step(self, action: np.ndarray) -> VectorStep:
        letters = np.array(list(self.script[self.now]))
        self.now += 1
        observation = self._observation(np.zeros(self.num_envs))
        return VectorStep(
            reward=np.full(self.num_envs, self.now, np.float32),
            terminated=np.isin(letters, ["T", "B"]),
            truncated=np.isin(letters, ["C", "B"]),
            is_transition=letters != "L",
            final_observation=observation,
            observation=observation,
            episode_start=letters == "L",
        )

    def close(self) -> None:
        pass

    def _observation(self, offset: np.ndarray) -> dict[str, np.ndarray]:
        return {"observation": (self.now + offset).astype(np.float32)[:, None]}


def play(*steps: str, horizon: int = 100, attempts: int | None) -> tuple[list[dict[str, Any]], Script]:
    """What each call said: flags as strings, one letter a row; `seen` and `final` as numbers."""
    script = Script(*steps)
    trials = TrialWrapper(script, horizon=horizon, attempts=attempts)
    trials.reset()
    said = []
    for _ in steps:
        step = trials.step(np.zeros(trials.num_envs, np.int64))
        flags = {
            name: "".join(".X"[int(flag)] for flag in getattr(step, name))
            for name in ("terminated", "truncated", "episode_start", "is_transition")
        }
        seen, final = (obs["observation"][:, 0].tolist() for obs in (step.observation, step.final_observation))
        said.append({**flags, "seen": seen, "final": final, "reward": step.reward.tolist()})
    return said, script


def column(said: list[dict[str, Any]], name: str) -> list[Any]:
    return [each[name] for each in said]


def test_one_attempt_is_a_trial_and_its_flags_pass_through():
    said, script = play("....", "TCB.", "....", attempts=1)
    assert column(said, "terminated") == ["....", "X.X.", "...."]
    assert column(said, "truncated") == ["....", ".XX.", "...."]
    assert column(said, "episode_start") == ["....", "XXX.", "...."]
    assert said[1]["final"] == [2, 2, 2, 2] and said[1]["seen"] == [2.5, 2.5, 2.5, 2]
    started = [True, True, True, False]
    assert script.resets == [(0, [True] * 4, [True] * 4), (2, started, started)]


def test_an_attempt_that_is_not_the_last_is_followed_by_a_soft_reset():
    said, script = play("T", ".", "C", "T", "C", "T", attempts=3)
    assert column(said, "terminated") == [".", ".", ".", "X", ".", "."]
    assert column(said, "truncated") == ["."] * 6
    assert column(said, "episode_start") == ["X", ".", "X", "X", "X", "X"]
    assert column(said, "seen") == [[1.5], [2], [3.5], [4.5], [5.5], [6.5]]
    assert column(said, "final") == [[1], [2], [3], [4], [5], [6]]
    assert column(said, "reward") == [[1], [2], [3], [4], [5], [6]]
    assert [(when, new) for when, _, (new,) in script.resets] == [
        (0, True), (1, False), (3, False), (4, True), (5, False), (6, False),
    ]  # fmt: skip


def test_last_attempt_that_is_truncated_truncates_the_trial():
    said, _ = play("T", "C", attempts=2)
    assert (column(said, "terminated"), column(said, "truncated")) == ([".", "."], [".", "X"])


@pytest.mark.parametrize("attempts", [None, 10])
def test_horizon_truncates_whatever_the_attempt_does(attempts):
    said, script = play("..", "T.", "T.", "..", "..", "TC", horizon=3, attempts=attempts)
    assert column(said, "terminated") == [".."] * 6
    assert column(said, "truncated") == ["..", "..", "XX", "..", "..", "XX"]
    assert column(said, "episode_start") == ["..", "X.", "XX", "..", "..", "XX"]
    assert [(when, new) for when, _, new in script.resets] == [
        (0, [True, True]), (2, [False, False]), (3, [True, True]), (6, [True, True]),
    ]  # fmt: skip


def test_horizon_and_last_termination_at_once_set_both_flags():
    said, _ = play(".", "T", horizon=2, attempts=1)
    assert said[1]["terminated"] == said[1]["truncated"] == "X"


def test_rows_have_their_own_clocks():
    said, _ = play("T.", "..", "..", "..", horizon=3, attempts=1)
    assert column(said, "terminated") == ["X.", "..", "..", ".."]
    assert column(said, "truncated") == ["..", "..", ".X", "X."]


def test_rows_that_are_not_live_cost_no_time_and_begin_an_attempt():
    said, _ = play("T", "L", ".", ".", horizon=2, attempts=1)
    assert column(said, "is_transition") == ["X", ".", "X", "X"]
    assert column(said, "episode_start") == ["X", "X", ".", "X"]
    assert column(said, "truncated") == [".", ".", ".", "X"]


def test_reset_restarts_clocks_and_attempts():
    script = Script(".", "T", ".", "T", ".")
    trials = TrialWrapper(script, horizon=3, attempts=2)
    trials.reset()
    for _ in range(2):
        trials.step(np.zeros(1, np.int64))
    trials.reset()
    flags = [trials.step(np.zeros(1, np.int64)) for _ in range(3)]
    assert [(bool(f.terminated[0]), bool(f.truncated[0])) for f in flags] == [
        (False, False), (False, False), (False, True),
    ]  # fmt: skip


@pytest.mark.parametrize(("horizon", "attempts"), [(0, 1), (5, 0), (5, -1)])
def test_impossible_settings_are_refused(horizon, attempts):
    with pytest.raises(UserError):
        TrialWrapper(Script("."), horizon=horizon, attempts=attempts)
