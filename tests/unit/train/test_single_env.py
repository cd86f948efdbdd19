"""Environments of which only one, or few, can exist at a time."""

import shutil
import threading

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

import yamame
from yamame.training.callbacks import Callback

pytestmark = pytest.mark.slow

LICENSES = {"port": 1, "pair": 2, "display": 1, "vector": 1, "goals": 1}
OPEN = dict.fromkeys(LICENSES, 0)
CUT: list[int] = []
"""Steps of the episodes during which an environment was closed."""


class Simulator(gymnasium.Env):
    """Trials of 7 steps; a bit to name in each."""

    observation_space, action_space, kind = spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(2), "port"

    def __init__(self):
        if OPEN[self.kind] == LICENSES[self.kind]:
            raise OSError(f"{self.kind} 41451 is already in use")
        OPEN[self.kind] += 1
        self.is_open = True

    def close(self):
        assert self.is_open, "closed twice"
        self.is_open = False
        OPEN[self.kind] -= 1
        CUT.extend([self.t] if 0 < getattr(self, "t", 0) < 7 else [])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def observe(self):
        self.bit = int(self.np_random.integers(2))
        return np.array([self.bit], np.float32)

    def step(self, action):
        self.t += 1
        reward = float(action == self.bit)
        return self.observe(), reward, self.t == 7, False, {}


class Pair(Simulator):
    kind = "pair"


class Display(Simulator):
    """A second one can be made, and takes the place of the first."""

    owner = None

    def __init__(self):
        Display.owner, self.is_open = self, True

    def close(self):
        self.is_open = False
        CUT.extend([self.t] if 0 < getattr(self, "t", 0) < 7 else [])

    def step(self, action):
        assert Display.owner is self and self.is_open, "the connection was lost to another one"
        return super().step(action)


class SlowToClose(Simulator):
    """Its port becomes free a moment after it is closed."""

    def close(self):
        threading.Timer(0.2, super().close).start()


class GoalSimulator(Simulator):
    kind = "goals"
    observation_space = spaces.Dict(dict.fromkeys(("achieved_goal", "desired_goal"), spaces.Box(0.0, 1.0, (1,))))

    def observe(self):
        return {"achieved_goal": super().observe(), "desired_goal": np.ones(1, np.float32)}

    def compute_reward(self, achieved, desired, info):
        return float(np.abs(achieved - desired).max() < 0.5)


class GoalTableSimulator(GoalSimulator):
    observation_space = spaces.Dict(dict.fromkeys(("achieved_goal", "desired_goal"), spaces.Box(0.0, 1.0, (2, 1))))

    def observe(self):
        return {name: np.tile(goal, (2, 1)) for name, goal in super().observe().items()}


