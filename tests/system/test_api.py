"""The Python interface: train on anything, evaluate, load, act."""

import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from collecting import collect_trials
from command_runs import interrupt_in_iteration
from gymnasium import spaces
from tiny import TINY_RUN

import yamame
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.cli import main
from yamame.collect.collector import Collector
from yamame.collect.exploration import Explorer, NoExploration
from yamame.data.actions import to_env_action
from yamame.envs.gymnasium import GymnasiumConfig
from yamame.envs.tmaze import TMazeVectorEnv
from yamame.nets.sequence.gru import GRUConfig
from yamame.recipes import load_recipe
from yamame.recipes.settings.presets import amago_config
from yamame.training.run_files import read_config
from yamame.training.trained_run import load_trained_run

pytestmark = pytest.mark.slow


class Dial(gymnasium.Env[dict[str, Any], np.ndarray]):
    """Turn two dials to a hidden place, which stays the same as long as the task does."""

    observation_space = spaces.Dict(
        dial=spaces.Box(-2.0, 2.0, (2,), np.float64), light=spaces.Discrete(3, start=5), switch=spaces.MultiBinary(2)
    )
    action_space = spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 10.0]), (2,), np.float64)
    made: ClassVar[list["Dial"]] = []

    def __init__(self) -> None:
        self.new_task: list[bool] = []
        self.made.append(self)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        new_task = (options or {}).get("new_task", True)
        if new_task:
            self.hidden = self.np_random.uniform(-2.0, 2.0)
        self.new_task.append(new_task)
        self.time = 0
        return self._observe(np.zeros(2)), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.time += 1
        return self._observe(action), -abs(float(action[0]) - self.hidden), False, self.time == 3, {}

    def _observe(self, action: np.ndarray) -> dict[str, Any]:
        return {
            "dial": np.clip(action, -2.0, 2.0),
            "light": 5 + self.time % 3,
            "switch": np.array([self.time == 0, 1], np.int8),
        }


def make_cart_pole() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def dial_and_environments(tmp_path_factory: pytest.TempPathFactory) -> tuple[yamame.Run, list[Dial]]:
    """Trained on the dials, two attempts a trial; the environments of the run."""
    Dial.made.clear()
    run_dir = tmp_path_factory.mktemp("dial") / "run"
    settings = {**TINY_RUN, "eval": {**TINY_RUN["eval"], "choose_policy": False}}
    run = yamame.train(Dial, horizon=6, attempts=2, env_steps=120, run_dir=run_dir, env={"num_workers": 0}, **settings)
    return run, list(Dial.made)


@pytest.fixture(scope="module")
def dial(dial_and_environments: tuple[yamame.Run, list[Dial]]) -> yamame.Run:
    return dial_and_environments[0]


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> yamame.Run:
    run_dir = tmp_path_factory.mktemp("maze") / "run"
    settings = {**TINY_RUN, "deterministic_actions": False}
    return yamame.train("passive-tmaze", horizon=4, env_steps=80, run_dir=run_dir, **settings)


# the package


