"""The table "What your environment may do" of docs/custom_environments.md: a test for each row, by its first words.

A new row needs a function below, decorated with `row` and its first words.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import NormalizeReward

import yamame
from yamame.envs.env_fn import env_config
from yamame.metrics.registry import read_metrics
from yamame.recipes.settings.presets import default_config
from yamame.training import memory_estimate
from yamame.training.first_update import is_first_update_late

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[3] / "docs/custom_environments.md"
CHECKS: dict[str, Callable[..., None]] = {}
SMALL = {
    "horizon": 4,
    "env_steps": 64,
    "seed": 0,
    "size": "tiny",
    "eval": {"trials": 2, "final_trials": 2, "interval_env_steps": 32, "choose_policy": False},
}


def rows() -> list[str]:
    """Return the first cell of each row."""
    _, _, section = PAGE.read_text().partition("\n## What your environment may do\n")
    lines = section.partition("\n## ")[0].splitlines()
    return [line.split("|")[1].strip() for line in lines if line.startswith("| ")][1:]


def row(first_words: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(check: Callable[..., None]) -> Callable[..., None]:
        CHECKS[first_words] = check
        return check

    return register


class Bit(gymnasium.Env):
    """Name the bit that is shown, three times."""

    observation_space, action_space = spaces.MultiBinary(2), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.show(self.sample(seed)), {}

    def sample(self, seed):
        return self.np_random.integers(2)

    def show(self, bit):
        self.bit = int(bit)
        return np.array([self.bit, self.t % 2], np.int8)

    def step(self, action):
        self.t += 1
        reward = float(action == self.bit)
        return self.show(self.sample(None)), reward, self.t == 3, False, {}


def train(env: Callable[[], gymnasium.Env], horizon: int) -> None:
    yamame.train(env, **{**SMALL, "horizon": horizon})


def first_words_of(findings: list[str]) -> list[str]:
    return [" ".join(finding.split()[:4]) for finding in findings]


def test_every_row_has_a_test() -> None:
    assert [next((words for words in CHECKS if row.startswith(words)), row) for row in rows()] == list(CHECKS)


LONG = "has observations of which the machine cannot hold a batch"


@pytest.mark.parametrize(
    "first_words", [pytest.param(row, marks=pytest.mark.thorough) if row.startswith(LONG) else row for row in rows()]
)
def test_row(
    first_words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    next(check for words, check in CHECKS.items() if first_words.startswith(words))(capsys)


@row("has its time limit in a `TimeLimit` wrapper")
def _(capsys):
    limited = gymnasium.wrappers.TimeLimit(Bit(), 20)
    for make in (lambda: gymnasium.Wrapper(limited), lambda: gymnasium.make("CartPole-v1", max_episode_steps=20)):
        assert env_config(make, horizon=None, attempts=1).horizon == 20
    assert capsys.readouterr().err == ""


@row("has its time limit in an attribute only")
def _(capsys):
    class Limited(Bit):
        max_steps = 20

    assert env_config(Limited, horizon=None, attempts=1).horizon == 20
    assert "episodes end after 20 steps at the latest, the max_steps of Limited" in capsys.readouterr().err


@row("has no time limit")
def _(capsys):
    assert env_config(Bit, horizon=None, attempts=1).horizon == 1_000
    assert "no time limit: its episodes end after 1,000 steps" in capsys.readouterr().err


@row("is truncated by code of its own")
def _(capsys):
    class Truncates(Bit):
        def step(self, action):
            *parts, over, _, info = super().step(action)
            return *parts, False, over, info

    (finding,) = yamame.check_env(Truncates, horizon=9)
    assert "pass horizon=3" in finding


@row("returns masks in `info")
def _(capsys):
    class Masked(Bit):
        def step(self, action):
            assert action == 1
            return super().step(action)

    class ByMethod(Masked):
        def action_masks(self):
            return [False, True]

    class InInfo(Masked):
        def reset(self, **kwargs):
            return super().reset(**kwargs)[0], {"action_mask": [0, 1]}

        def step(self, action):
            return *super().step(action)[:4], {"action_mask": [0, 1]}

    class InObservation(Masked):
        observation_space = spaces.Dict(bit=Bit.observation_space, action_mask=spaces.MultiBinary(2))

        def show(self, bit):
            return {"bit": super().show(bit), "action_mask": np.array([0, 1], np.int8)}

    for env in (ByMethod, InInfo, InObservation):
        assert not any("illegal" in finding for finding in yamame.check_env(env, horizon=9))


@row("has masks under another name")
def _(capsys):
    class Legal(Bit):
        def legal_actions(self):
            return [1]

    (finding,) = yamame.check_env(Legal, horizon=9)
    assert finding.startswith("legal_actions of the environment is not used: return the mask in info['action_mask']")


@row("returns parts of an observation that its space lacks")
def _(capsys):
    class More(Bit):
        observation_space = spaces.Dict(bit=Bit.observation_space)

        def show(self, bit):
            return {"bit": super().show(bit), "hint": bit}

    (finding,) = yamame.check_env(More, horizon=9)
    assert finding.startswith(
        "observation 'hint' is not in the observation space, so that the agent does not observe it"
    )


@row('reports `info["success"]`')
def _(capsys):
    class Reports(Bit):
        def step(self, action):
            *parts, _ = super().step(action)
            return *parts, {"is_success": True}

    assert yamame.train(Reports, num_envs=2, **SMALL).result["success_rate"] == 1.0


@row("has trials so long")
def _(capsys):
    class Endless(Bit):
        def step(self, action):
            *parts, _, _, info = super().step(action)
            return *parts, False, False, info

    long = default_config(env_config(Endless, horizon=1_000, attempts=1), env_steps=20_000)
    assert long.num_envs == 4 and not is_first_update_late(long)
    run = yamame.train(Endless, num_envs=24, **{**SMALL, "horizon": 8})
    lines = [line for line in capsys.readouterr().err.splitlines() if "update" in line]
    assert "no update is made in 64" in lines[0] and lines[1].startswith("the run made no update")
    assert run.result["updates"] == 0


@row("is deterministic")
def _(capsys):
    class Fixed(Bit):
        def sample(self, seed):
            return self.t % 2

    assert yamame.check_env(Fixed, horizon=9) == []


@row("replays one episode")
def _(capsys):
    class Replays(Bit):
        def sample(self, seed):
            if self.t == 0:
                self.rng = np.random.default_rng(0 if seed is None else seed)
            return self.rng.integers(2)

    assert first_words_of(yamame.check_env(Replays, horizon=9)) == ["all episodes after the"]


@row("plays the same sequence")
def _(capsys):
    class IgnoresSeeds(Bit):
        def __init__(self):
            self.rng = np.random.default_rng(0)

        def sample(self, seed):
            return self.rng.integers(2)

    assert first_words_of(yamame.check_env(IgnoresSeeds, horizon=9)) == ["every seed gives the"]


@row("takes random numbers from `np.random`")
def _(capsys):
    class Global(Bit):
        def sample(self, seed):
            return np.random.randint(2)

    class Python(Bit):
        def sample(self, seed):
            return random.randrange(2)

    for env in (Global, Python):
        assert first_words_of(yamame.check_env(env, horizon=9)) == ["the same seed and"]


@row("returns one array together with its other copies")
def _(capsys):
    class OneArray(Bit):
        array = np.zeros(2, np.int8)

        def show(self, bit):
            self.array[:] = super().show(bit)
            return self.array

    runs = [yamame.train(env, **SMALL, num_envs=4) for env in (OneArray, Bit)]
    losses = [[row["loss/td"] for row in read_metrics(run.directory) if "loss/td" in row] for run in runs]
    assert losses[0] == losses[1] != []
    assert yamame.check_env(OneArray, horizon=9) == []


@row("is wrapped by `NormalizeReward`")
def _(capsys):
    yamame.check_env(lambda: NormalizeReward(Bit()), horizon=9)
    assert "NormalizeReward has statistics of its own" in capsys.readouterr().err


@row("shares state with its other copies")
def _(capsys):
    class Shares(Bit):
        last = np.zeros(1, np.int64)

        def show(self, bit):
            self.last[0] += bit
            return super().show(self.last[0] % 2)

        def reset(self, **kwargs):
            self.last[0] = 0
            return super().reset(**kwargs)

    assert first_words_of(yamame.check_env(Shares, horizon=9)) == ["two copies of the"]


@row("is the same object at each call")
def _(capsys):
    one = Bit()
    for make in (lambda: one, lambda: gymnasium.Wrapper(one)):
        with pytest.raises(yamame.UserError, match="env_fn returns the same environment twice"):
            yamame.train(make, num_envs=2, env={"num_workers": 0}, **SMALL)


def limited_to(licenses: int) -> type[Bit]:
    class Limited(Bit):
        num_open = 0

        def __init__(self):
            if Limited.num_open == licenses:
                raise OSError("no license is left")
            Limited.num_open += 1

        def close(self):
            Limited.num_open -= 1

    return Limited


def connecting_in_reset() -> type[Bit]:
    class Connects(Bit):
        owner = None

        def reset(self, **kwargs):
            if Connects.owner not in (None, self):
                raise OSError("the port is taken")
            Connects.owner = self
            return super().reset(**kwargs)

        def close(self):
            Connects.owner = None if Connects.owner is self else Connects.owner

    return Connects


@row("can exist only once")
def _(capsys):
    assert yamame.train(limited_to(1), num_envs=1, **SMALL).result["trials"] == 2
    for env in (limited_to(1), connecting_in_reset()):
        with pytest.raises(yamame.UserError, match="pass num_envs=1 if only one environment can exist"):
            yamame.train(env, env={"num_workers": 0}, **SMALL)
    assert yamame.train(connecting_in_reset(), num_envs=1, **SMALL).result["trials"] == 2


@row("can exist only a few times")
def _(capsys):
    few = {**SMALL["eval"], "num_envs": 2, "close_training_envs": True}
    assert yamame.train(limited_to(2), num_envs=2, **{**SMALL, "eval": few}).result["trials"] == 2


@row("changes `desired_goal` within")
def _(capsys):
    goal = spaces.MultiBinary(2)

    class Moves(Bit):
        observation_space = spaces.Dict(achieved_goal=goal, desired_goal=goal)

        def show(self, bit):
            return {"achieved_goal": super().show(bit), "desired_goal": np.array([0, self.t == 2], np.int8)}

        def step(self, action):
            return *super().step(action)[:2], False, False, {}

    for start in (yamame.check_env, train):
        with pytest.raises(yamame.UserError, match=r"changed 'desired_goal' from \[0.0, 0.0\] to \[0.0, 1.0\]"):
            start(Moves, horizon=9)


@row("changes its spaces after")
def _(capsys):
    class Grows(Bit):
        def sample(self, seed):
            if self.t == 0 and seed is None:
                self.action_space = spaces.Discrete(3)
            return super().sample(seed)

    for start in (yamame.check_env, train):
        with pytest.raises(yamame.UserError, match=r"its action_space from Discrete\(2\) to Discrete\(3\) after"):
            start(Grows, horizon=9)


@row("returns integers that floats round")
def _(capsys):
    class Wide(Bit):
        observation_space = spaces.Box(0, 2**64 - 1, (1,), np.uint64)

        def show(self, bit):
            super().show(bit)
            return np.array([2**63 + self.bit], np.uint64)

    class Narrow(Bit):
        observation_space = spaces.Box(0, 9, (1,), np.int64)

        def show(self, bit):
            super().show(bit)
            return np.array([2**24 + 1 + self.bit])

    for env, limit in ((Wide, "9,007,199,254,740,992"), (Narrow, "16,777,216")):
        for start in (yamame.check_env, train):
            with pytest.raises(yamame.UserError, match=f"expected at most {limit}, beyond which float"):
                start(env, horizon=9)


@row("returns float32 observations that")
def _(capsys):
    class Clock(Bit):
        observation_space = spaces.Box(0, np.inf, (2,))

        def show(self, bit):
            return 1.7e9 + super().show(bit)

    class Exact(Clock):
        observation_space = spaces.Box(0, np.inf, (2,), np.float64)

    assert "which float32 rounds to multiples of 1.3e+02: declare np.float64" in yamame.check_env(Clock, horizon=9)[-1]
    assert yamame.check_env(Exact, horizon=9) == []


@row("returns rewards with an offset")
def _(capsys):
    class Offset(Bit):
        def step(self, action):
            observation, reward, *parts = super().step(action)
            return observation, 1e8 + reward, *parts

    class Tiny(Bit):
        def step(self, action):
            observation, reward, *parts = super().step(action)
            return observation, 1e-25 * reward, *parts

    for env, message in ((Offset, "float32 rounds them by up to 1"), (Tiny, "whose square is 0 in float32")):
        (finding,) = yamame.check_env(env, horizon=9)
        yamame.train(env, **SMALL)
        assert message in finding and capsys.readouterr().err.splitlines().count(finding) == 1


@row("returns a reward of 1e15 or more")
def _(capsys):
    class Huge(Bit):
        def step(self, action):
            observation, reward, *parts = super().step(action)
            return observation, 1e30 * reward, *parts

    for start in (yamame.check_env, train):
        with pytest.raises(yamame.UserError, match=r"returned the reward 1e\+30 at step \d of its episode"):
            start(Huge, horizon=9)


@row("has spaces that the networks refuse")
def _(capsys):
    class Names(Bit):
        observation_space = spaces.Discrete(10**9)

        def show(self, bit):
            super().show(bit)
            return self.bit

    class Many(Bit):
        action_space = spaces.Discrete(10**9)

    for env in (Names, Many):
        lines = set()
        for start in (yamame.check_env, train):
            with pytest.raises(
                yamame.UserError, match=r"1,000,000,000 (categories|choices), of which at most"
            ) as error:
                start(env, horizon=9)
            lines.add(str(error.value))
        assert len(lines) == 1


@row("raises in its first reset")
def _(capsys):
    class NoScene(Bit):
        def reset(self, **kwargs):
            raise ValueError("no such scene")

    with pytest.raises(
        yamame.UserError, match=r"^the environment raised ValueError: no such scene \(no environment has"
    ):
        yamame.train(NoScene, num_envs=2, env={"num_workers": 0}, **SMALL)


@row("samples another task in each attempt")
def _(capsys):
    findings = yamame.check_env(Bit, horizon=9, attempts=3)
    assert "reset with options['new_task'] False" in first_words_of(findings)


@row("has a `horizon` that stands for no limit")
def _(capsys):
    assert yamame.train(Bit, num_envs=2, **{**SMALL, "horizon": 10**9}).result["trials"] == 2


@row("makes single environments where `eval_env_fn`")
def _(capsys):
    def several():
        return SyncVectorEnv([Bit, Bit])

    for env_fn, eval_env_fn in ((Bit, several), (several, Bit)):
        with pytest.raises(yamame.UserError, match="let env_fn and eval_env_fn both make single environments, or both"):
            yamame.train(env_fn, eval_env_fn=eval_env_fn, **SMALL)


@row("changes the working directory")
def _(capsys):
    num_threads = torch.get_num_threads()

    class Changes(Bit):
        def reset(self, **kwargs):
            os.chdir(tempfile.gettempdir())
            torch.set_default_dtype(torch.float64)
            torch.set_grad_enabled(False)
            torch.set_num_threads(num_threads + 1)
            return super().reset(**kwargs)

    try:
        runs = [yamame.train(env, **SMALL, num_envs=2, learning_starts=20) for env in (Changes, Bit)]
    finally:
        torch.set_num_threads(num_threads)
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
    losses = [[row["loss/td"] for row in read_metrics(run.directory) if "loss/td" in row] for run in runs]
    assert losses[0] == losses[1] != []


@row("leaves an alarm")
def _(capsys):
    class Rings(Bit):
        def step(self, action):
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            time.sleep(0.05)
            return super().step(action)

    handler, timer = signal.signal(signal.SIGALRM, signal.SIG_DFL), signal.setitimer(signal.ITIMER_REAL, 0.0)
    try:  # without the alarm of pytest-timeout
        with pytest.raises(yamame.UserError, match=r"^an alarm fired \(SIGALRM\)"):
            train(Rings, 4)
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)


@row("returns NumPy's masked arrays")
def _(capsys):
    class Masked(Bit):
        observation_space = spaces.Box(-1.0, 2.0, (2,), np.float32)

        def show(self, bit):
            return np.ma.array(super().show(bit), mask=[False, True])

    for run in (yamame.check_env, train):
        with pytest.raises(yamame.UserError, match="'observation' has masked entries") as error:
            run(Masked, horizon=4)
        assert "\n" not in str(error.value)


@row("has observations of which the machine")
def _(capsys):
    class Large(Bit):
        observation_space = spaces.Box(0, 255, (10**4, 10**4, 3), np.uint8)

        def show(self, bit):
            super().show(bit)
            return np.zeros(self.observation_space.shape, np.uint8)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_estimate, "machine_bytes", lambda: 2**34)
        with pytest.raises(yamame.UserError, match=r"training needs at least .* this machine has 16.0 GiB of memory"):
            yamame.check_env(Large, horizon=4)


@row("prints to standard output")
def _(capsys):
    Path("noisy.py").write_text(
        "import gymnasium, os\n"
        "print('imported')\n"
        "class Noisy(gymnasium.Wrapper):\n"
        "    def __init__(self): super().__init__(gymnasium.make('CartPole-v1'))\n"
        "    def step(self, action):\n"
        "        os.write(1, b'C')\n"
        "        return super().step(action)\n"
    )
    words = "train --env noisy:Noisy --env.horizon 4 --size tiny --env-steps 16 --num-envs 2 --json --eval.trials 2"
    command = [sys.executable, "-m", "yamame", *words.split(), "--eval.final-trials", "2"]
    stdout = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert stdout.startswith("{") and stdout.count("\n") == 1
