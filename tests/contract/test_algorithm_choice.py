"""`--algorithm NAME`: algorithms are folders, whose settings take the place of a recipe's."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bandit_algorithm import ContextualBandit

import yamame
from yamame import algorithms
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.selection import algorithm_config, available_algorithms
from yamame.cli import main
from yamame.collect.exploration import NoExploration
from yamame.config.flags import list_flags
from yamame.config.serialization import from_json, to_json
from yamame.errors import UserError
from yamame.recipes import config_from_flags, load_recipe, make_metadata, own_recipe, with_algorithm
from yamame.run_config import RunConfig
from yamame.training.run_files import read_metadata

TOY_FILE = """
from dataclasses import dataclass

from bandit_algorithm import BanditConfig
from yamame.algorithms.networks import NetworksConfig
from yamame.collect.exploration import NoExploration


@dataclass(frozen=True, kw_only=True)
class ToyConfig(BanditConfig):
    '''The bandit under another name.'''

    agent: NetworksConfig = NetworksConfig()
    decay_env_steps: int = 0

    def run_settings(self, recipe, env, *, env_steps):
        return {
            "agent": self.agent.like(recipe.agent),
            "decay_env_steps": env_steps,
            "exploration": NoExploration(),
            "num_envs": 6,
            "updates_per_env_step": 0.1,
        }
"""
"""`config.py` of an algorithm."""


@pytest.fixture
def toy_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`toy/` as if it lay in the folder of algorithms."""
    folder = tmp_path / "found" / "toy"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("", encoding="utf-8")
    (folder / "config.py").write_text(TOY_FILE, encoding="utf-8")
    monkeypatch.setattr(algorithms, "__path__", [*algorithms.__path__, str(folder.parent)])
    yield
    for name in ("toy.config", "toy"):
        sys.modules.pop(f"yamame.algorithms.{name}", None)
    vars(algorithms).pop("toy", None)


def toy_config(*flags: str, recipe: str = "passive-tmaze") -> RunConfig:
    return config_from_flags(with_algorithm(load_recipe(recipe), "toy"), [], flags)


def test_algorithms_are_folders() -> None:
    assert "amago" in available_algorithms() and "base" not in available_algorithms()
    assert algorithm_config("amago") == AMAGOConfig()
    with pytest.raises(UserError, match=r"unknown algorithm 'dqn': choose among amago"):
        algorithm_config("dqn")


def test_a_new_folder_is_a_new_algorithm(toy_folder: None) -> None:
    own, config = load_recipe("passive-tmaze").make_config(load_recipe("passive-tmaze").env), toy_config()
    assert "toy" in available_algorithms() and type(config.algorithm).__name__ == "ToyConfig"
    assert (config.num_envs, config.updates_per_env_step, config.exploration) == (6, 0.1, NoExploration())
    assert isinstance(own.algorithm, AMAGOConfig)
    assert config.algorithm.agent.trajectory_encoder == own.algorithm.agent.trajectory_encoder
    assert (config.env, config.env_steps, config.context_length, config.eval) == (
        own.env,
        own.env_steps,
        own.context_length,
        own.eval,
    )
    assert from_json(RunConfig, json.loads(json.dumps(to_json(config)))) == config


def test_flags_of_its_fields_have_no_prefix_and_precede_its_settings(toy_folder: None) -> None:
    config = toy_config("--learning-rate", "0.5", "--num-envs", "3", "--env-steps", "700", "--env.horizon", "5")
    assert (config.algorithm.learning_rate, config.num_envs, config.env_steps) == (0.5, 3, 700)
    assert config.algorithm.decay_env_steps == 700, "the number of steps is known to the algorithm"
    assert {"--learning-rate", "--agent.actor.hidden-sizes"} <= set(list_flags(config))
    with pytest.raises(UserError, match=r"unknown flag --learner\.tau"):
        toy_config("--learner.tau", "0.1")