def test_import_is_quick_and_silent() -> None:
    code = """
import sys
import yamame
heavy = {"torch", "tyro", "rich", "matplotlib", "sqlite3", "tensorboardX"} & set(sys.modules)
assert not heavy, heavy
import gymnasium
environment = gymnasium.make("yamame/PassiveTMaze-v0")
environment.reset(seed=0)
assert len(environment.step(0)) == 5
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_policy_acts_without_the_compiler() -> None:
    """PyTorch's compiler takes longer to import than all else that a policy needs."""
    code = """
import sys
import gymnasium
import yamame
policy = yamame.load("zoo:passive-tmaze")
policy.act(gymnasium.make("yamame/PassiveTMaze-v0").reset(seed=0)[0])
heavy = {"torch._dynamo", "sympy", "matplotlib.pyplot"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_public_names() -> None:
    names: dict[str, Any] = {}
    exec("from yamame import *", names)
    assert set(names) - {"__builtins__"} == set(yamame.__all__)
    assert issubclass(yamame.UserError, Exception)
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        yamame.trian  # noqa: B018


# train


def test_a_recipe_with_other_settings(maze: yamame.Run) -> None:
    config = read_config(maze.directory)
    assert (config.env.task_name, config.env_steps, config.num_envs) == ("passive-tmaze-4", 80, 4)
    assert config == maze.config
    assert maze.result["env_steps"] == 80 and maze.result["updates"] > 0


def test_a_recipe_silently_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    run = yamame.train("passive-tmaze", variants=["gru"], env={"horizon": 3}, env_steps=64, seed=7, **without_heads())
    assert run.directory.parent == Path("runs")
    assert isinstance(run.config.algorithm.agent.trajectory_encoder, GRUConfig)
    assert run.result["seed"] == 7
    assert capfd.readouterr() == ("", "")


def test_a_string_is_no_list_of_variants() -> None:
    with pytest.raises(
        yamame.UserError, match=r"^variants: expected a list, got 'gru' alone: pass variants=\['gru'\]$"
    ):
        yamame.train("passive-tmaze", env_steps=64, variants="gru")
    assert not Path("runs").exists()


def test_settings_take_precedence_over_arguments() -> None:
    settings: dict[str, Any] = {"env": {"horizon": 4}, "learner.learning_rate": 2e-3, **TINY_RUN}
    run = yamame.train(
        "passive-tmaze", horizon=3, algorithm={"learner": {"learning_rate": 1e-3, "tau": 0.5}}, env_steps=64, **settings
    )
    learner = amago_config(run.config).learner
    assert (run.config.env.task_name, learner.learning_rate, learner.tau) == ("passive-tmaze-4", 2e-3, 0.5)


def test_attempts_of_a_recipe_are_its_own_by_default_and_what_is_passed_otherwise() -> None:
    assert yamame.train("gridnavi", env_steps=240, **TINY_RUN).config.env.attempts == 4
    assert yamame.train("gridnavi", env_steps=240, attempts=1, **TINY_RUN).config.env.attempts == 1
    with pytest.raises(yamame.UserError, match=r"^env.attempts: expected int, got None"):
        yamame.train("gridnavi", env_steps=240, attempts=None, **TINY_RUN)


def without_heads() -> dict[str, Any]:
    return {**TINY_RUN, "agent.trajectory_encoder": {"d_model": 8, "num_layers": 1}}


def test_continuous_actions_and_nested_observations(
    dial_and_environments: tuple[yamame.Run, list[Dial]],
) -> None:
    dial, environments = dial_and_environments
    assert (dial.result["env_steps"], len(dial.result["return_per_attempt"])) == (120, 2)
    assert dial.result["success_rate"] is None
    for environment in environments:
        assert environment.new_task == [attempt % 2 == 0 for attempt in range(len(environment.new_task))]
    assert sum(len(environment.new_task) for environment in environments) >= 40


def test_a_function_whose_environment_names_its_horizon() -> None:
    run = yamame.train(make_cart_pole, attempts=2, env_steps=64, context_length=16, **TINY_RUN)
    assert run.config is not None
    assert (run.config.env.task_name, run.config.env.max_trial_steps, run.config.resolved_context_length) == (
        "make-cart-pole",
        1000,
        16,
    )
    again = yamame.resume(run.directory, env_steps=9.6e1, modules=[__name__])
    assert again.result["env_steps"] == 96


def test_a_lambda_can_be_evaluated_by_who_trained_it() -> None:
    run = yamame.train(lambda: Dial(), horizon=3, variants=["gru"], env_steps=24, **without_heads())
    assert isinstance(run.config.algorithm.agent.trajectory_encoder, GRUConfig)
    assert run.evaluate(trials=3)["trials"] == 3
    yamame.load(run.directory).act(Dial().reset()[0])
    with pytest.raises(yamame.UserError, match="define it at the top of a module"):
        yamame.open(run.directory).evaluate()
    opened = yamame.open(run.directory, env_fn=lambda: Dial())
    assert opened.evaluate(trials=3)["return_mean"] == run.evaluate(trials=3)["return_mean"]
    longer = yamame.resume(run, env_steps=48)
    assert longer.config.env_steps == longer.result["env_steps"] == 48
    longer = yamame.resume(run.directory, env_fn=Dial, env_steps=72)
    assert longer.config.env_steps == longer.result["env_steps"] == 72
    with pytest.raises(yamame.UserError, match="num_envs is True: pass at least 1"):
        longer.export("policy.onnx", num_envs=True)
    with pytest.raises(yamame.UserError, match=r"there is no folder nowhere$"):
        longer.export("nowhere/policy.onnx")


def test_a_function_without_a_name_is_announced(capfd: pytest.CaptureFixture[str]) -> None:
    for env_fn, announced in ((lambda: Dial(), True), (partial(Dial), True), (Dial, False)):
        yamame.train(env_fn, horizon=3, env_steps=48, **without_heads())
        said = capfd.readouterr().err
        assert ("cannot be imported by name" in said and len(said.splitlines()) == 1) if announced else not said


SCRIPT = """
import gymnasium, sys, yamame

