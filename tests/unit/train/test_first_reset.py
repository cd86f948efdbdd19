"""Environments whose first reset fails: one line at once, with the exception or with what to pass."""

import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import yamame

SMALL = {
    "horizon": 4,
    "env_steps": 40,
    "seed": 0,
    "size": "tiny",
    "eval": {"trials": 2, "final_trials": 2, "interval_env_steps": 0, "choose_policy": False},
}


class Blank(gymnasium.Env):
    observation_space, action_space = spaces.MultiBinary(2), spaces.Discrete(2)

    def step(self, action):
        return np.zeros(2, np.int8), 0.0, True, False, {}


class NoScene(Blank):
    def reset(self, *, seed=None, options=None):
        raise ValueError("no such scene: kitchen.xml")


class ConnectsInReset(Blank):
    """One port, taken by the first reset."""

    owner = None

    def reset(self, *, seed=None, options=None):
        if ConnectsInReset.owner not in (None, self):
            raise OSError("port 41451 is already in use")
        ConnectsInReset.owner = self
        return np.zeros(2, np.int8), {}

    def close(self):
        if ConnectsInReset.owner is self:
            ConnectsInReset.owner = None


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    def refuse(seconds):
        assert seconds < 1.0, "the answer is not at once"

    monkeypatch.setattr(time, "sleep", refuse)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_the_exception_of_the_first_reset_is_in_the_line(tmp_path, num_envs):
    line = r"^the environment raised ValueError: no such scene: kitchen.xml \(no environment has been reset: fix it\)$"
    with pytest.raises(yamame.UserError, match=line):
        yamame.train(NoScene, num_envs=num_envs, env={"num_workers": 0}, run_dir=tmp_path / "run", **SMALL)
    with pytest.raises(yamame.UserError, match=line):
        yamame.check_env(NoScene, horizon=4)


def test_one_that_fails_beside_others_names_the_setting(tmp_path):
    line = r"^reset failed in environment 1 beside 1 others \(OSError: port 41451 .*pass num_envs=1"
    with pytest.raises(yamame.UserError, match=line):
        yamame.train(ConnectsInReset, env={"num_workers": 0}, run_dir=tmp_path / "run", **SMALL)
    (finding,) = (each for each in yamame.check_env(ConnectsInReset, horizon=4) if "copy" in each)
    assert finding.startswith("a second copy of the environment beside the first one fails (OSError: port 41451")
    run = yamame.train(ConnectsInReset, num_envs=1, run_dir=tmp_path / "one", **SMALL)
    assert run.result["trials"] == 2


def test_a_reset_that_fails_once_is_tried_again(tmp_path):
    class Slow(ConnectsInReset):
        num_resets = 0

        def reset(self, *, seed=None, options=None):
            Slow.num_resets += 1
            if Slow.num_resets == 1:
                raise OSError("the simulator is not up yet")
            return np.zeros(2, np.int8), {}

    assert yamame.train(Slow, num_envs=1, run_dir=tmp_path / "run", **SMALL).result["trials"] == 2