def test_size_and_model_apply_to_its_networks(toy_folder: None) -> None:
    recipe = with_algorithm(load_recipe("passive-tmaze"), "toy")
    agent = config_from_flags(recipe, ["gru"], [], size="tiny").algorithm.agent
    assert type(agent.trajectory_encoder).__name__ == "GRUConfig" and agent.actor.hidden_sizes == (64, 64)
    assert agent.timestep_encoder.output_size == 32
    with pytest.raises(UserError, match="requires --algorithm amago, not toy"):
        config_from_flags(recipe, ["no-popart"], [])


def test_the_algorithm_of_the_recipe_changes_nothing() -> None:
    recipe = load_recipe("passive-tmaze")
    assert with_algorithm(recipe, "amago") is recipe and with_algorithm(recipe, None) is recipe


def test_the_metadata_names_it_and_no_result_is_expected(toy_folder: None) -> None:
    recipe = with_algorithm(load_recipe("passive-tmaze"), "toy")
    metadata = make_metadata(recipe, config_from_flags(recipe, [], ["--learning-rate", "0.5"]))
    assert metadata.overrides == {"algorithm": (None, "toy"), "learning_rate": (0.3, 0.5)}
    assert metadata.expected == ""


@pytest.mark.slow
def test_a_run_through_python_and_its_resumption(toy_folder: None, tmp_path: Path) -> None:
    settings = {"env_steps": 240, "eval": {"final_trials": 4}, "env": {"num_workers": 0}, "quiet": True}
    run = yamame.train(ContextualBandit, horizon=4, algorithm="toy", run_dir=tmp_path / "run", **settings)
    assert run.result is not None and run.result["updates"] == 24
    assert type(yamame.open(run.directory, modules=["bandit_algorithm"]).config.algorithm).__name__ == "ToyConfig"
    assert read_metadata(run.directory).overrides["algorithm"] == (None, "toy")
    resumed = yamame.resume(run.directory, env_steps=480, env_fn=ContextualBandit, quiet=True)
    assert resumed.result is not None and resumed.result["updates"] == 48


@pytest.mark.slow
def test_a_run_through_the_command_line(toy_folder: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = ["--env", "bandit_algorithm:ContextualBandit", "--env.horizon", "4", "--env.num-workers", "0"]
    flags = ["--env-steps", "240", "--eval.final-trials", "4", "--run-dir", str(tmp_path / "run"), "--quiet", "--json"]
    assert main(["train", *env, "--algorithm", "toy", *flags]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["updates"] == 24
    assert "--algorithm toy" in read_metadata(tmp_path / "run").command
    assert main(["resume", str(tmp_path / "run"), "--env-steps", "480", "--import", "bandit_algorithm", "--quiet"]) == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--algorithm", "dqn"], "unknown algorithm 'dqn': choose among amago"),
        (["--algorithm", "toy", "--learner.tau", "0.1"], "unknown flag --learner.tau"),
        (["--algorithm", "toy", "--variant", "naive"], "requires --algorithm amago, not toy"),
    ],
)
def test_bad_choices_are_one_line(
    toy_folder: None, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "passive-tmaze", *flags, "--quiet"]) == 2
    output = capsys.readouterr()
    assert message in output.err and output.err.count("\n") == 1 and output.out == ""


def test_help_shows_the_fields_of_the_algorithm(toy_folder: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "passive-tmaze", "--algorithm", "toy", "--help-all"]) == 0
    shown = capsys.readouterr().out
    assert "--algorithm NAME" in shown and "--learning-rate" in shown and "--learner.tau" not in shown


def test_a_config_or_fields_of_the_algorithm_in_python(tmp_path: Path) -> None:
    recipe = own_recipe(yamame.envs.env_fn.env_config(ContextualBandit, horizon=4, attempts=1))
    assert isinstance(recipe.make_config(recipe.env).algorithm, AMAGOConfig)
    run = yamame.train(
        ContextualBandit,
        horizon=4,
        algorithm={"learner": {"tau": 0.5}},
        size="tiny",
        env={"num_workers": 0},
        env_steps=64,
        run_dir=tmp_path / "run",
        eval={"final_trials": 4, "interval_env_steps": 0, "choose_policy": False},
        quiet=True,
    )
    assert run.config.algorithm.learner.tau == 0.5