def make_env():
    return gymnasium.make("CartPole-v1")

class Pole(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(make_env())

if __name__ == "__main__":
    for name in ("make_env", "Pole"):
        settings = {"horizon": 8, "env_steps": 80, "num_envs": 4, "eval": {"final_trials": 2, "interval_env_steps": 0}}
        run = yamame.train(globals()[name], run_dir=name, size="tiny", **settings)
        again = yamame.open(name, modules=[__name__])
        assert again.config.env.env_fn is globals()[name] and again.result == run.result
"""


def test_functions_of_a_script_are_found_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script's folder is the working directory, where the command line searches for modules that it is given."""
    Path("my_script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "my_script.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
    for run, flags in (
        ("make_env", ["--import", "my_script"]),
        ("Pole", ["--env", "my_script:Pole"]),
        ("Pole", ["--env", "CartPole-v1"]),
    ):
        assert main(["eval", run, "--trials", "2", "--json", *flags]) == 0
    assert main(["resume", "Pole", "--env", "my_script:Pole", "--env-steps", "100", "--quiet"]) == 0
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.chdir("Pole")
        patch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path)])
        shutil.copy("../my_script.py", "hostile.py")
        assert main(["eval", ".", "--env", "hostile:Pole"]) == 2
        assert "cannot import hostile" in capsys.readouterr().err, "no code in a run directory is executed"
    for flags, message in (
        ([], "add --import my_script"),
        (["--env", "my_script:Cart"], "defines no function Cart"),
        (["--env", "your_script:Pole"], "cannot import your_script"),
        (["--env", "Pole"], "expected module:function, got 'Pole'"),
        (["--env", "Acrobot-v1"], "observation space is Box"),
        (["--env", "CartPole-v7"], "did you mean 'CartPole-v1'"),
    ):
        assert main(["eval", "Pole", *flags]) == 2
        assert message in capsys.readouterr().err


def test_a_registered_environment_by_its_id() -> None:
    run = yamame.train("CartPole-v1", context_length=8, env_steps=6e1, **TINY_RUN)
    assert run.config.env_steps == 60 and run.config.exploration.anneal_env_steps == 30
    assert isinstance(run.config.env, GymnasiumConfig) and run.config.env.horizon == 500
    assert run.directory.name.startswith("CartPole-v1-")
    assert yamame.open(run.directory).evaluate(trials=2)["trials"] == 2
    with pytest.raises(yamame.UserError, match="did you mean 'CartPole-v1'"):
        yamame.train("CartPol-v1")
    with pytest.raises(yamame.UserError, match=r"yamame train --env CartPole-v1"):
        load_recipe("CartPole-v1")