class VectorSimulator(VectorEnv):
    """A vector environment of one that can save its state."""

    def __init__(self):
        self.sim, self.num_envs, self.metadata = VectorPart(), 1, {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space, self.single_action_space = Simulator.observation_space, Simulator.action_space
        self.observation_space = batch_space(self.single_observation_space, 1)
        self.action_space = batch_space(self.single_action_space, 1)

    def close(self, **kwargs):
        self.sim.close()

    def reset(self, *, seed=None, options=None):
        return self.sim.reset(seed=seed)[0][None], {}

    def step(self, actions):
        observation, *rest, _ = self.sim.step(actions[0])
        return observation[None], *(np.array([value]) for value in rest), {}

    def state_dict(self):
        return {"t": self.sim.t, "bit": self.sim.bit, "rng": self.sim.np_random.bit_generator.state}

    def load_state_dict(self, state):
        self.sim.t, self.sim.bit = state["t"], state["bit"]
        self.sim.np_random.bit_generator.state = state["rng"]


class VectorPart(Simulator):
    kind, t, bit = "vector", 0, 0


SMALL = {
    "horizon": 10,
    "env_steps": 120,
    "env_steps_per_iteration": 12,
    "seed": 0,
    "size": "tiny",
    "eval": {"trials": 2, "final_trials": 2, "interval_env_steps": 25, "choose_policy": False},
}


@pytest.fixture(autouse=True)
def _all_are_closed_at_the_end():
    CUT.clear()
    yield
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()
    assert not any(OPEN.values())


@pytest.mark.parametrize(
    "env_fn",
    [
        Simulator,
        Display,
        pytest.param(SlowToClose, marks=pytest.mark.thorough),
        GoalSimulator,
        GoalTableSimulator,
        VectorSimulator,
    ],
)
def test_num_envs_1_is_all_that_a_single_simulator_needs(env_fn, tmp_path, capsys):
    run = yamame.train(env_fn, num_envs=1, run_dir=tmp_path / "run", **SMALL)
    assert run.result["trials"] == run.result["random_baseline"]["trials"] == 2
    metrics = run.metrics()
    assert np.isfinite(metrics["eval/return_mean"]).sum() >= 3
    if env_fn is not VectorSimulator:  # its trials continue
        assert len(CUT) <= 1, "no trial is lost but the last one of the run"
    assert metrics["faults/restarts"][-1] == 0
    assert run.evaluate(trials=2)["trials"] == 2
    assert "restored" not in capsys.readouterr().err


def test_test_tasks_on_the_same_port(tmp_path):
    class Harder(Simulator):
        pass

    run = yamame.train(Simulator, eval_env_fn=Harder, num_envs=1, run_dir=tmp_path / "run", **SMALL)
    assert run.result["train_tasks"]["trials"] == 2


def test_few_licenses(tmp_path, monkeypatch):
    settings = {
        **SMALL,
        "eval": {**SMALL["eval"], "num_envs": 2, "interval_env_steps": 40, "close_training_envs": True},
    }
    run = yamame.train(Pair, num_envs=2, run_dir=tmp_path / "run", **settings)
    assert run.result["env_steps"] == 120
    with pytest.raises(yamame.UserError, match=r"eval.interval_env_steps is 1, .* pass at least 40, or 0"):
        yamame.resume(run, env_steps=160, eval={"interval_env_steps": 1})
    monkeypatch.setattr("yamame.envs.vector.faults.RETRY_DELAYS_SECONDS", (0.0,))
    with pytest.raises(yamame.UserError, match=r"or pass eval.close_training_envs=True if it cannot"):
        yamame.train(Pair, num_envs=2, run_dir=tmp_path / "none", **SMALL)
    settings["eval"]["interval_env_steps"] = 39
    with pytest.raises(yamame.UserError, match=r"eval.interval_env_steps is 39, .* pass at least 40, or 0"):
        yamame.train(Pair, num_envs=2, run_dir=tmp_path / "other", **settings)


def test_more_than_can_exist_names_the_setting(tmp_path):
    with pytest.raises(
        yamame.UserError,
        match=r"^env_fn failed to make environment 1 beside 1 others \(OSError: port .*pass num_envs=1",
    ):
        yamame.train(Simulator, env={"num_workers": 0}, run_dir=tmp_path / "run", **SMALL)


def test_check_env_uses_one_at_a_time_and_says_that_there_can_be_one():
    (finding,) = yamame.check_env(Simulator, horizon=10)
    assert finding.startswith("a second copy of the environment beside the first one fails (OSError: port 41451")
    assert finding.endswith("pass num_envs=1 if only one can exist")


def assert_equal(one, other):
    """All metrics of two runs are equal, but those of time."""
    ones, others = one.metrics(), other.metrics()
    timed = [name for name in ones if "second" in name or name.startswith("time/")]
    for name in ones.keys() - timed:
        np.testing.assert_array_equal(ones[name], others[name], err_msg=name)
    assert ones["env_steps"][-1] >= 120 and np.isfinite(ones["critic/td_error_abs"]).sum() > 3
    assert one.result["return_mean"] == other.result["return_mean"]


def test_trials_that_can_be_saved_continue_after_an_evaluation_as_if_there_were_none(tmp_path, monkeypatch):
    closed = yamame.train(VectorSimulator, num_envs=1, run_dir=tmp_path / "closed", **SMALL)
    assert CUT, "trials were interrupted"
    monkeypatch.setitem(LICENSES, "vector", 2)
    settings = {**SMALL, "eval": {**SMALL["eval"], "close_training_envs": False}}
    assert_equal(closed, yamame.train(VectorSimulator, num_envs=1, run_dir=tmp_path / "open", **settings))


class CopyOfRun(Callback):
    """Copies the run directory, with a checkpoint that was saved after an evaluation or between two of them."""

    def __init__(self, copy, iterations_after_evaluation):
        self.copy, self.wait, self.since = copy, iterations_after_evaluation, None

    def on_evaluation(self, run):
        if run.env_steps > 40 and self.since is None:
            self.since = -1

    def on_iteration(self, run):
        if self.since is not None:
            self.since += 1
            if self.since == self.wait:
                shutil.copytree(run.directory, self.copy)


@pytest.mark.parametrize(("env_fn", "wait"), [(VectorSimulator, 2), (Simulator, 1)])
def test_a_run_that_continues_from_a_checkpoint_is_equal_to_the_bit(env_fn, wait, tmp_path, capsys):
    settings = {**SMALL, "num_envs": 1, "env_steps_per_iteration": 20, "checkpoint": {"interval_seconds": 0.0}}
    callback = CopyOfRun(tmp_path / "copy", wait)
    run = yamame.train(env_fn, run_dir=tmp_path / "run", callbacks=[callback], **settings)
    resumed = yamame.resume(tmp_path / "copy", env_fn=env_fn)
    assert "restored" not in capsys.readouterr().err
    assert_equal(run, resumed)


def test_a_parallel_environment_that_exists_once_names_its_size(tmp_path):
    pettingzoo = pytest.importorskip("pettingzoo")

    class Two(pettingzoo.ParallelEnv):
        possible_agents, num_open = ["left", "right"], 0

        def __init__(self):
            if Two.num_open:
                raise OSError("port 41451 is already in use")
            Two.num_open += 1

        def close(self):
            Two.num_open -= 1

        def observation_space(self, agent):
            return Simulator.observation_space

        def action_space(self, agent):
            return Simulator.action_space

    with pytest.raises(yamame.UserError, match=r"env={'vector_size': 2} and num_envs=2 if only one can exist"):
        yamame.train(Two, run_dir=tmp_path / "run", **SMALL)
    assert not Two.num_open
