"""A loaded policy that is used otherwise than it was trained: what is warned of, and what is refused."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from tiny import TINY_RUN

import yamame

pytestmark = pytest.mark.slow

LENGTH = 3


class Dial(gymnasium.Env[np.ndarray, int]):
    """One episode of three steps; with masks, the second action is forbidden."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, masked: bool = False) -> None:
        self.info = {"action_mask": np.array([1, 0], np.int8)} if masked else {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), self.info

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.full(2, self.time / LENGTH, np.float32), float(action), False, self.time == LENGTH, self.info


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> yamame.Run:
    return _train(False, tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> yamame.Run:
    return _train(True, tmp_path_factory.mktemp("masked") / "run")


def _train(masked: bool, run_dir: Path) -> yamame.Run:
    return yamame.train(
        lambda: Dial(masked), horizon=LENGTH, env_steps=60, run_dir=run_dir, env={"num_workers": 0}, **TINY_RUN
    )


def test_a_trial_without_a_reset_before_it_is_warned_of_once(run: yamame.Run) -> None:
    policy = run.load()
    for _ in range(2):
        for _ in range(LENGTH):
            policy.act(np.zeros(2))
        policy.reset()
    for _ in range(LENGTH):
        policy.act(np.zeros(2))
    with pytest.warns(UserWarning, match=rf"longer than the {LENGTH} steps of training: call reset\(\)"):
        policy.act(np.zeros(2))
    policy.act(np.zeros(2))


def test_an_episode_that_starts_without_a_reset_is_warned_of_once(run: yamame.Run) -> None:
    policy = run.load(num_envs=2)
    policy.act(np.zeros((2, 2)), episode_start=True)
    with pytest.warns(UserWarning, match=r"episode starts in a trial of one episode: call reset\(\)"):
        policy.act(np.zeros((2, 2)), episode_start=[False, True])
    policy.reset([False, True])
    policy.act(np.zeros((2, 2)), episode_start=[False, True])


def test_the_form_of_stable_baselines3_needs_no_reset(run: yamame.Run) -> None:
    policy, state = run.load(), None
    for time in range(3 * LENGTH):
        _, state = policy.predict(np.zeros(2), state, episode_start=time % LENGTH == 0)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_observations_that_are_not_finite_are_refused(run: yamame.Run, number: float) -> None:
    with pytest.raises(yamame.UserError, match=r"observation 'observation' has NaN or infinite numbers"):
        run.load().act(np.array([0.0, number]))


def test_observations_beyond_their_bounds_are_warned_of(run: yamame.Run) -> None:
    policy = run.load()
    policy.act(np.array([-1.0, 1.0]))
    with pytest.warns(UserWarning, match="observation 'observation' is outside of the bounds"):
        policy.act(np.array([0.0, 1.5]))
    policy.act(np.array([0.0, 1.5]))


def test_a_policy_that_was_trained_with_masks_does_not_act_without(masked: yamame.Run, run: yamame.Run) -> None:
    policy = masked.load()
    with pytest.raises(yamame.UserError, match="trained with action masks: pass action_mask"):
        policy.act(np.zeros(2))
    assert {int(policy.act(np.zeros(2), action_mask=[1, 0])) for _ in range(LENGTH)} == {0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.load().act(np.zeros(2))


def test_an_opened_run_is_a_path_of_it(run: yamame.Run) -> None:
    assert yamame.open(run, env_fn=Dial).directory == run.directory
    assert yamame.load(run).act(np.zeros(2)) in (0, 1)


SCRIPT = """import sys

import numpy as np
import yamame

path = sys.argv[1]
run = yamame.open(path)
for wrong in (
    lambda: yamame.load(None),
    lambda: yamame.open(3),
    lambda: yamame.train("CartPole-v1", run_dir=5),
    lambda: yamame.train("CartPole-v1", init_from=np.ndarray),
    lambda: yamame.load(path, num_envs=True),
    lambda: yamame.load(path, modules="os"),
    lambda: run.evaluate(trials=1.5),
    lambda: run.evaluate(trials="4"),
    lambda: run.evaluate(trials=True),
    lambda: run.evaluate(trials=1, seed=0.5),
):
    try:
        wrong()
    except yamame.UserError as error:
        print(error)
"""


def test_a_process_without_checks_of_types_names_what_is_wrong(tmp_path: Path) -> None:
    run = yamame.train("CartPole-v1", horizon=LENGTH, env_steps=60, run_dir=tmp_path / "run", **TINY_RUN)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(run.directory)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    path = "expected the path of a run, got "
    assert found.stdout.splitlines() == [
        f"{path}None (NoneType): pass a str or a Path",
        f"{path}3 (int): pass a str or a Path",
        f"{path}5 (int): pass a str or a Path",
        f"{path}<class 'numpy.ndarray'> (type): pass a str or a Path",
        "num_envs is True: pass at least 1, or None for a single environment",
        "modules: expected a list, got 'os' alone: pass modules=['os']",
        "trials is 1.5: pass a whole number",
        "trials is '4': pass a whole number",
        "trials is True: pass a whole number",
        "seed is 0.5: pass a whole number",
    ]


def test_weights_from_nowhere_are_named(run: yamame.Run) -> None:
    with pytest.raises(yamame.UserError, match="nowhere does not exist: pass a run, or a checkpoint of one"):
        yamame.train(Dial, horizon=LENGTH, env_steps=60, init_from=run.directory / "nowhere", **TINY_RUN)


class FailsWithSuccess(Dial):
    """Half of its trials that succeed fail."""

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        result = super().step(action)
        if result[3] and action and self.np_random.random() < 0.5:
            raise ValueError("the success is not handled")
        return result


def test_a_line_tells_that_results_rest_on_trials_that_did_not_fail(tmp_path: Path, capsys: Any) -> None:
    settings: Any = {**TINY_RUN, "env": {"num_workers": 0}}
    yamame.train(FailsWithSuccess, horizon=LENGTH, env_steps=90, run_dir=tmp_path / "run", **settings)
    lines = [line for line in capsys.readouterr().err.splitlines() if "on which alone it rests" in line]
    assert any(line.startswith("an evaluation: ") for line in lines), lines
    assert any(line.startswith("the run: ") and "fault_tolerance.max_restarts=0" in line for line in lines), lines