class Short(Dial):
    """Test tasks: each step earns 7."""

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, *rest = super().step(action)
        return observation, 7.0, *rest  # type: ignore[return-value]


def test_test_tasks_of_ones_own() -> None:
    run = yamame.train(Dial, eval_env_fn=Short, horizon=3, env_steps=24, **without_heads())
    assert run.result is not None and run.result["return_mean"] == 21.0
    assert run.result["train_tasks"]["return_mean"] < 0
    assert run.evaluate(trials=2, env_fn=Dial)["return_mean"] < 0
    assert yamame.open(run.directory, modules=[__name__]).evaluate(trials=2)["return_mean"] == 21.0

    again = yamame.open(run.directory, env_fn=Dial, modules=[__name__])
    assert again.evaluate(trials=2)["return_mean"] < 0, "what is passed is evaluated"
    again = yamame.open(run.directory, env_fn=Dial, eval_env_fn=Short)
    assert again.evaluate(trials=2)["return_mean"] == 21.0
    again = yamame.resume(run.directory, env_fn=Dial, modules=[__name__], env_steps=48)
    assert again.config.env == run.config.env, "a run that is resumed keeps its test tasks"
    assert again.result is not None and again.result["return_mean"] == 21.0


def test_another_environment_keeps_the_settings_of_the_task() -> None:
    settings = {"goal_tolerance": 0.25, "num_workers": 0}
    run = yamame.train("CartPole-v1", horizon=9, env_steps=40, env=settings, context_length=8, **TINY_RUN)
    assert yamame.open(run.directory, env_fn="CartPole-v1").config.env == run.config.env
    env = yamame.open(run.directory, env_fn=make_cart_pole).config.env
    assert env.env_fn is make_cart_pole and (env.horizon, env.goal_tolerance, env.num_workers) == (9, 0.25, 0)
    for arguments, message in (
        ((Dial, make_cart_pole), "expected that of the run"),
        (("passive-tmaze", Dial), "leave eval_env_fn out"),
        (("CartPole-v1", Dial), "pass a function"),
    ):
        with pytest.raises(yamame.UserError, match=message):
            yamame.train(arguments[0], eval_env_fn=arguments[1], **({"horizon": 3} if arguments[0] is Dial else {}))


def test_a_run_has_metrics_and_checkpoints(maze: yamame.Run) -> None:
    metrics = yamame.open(maze.directory).metrics()
    assert maze.result is not None and metrics["env_steps"][-1] == maze.result["env_steps"]
    assert {len(column) for column in metrics.values()} == {len(metrics["updates"])}
    assert np.isfinite(metrics["loss/td"][-1])
    first, *_ = maze.checkpoints
    assert maze.evaluate(checkpoint=first)["return_mean"] == maze.evaluate()["return_mean"]
    oldest = maze.checkpoints[-1]
    assert maze.evaluate(trials=2, checkpoint=oldest)["updates"] < maze.result["updates"]
    observation = TMazeVectorEnv(1, horizon=4).reset(seed=0)[0]
    assert maze.load(checkpoint=oldest).act(observation[0]) in range(4)


def test_a_vector_environment() -> None:
    settings = {name: value for name, value in TINY_RUN.items() if name != "num_envs"}
    run = yamame.train(lambda: TMazeVectorEnv(9, horizon=3), horizon=4, env_steps=72, **settings)
    assert run.config.num_envs == 9
    assert run.result["env_steps"] == 72
    for trials in (1, 20):
        assert run.evaluate(trials=trials)["trials"] == trials
    with pytest.raises(yamame.UserError, match="set num_envs to 9"):
        yamame.train(lambda: TMazeVectorEnv(9, horizon=3), horizon=4, num_envs=5)


