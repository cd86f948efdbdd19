"""Environments that change the state of the whole process: runs are those without the change, bit by bit."""

import os
import random
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import yamame

pytestmark = pytest.mark.slow


def leave_directory() -> None:
    os.chdir(tempfile.gettempdir())


def sample_anew() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


CHANGES: dict[str, Callable[[], Any]] = {
    "working directory": leave_directory,
    "gradients": lambda: torch.set_grad_enabled(False),
    "float64": lambda: torch.set_default_dtype(torch.float64),
    "bfloat16": lambda: torch.set_default_dtype(torch.bfloat16),
    "device": lambda: torch.set_default_device("meta"),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "seeds": sample_anew,
    "NumPy's errors": lambda: np.seterr(all="raise"),
    "warnings": lambda: warnings.simplefilter("error"),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
}


class Bit(gymnasium.Env[np.ndarray, int]):
    """Name the bit that is shown, four times."""

    observation_space = spaces.Box(-1.0, 2.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.show(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        reward = float(action == self.bit)
        return self.show(), reward, self.time == 4, False, {}

    def show(self) -> np.ndarray:
        self.bit = int(self.np_random.integers(2))
        return np.array([self.bit], np.float32)


def changing(change: Callable[[], Any], when: str) -> type[Bit]:
    class Changing(Bit):
        def __init__(self) -> None:
            if when == "init":
                change()

        def show(self) -> np.ndarray:
            if when == "step":
                change()
            return super().show()

    return Changing


@pytest.fixture(autouse=True)
def restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    num_threads = torch.get_num_threads()
    with warnings.catch_warnings(), np.errstate():
        yield
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_autocast_enabled("cpu", False)
    torch.set_num_threads(num_threads)


def train(env: type[Bit], run_dir: str, **settings: Any) -> yamame.Run:
    evaluations = {"trials": 2, "final_trials": 4, "interval_env_steps": 60, "choose_policy": False}
    arguments = {"horizon": 4, "num_envs": 2, "size": "tiny", "seed": 0, "learning_starts": 40, **settings}
    return yamame.train(env, env_steps=120, eval=evaluations, run_dir=run_dir, **arguments)


def numbers(run: yamame.Run) -> dict[str, np.ndarray]:
    metrics = run.metrics()
    return {name: column for name, column in metrics.items() if "second" not in name and "time/" not in name}


@pytest.mark.parametrize("when", [pytest.param("init", marks=pytest.mark.thorough), "step"])
def test_changes_of_an_environment_change_nothing_else(when: str) -> None:
    plain = train(Bit, "plain")
    assert plain.result["updates"] > 0
    num_threads = torch.get_num_threads()
    for number, (name, change) in enumerate(CHANGES.items()):
        here = Path.cwd()
        run = train(changing(change, when), f"run-{number}")
        assert Path.cwd() == here, name
        assert torch.get_num_threads() == num_threads, name
        assert (here / f"run-{number}" / "result.json").exists(), name
        found, expected = numbers(run), numbers(plain)
        assert found.keys() == expected.keys(), name
        for key, column in expected.items():
            np.testing.assert_array_equal(found[key], column, err_msg=f"{name}: {key}")
        assert run.result["return_mean"] == plain.result["return_mean"], name


def test_what_was_set_stays_set() -> None:
    train(changing(CHANGES["float64"], "init"), "run")
    assert torch.get_default_dtype() is torch.float64


def test_resumed_and_evaluated_runs_do_not_depend_on_it_either() -> None:
    env = changing(leave_directory, "step")
    run = train(env, "run")
    longer = run.resume(env_steps=160)
    assert longer.result["env_steps"] == 160 and longer.result["run_dir"] == "run"
    assert longer.evaluate(trials=2)["trials"] == 2
    assert (Path("run") / "report.md").exists()


def test_a_default_type_that_threads_would_share_is_refused_in_a_line() -> None:
    with pytest.raises(
        yamame.UserError, match=r"^the default type of PyTorch is torch.float64, .*async_collection=False"
    ):
        train(changing(CHANGES["float64"], "init"), "run", async_collection=True)


def test_a_policy_acts_the_same_in_a_script_with_other_defaults() -> None:
    train(Bit, "run")
    observation = np.array([1], np.float32)

    def actions() -> list[Any]:
        policy = yamame.load("run")
        return [(policy.act(observation), policy.values()[max(policy.values())]) for _ in range(4)]

    expected = actions()
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_grad_enabled(False)
    assert actions() == expected


@pytest.fixture
def no_alarm_handler() -> Iterator[None]:
    """Without the handler of pytest-timeout."""
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    timer = signal.setitimer(signal.ITIMER_REAL, 0.0)
    yield
    signal.signal(signal.SIGALRM, before)
    signal.setitimer(signal.ITIMER_REAL, *timer)


@pytest.mark.usefixtures("no_alarm_handler")
def test_an_alarm_of_an_environment_ends_a_run_with_a_line() -> None:
    def ring() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        time.sleep(0.05)

    with pytest.raises(yamame.UserError, match=r"^an alarm fired \(SIGALRM\) that the environment or"):
        train(changing(ring, "step"), "run")
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


@pytest.mark.usefixtures("no_alarm_handler")
def test_an_alarm_that_an_environment_leaves_behind_is_stopped_with_the_run() -> None:
    run = train(changing(lambda: signal.alarm(60), "step"), "run")
    assert run.result["updates"] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
