"""Tasks of benchmarks/unaided.py: what an ideal policy earns is the good score."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from unaided_tasks import TASKS, Catch, Combination, DeepSea, HiddenPlatform, Recall, Recite, UnaidedTask

from yamame.envs.env_fn import EnvFnConfig

Ideal = Callable[[Sequence[Any], Any], Any]
"""Action from all observations of the episode so far, and the environment."""


def recall(seen: Sequence[Any], env: Recall) -> int:
    asked = [each for each in seen if each["ask"][0]]
    return int(asked[-2]["symbol"]) if len(asked) > 1 and seen[-1]["ask"][0] else 0


def catch(seen: Sequence[Any], env: Catch) -> int:
    boards = [board[::2, ::4, 0] if env.images else board.reshape(10, 5) for board in seen]
    ball, paddle = int(boards[0][0].argmax()), int(boards[-1][-1].argmax())
    return int(np.sign(ball - paddle)) + 1


def memory(seen: Sequence[Any], env: Any) -> int:
    return int(seen[0][2 + int(seen[-1][1])] > 0)


def deep_sea(seen: Sequence[Any], env: DeepSea) -> int:
    row, column = divmod(int(seen[-1].argmax()), env.length)
    return int(env.right[row, column])


def recite(seen: Sequence[Any], env: Recite) -> int:
    return int(seen[len(seen) - 1 - env.NUM_ITEMS]) if len(seen) > env.NUM_ITEMS else 0


def sweep(seen: Sequence[Any], env: HiddenPlatform) -> np.ndarray:
    """On a circle until the platform is found, then straight to where that was."""
    position = np.zeros(2) if seen[-1][2] else seen[-1][:2].astype(float)
    found = [each[:2] for each in seen if each[2]]
    if found:
        target = found[0]
    else:
        out = sum(np.linalg.norm(each[:2]) < 0.6 for each in seen)
        angle = 0.092 * (len(seen) - out)
        target = 0.65 * np.array([np.cos(angle), np.sin(angle)])
    step = (target - position) / env.SPEED
    return (step / max(1.0, float(np.abs(step).max()))).astype(np.float32)


IDEAL: dict[str, Ideal] = {
    "memory-length-30": memory,
    "memory-length-100": memory,
    "memory-size-10": memory,
    "umbrella-20": lambda seen, env: int(seen[0][0]),
    "discounting-chain": lambda seen, env: 4,
    "deep-sea-10": deep_sea,
    "catch": catch,
    "blinking-catch-pixels": catch,
    "first-action-128": lambda seen, env: 1,
    "combination": lambda seen, env: seen[0] - 1,
    "recall-dict": recall,
    "recite-20": recite,
    "noisy-choice": lambda seen, env: int(seen[-1][0] > 0),
}


def play(task: UnaidedTask, act: Ideal, episodes: int = 20) -> list[dict[str, float]]:
    """Return the results of single episodes, which must end at the horizon, and whose observations must fit."""
    assert isinstance(task.env, EnvFnConfig)
    results = []
    for seed in range(episodes):
        env = task.env.env_fn()
        observation, _ = env.reset(seed=seed)
        seen, total, success, ended = [observation], 0.0, False, False
        while not ended:
            assert env.observation_space.contains(seen[-1])
            observation, reward, ended, _, info = env.step(act(seen, env))
            seen.append(observation)
            total, success = total + reward, success or info.get("success", False)
        assert len(seen) == task.env.horizon + 1
        results.append({"return_mean": total, "success_rate": float(success)})
    return results


@pytest.mark.parametrize("name", IDEAL)
def test_an_ideal_policy_earns_the_good_score(name: str) -> None:
    task = TASKS[name]
    assert [task.score(result) for result in play(task, IDEAL[name])] == pytest.approx([1.0] * 20)


@pytest.mark.parametrize("name", IDEAL)
def test_a_policy_that_always_does_the_same_is_not_good(name: str) -> None:
    task = TASKS[name]
    constant = np.zeros(2, np.int64) if name == "combination" else 0
    assert np.mean([task.score(result) for result in play(task, lambda seen, env: constant)]) < 0.9


def test_a_sweep_of_the_square_finds_the_platform_again_and_again() -> None:
    """14.5 times on average; who stays at the center never does."""
    task = TASKS["hidden-platform"]
    assert np.mean([each["return_mean"] for each in play(task, sweep, 60)]) == pytest.approx(task.good, abs=1.5)
    assert {each["return_mean"] for each in play(task, lambda seen, env: np.zeros(2, np.float32))} == {0.0}


def test_the_pixels_of_catch_hide_the_ball() -> None:
    env = Catch(images=True)
    env.reset(seed=0)
    lit = [int((env.step(1)[0][:-2] > 0).any()) for _ in range(8)]
    assert lit == [1, 1, 0, 0, 0, 0, 0, 0]


def test_the_combination_is_shown_once() -> None:
    env = Combination()
    first, _ = env.reset(seed=0)
    assert (first > 0).all() and (env.step(np.zeros(2, np.int64))[0] == 0).all()