def test_gymnasiums_own_vector_environment() -> None:
    settings = {name: value for name, value in TINY_RUN.items() if name != "num_envs"}
    factory = lambda: gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")  # noqa: E731
    run = yamame.train(factory, horizon=500, context_length=8, env_steps=60, **settings)
    assert run.evaluate(trials=4)["return_mean"] > 5


class OldReset(Dial):
    def reset(self, **_: Any) -> Any:
        return super().reset(**_)[0]


class OldStep(Dial):
    def step(self, action: np.ndarray) -> Any:
        return super().step(action)[:4]


def test_an_environment_without_a_time_limit_gets_one(capsys: pytest.CaptureFixture[str]) -> None:
    run = yamame.train(Dial, attempts=2, env_steps=48, env={"num_workers": 0}, **TINY_RUN)
    assert run.config.env.max_trial_steps == 2_000
    assert capsys.readouterr().err.count("no time limit: its episodes end after 1,000 steps") == 1


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("pasive-tmaze", {}, "did you mean 'passive-tmaze'"),
        ("passive-tmaze", {"env_step": 3}, "did you mean 'env_steps'"),
        ("passive-tmaze", {"env_steps": 1.5}, "expected int, got 1.5"),
        ("passive-tmaze", {"env_steps": 0}, "env_steps must be at least 1, not 0"),
        ("passive-tmaze", {"agent.critic.num_critics": 0}, "agent.critic.num_critics must be at least 1, not 0"),
        ("passive-tmaze", {"agent": {"actor": {"hidden_sizes": [0]}}}, "agent.actor.hidden_sizes must be at least 1"),
        ("passive-tmaze", {"horizon": 0}, "env.horizon must be at least 1"),
        ("passive-tmaze", {"attempts": 2}, "no field 'env.attempts'"),
        ("passive-tmaze", {"variants": ["grue"]}, "unknown variant 'grue'"),
        (Dial, {"attempts": None}, "pass horizon="),
        (Dial, {"horizon": 0}, "horizon must be at least 1"),
        (Dial, {"horizon": 6, "attempts": 0}, "attempts must be at least 1"),
        (Dial, {"horizon": 6, "env_steps": 0}, "env_steps must be at least 1"),
        (Dial, {"horizon": 6, "nun_envs": 3}, "did you mean 'num_envs'"),
        (Dial, {"horizon": 6, "context_length": 7}, "longer than a trial"),
        (lambda: None, {"horizon": 6}, "got NoneType"),
        (OldReset, {"horizon": 6}, "old Gym"),
        (OldStep, {"horizon": 6}, "old Gym"),
    ],
)
def test_mistakes(task: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(yamame.UserError, match=message.replace("?", r"\?")) as error:
        yamame.train(task, **settings)
    assert "\n" not in str(error.value)
    assert not list(Path().glob("runs/*"))


def test_settings_that_only_fit_together() -> None:
    encoder = {"d_model": 6, "num_heads": 3, "num_layers": 1, "d_ff": 8}
    settings = {name: value for name, value in TINY_RUN.items() if name != "agent.trajectory_encoder"}
    settings |= {f"agent.trajectory_encoder.{name}": value for name, value in encoder.items()}
    run = yamame.train("passive-tmaze", horizon=3, env_steps=4, **settings)
    assert run.config.algorithm.agent.trajectory_encoder.state_size == 6


# evaluate


def test_evaluate_is_what_train_said_at_the_end(dial: yamame.Run, maze: yamame.Run) -> None:
    for run in (dial, maze):
        evaluated = run.evaluate()
        for name in ("return_mean", "return_ci95", "return_per_attempt", "success_rate", "trials", "updates"):
            assert evaluated[name] == run.result[name], name
        other = run.evaluate(trials=9, seed=4)
        assert (other["trials"], other["seed"]) == (9, 4)
    with pytest.raises(yamame.UserError, match="at least 1"):
        dial.evaluate(trials=0)


# signals


def test_ctrl_c_ends_a_loop_over_seeds_with_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"horizon": 3, "env_steps": 96, **without_heads(), "env_steps_per_iteration": 12}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        interrupt_in_iteration(patch, 2)
        for seed in range(3):
            yamame.train(lambda: Dial(), run_dir=f"run-{seed}", seed=seed, **settings)
    assert [path.name for path in Path().glob("run-*")] == ["run-0"]
    assert "yamame.resume('run-0', env_fn=...) continues" in capsys.readouterr().err
    assert yamame.open("run-0").result is None
    assert yamame.resume("run-0", env_fn=Dial).result["env_steps"] == 96


def test_a_termination_that_the_caller_handles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        interrupt_in_iteration(monkeypatch, 2, signal.SIGTERM)
        run = yamame.train(Dial, horizon=3, env_steps=96, run_dir="run", **without_heads(), env_steps_per_iteration=12)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert heard == [signal.SIGTERM] and run.result["stopped_by"] == "SIGTERM"
    assert f"yamame resume run --env {__name__}:Dial continues" in capsys.readouterr().err


# load


def episode(length: int, seed: int) -> list[dict[str, Any]]:
    """Observations of an episode in which the dials are turned at random."""
    environment = Dial()
    first, _ = environment.reset(seed=seed)
    environment.action_space.seed(seed)
    return [first, *(environment.step(environment.action_space.sample())[0] for _ in range(length - 1))]


def stacked(observations: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    return {name: np.stack([each[name] for each in observations]) for name in observations[0]}


@pytest.mark.parametrize("deterministic", [None, True, False])
def test_actions_are_of_the_environments_own_space(dial: yamame.Run, deterministic: bool | None) -> None:
    one, three = yamame.load(dial.directory), dial.load(num_envs=3)
    for observation in episode(4, seed=0):
        action = one.act(observation, deterministic=deterministic)
        assert Dial.action_space.contains(action)
        actions = three.act(stacked([observation] * 3), reward=np.ones(3), deterministic=deterministic)
        assert actions.shape == (3, 2)
        assert all(Dial.action_space.contains(each) for each in actions)


def test_discrete_actions(maze: yamame.Run) -> None:
    one, three = yamame.load(maze.directory), yamame.load(str(maze.directory), num_envs=3)
    environment: Any = gymnasium.make("yamame/PassiveTMaze-v0")
    observation, _ = environment.reset(seed=0)
    reward = 0.0
    for _ in range(4):
        action = one.act(observation, reward=reward)
        assert environment.action_space.contains(action)
        actions = three.act(np.stack([observation] * 3))
        assert actions.shape == (3,) and all(environment.action_space.contains(each) for each in actions)
        observation, reward, *_ = environment.step(action)


def test_memory_and_reset(dial: yamame.Run) -> None:
    policy = yamame.load(dial.directory)
    first, other = episode(6, seed=1), episode(6, seed=2)

    def played(observations: list[dict[str, Any]]) -> np.ndarray:
        return np.stack([policy.act(each, reward=-1.0, deterministic=True) for each in observations])

    fresh = played(first)
    with pytest.warns(UserWarning, match=r"call reset\(\) when a trial ends"):
        assert not np.allclose(played(first), fresh), "nothing was remembered"
    policy.reset()
    np.testing.assert_array_equal(played(first), fresh)
    policy.reset()
    played(other[:5])
    assert not np.allclose(policy.act(first[5], reward=-1.0, deterministic=True), fresh[5]), (
        "the past makes no difference"
    )


def test_what_earned_a_reward_and_what_begins_an_attempt_is_seen(dial: yamame.Run) -> None:
    observations = episode(3, seed=1)

    def last(reward: float, episode_start: bool) -> np.ndarray:
        policy = yamame.load(dial.directory)
        for observation in observations[:2]:
            policy.act(observation, deterministic=True)
        action: np.ndarray = policy.act(observations[2], reward, episode_start, deterministic=True)
        return action

    plain = last(0.0, False)
    assert not np.allclose(last(5.0, False), plain)
    assert not np.allclose(last(0.0, True), plain)


def test_a_batch_is_as_many_singles(dial: yamame.Run) -> None:
    episodes = [episode(6, seed) for seed in range(3)]
    rewards = np.linspace(-1.0, 1.0, 18).reshape(6, 3)
    together, singles = dial.load(num_envs=3), [dial.load() for _ in range(3)]
    for time in range(6):
        if time == 4:  # a new trial in the middle, elsewhere the old ones continue
            together.reset([False, True, False])
            singles[1].reset()
        starts = np.array([time == 3, False, False])
        observations = [each[time] for each in episodes]
        actions = together.act(stacked(observations), rewards[time], starts, deterministic=True)
        for row, single in enumerate(singles):
            alone = single.act(observations[row], rewards[time, row], starts[row], deterministic=True)
            np.testing.assert_allclose(actions[row], alone, rtol=1e-5, atol=1e-5)


def test_predict_is_act_with_a_state(dial: yamame.Run) -> None:
    observations = episode(6, seed=1)
    expected, policy = dial.load(), dial.load()
    state = None
    for time, observation in enumerate(observations):
        starts = time in (0, 3)
        if starts:
            expected.reset()
        action, state = policy.predict(observation, state, starts, deterministic=True, reward=-0.5 * time)
        np.testing.assert_array_equal(action, expected.act(observation, -0.5 * time, deterministic=True))
    with pytest.raises(yamame.UserError, match="earlier states"):
        policy.predict(observations[0], state - 1)
    expected.reset()
    action, _ = policy.predict(observations[0], deterministic=True)
    np.testing.assert_array_equal(action, expected.act(observations[0], deterministic=True))


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("which", ["dial", "maze"])
def test_a_loaded_policy_acts_as_it_did_in_training(
    which: str, deterministic: bool, request: pytest.FixtureRequest
) -> None:
    run: yamame.Run = request.getfixturevalue(which)
    assert run.config is not None
    agent = load_trained_run(run.directory).model
    trials = run.config.env.build(1, 11)
    policy = NetworkPolicy(agent, num_envs=1, generator=torch.Generator().manual_seed(0))
    explorer = Explorer(NoExploration(), trials.action_space, 1, np.random.default_rng(0))
    loaded = run.load()
    collector = Collector(trials, "", explorer)
    for trial in collect_trials(collector, policy, 3 * trials.horizon, deterministic=deterministic):
        loaded.reset()
        for time in range(len(trial)):
            leaves = {name: leaf[time] for name, leaf in trial.observation.items()}
            if "light" in leaves:
                leaves["light"] = leaves["light"] + 5
            action = loaded.act(
                leaves.get("observation", leaves),
                reward=trial.reward[time - 1] if time else 0.0,
                episode_start=trial.episode_start[time],
                deterministic=deterministic,
            )
            np.testing.assert_array_equal(action, to_env_action(trials.env_action_space, trial.action[time, None])[0])
    trials.close()


def test_what_cannot_be_loaded_or_seen(dial: yamame.Run, maze: yamame.Run) -> None:
    with pytest.raises(yamame.UserError, match="nowhere does not exist"):
        yamame.load("nowhere")
    with pytest.raises(yamame.UserError, match="pass at least 1"):
        yamame.load(maze.directory, num_envs=0)
    with pytest.raises(yamame.UserError, match=r"to have shape \(2,\), got \(3, 2\)"):
        maze.load().act(np.zeros((3, 2)))
    with pytest.raises(yamame.UserError, match=r"to have shape \(3, 2\), got \(2,\)"):
        maze.load(num_envs=3).act(np.zeros(2))
    with pytest.raises(yamame.UserError, match="to have shape"):
        dial.load(num_envs=2).act(stacked(episode(3, seed=0)))
