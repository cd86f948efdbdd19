"""The `Algorithm` seam: an algorithm in one file trains, resumes, evaluates and shows in the viewer."""

from collections.abc import Iterator
from contextvars import Context
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bandit_algorithm import BanditConfig, ContextualBandit
from on_policy_bandit import OnPolicyConfig

from yamame.collect.exploration import NoExploration
from yamame.config.named_code import caller_modules
from yamame.data.sampler import ReplayConfig
from yamame.data.verify import iter_valid_trajectories
from yamame.envs.env_fn import EnvFnConfig
from yamame.errors import UserError
from yamame.metrics.registry import read_metrics
from yamame.run_config import EvalConfig, RunConfig
from yamame.tools.export.policy import export_policy
from yamame.tools.figures import activations, attention, q_by_gamma
from yamame.tools.trial_recording import record_trial
from yamame.tools.viewer.recording_json import UniqueFrames, recording_to_json
from yamame.training import start as runs
from yamame.training.run_files import RunMetadata, random_baseline_return, read_config
from yamame.training.trained_run import load_trained_run

MODULES = ["bandit_algorithm"]
CONFIG = RunConfig(
    env=EnvFnConfig(env_fn=ContextualBandit, horizon=4, num_workers=0),
    num_envs=8,
    env_steps=2_000,
    algorithm=BanditConfig(),
    replay=ReplayConfig(batch_size=16),
    updates_per_env_step=0.05,
    eval=EvalConfig(trials=32, final_trials=32, num_envs=8),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of the algorithm, with its config readable."""
    directory = tmp_path_factory.mktemp("bandit") / "run"
    result = runs.train_run(CONFIG, RunMetadata(recipe="bandit"), run_dir=directory, quiet=True)
    assert result["updates"] == 100
    with caller_modules(MODULES):
        yield directory


def test_it_learns(run: Path) -> None:
    result = load_trained_run(run).evaluate(trials=64, seed=3)
    baseline = random_baseline_return(run)
    assert baseline is not None and baseline < 2.0
    assert result["return_mean"] > 2.8


def test_its_config_is_read_only_with_its_module_named(run: Path) -> None:
    assert read_config(run).algorithm == BanditConfig()
    with pytest.raises(UserError, match="--import bandit_algorithm"):
        Context().run(read_config, run)


def test_extras_reach_the_stored_trajectories(run: Path) -> None:
    trajectory = next(iter(iter_valid_trajectories(run / "replay", None)))
    assert set(trajectory.extras) == {"log_prob"}
    assert trajectory.extras["log_prob"].shape == (len(trajectory),)
    assert (trajectory.extras["log_prob"] < 0).all()


def test_it_resumes(run: Path) -> None:
    before = load_trained_run(run).model
    result = runs.resume_run(run, env_steps=2_400, quiet=True)
    assert result["updates"] == 120
    after = load_trained_run(run).model
    assert not torch.equal(before.get_parameter("weight"), after.get_parameter("weight"))


def test_it_shows_in_the_viewer_without_analysis(run: Path) -> None:
    recording = record_trial(load_trained_run(run), seed=0)
    assert recording.analysis is None and len(recording) == 4
    shown = recording_to_json(recording, UniqueFrames.from_recording(recording))
    assert shown["analysis"] is None and len(shown["reward"]) == 4


def test_without_analysis_figures_and_export_say_so_in_a_line(run: Path, tmp_path: Path) -> None:
    for draw, options, message in (
        (q_by_gamma.draw, q_by_gamma.Options(), "needs an algorithm with an analysis"),
        (attention.draw, attention.Options(), "needs a run with a Transformer"),
        (activations.draw, activations.Options(), "needs a run with a Transformer"),
    ):
        with pytest.raises(UserError, match=message):
            draw([run], options)
    with pytest.raises(UserError, match="BanditConfig cannot be exported"):
        export_policy(load_trained_run(run), tmp_path / "policy.pt2")


def test_an_algorithm_on_policy(tmp_path: Path) -> None:
    """Each iteration learns from its own trajectories alone, in epochs: only the first update is by their policy."""
    config = replace(
        CONFIG, algorithm=OnPolicyConfig(), exploration=NoExploration(), env_steps=320, updates_per_env_step=0.25
    )
    runs.train_run(config, RunMetadata(recipe="bandit"), run_dir=tmp_path / "run", quiet=True)
    metrics = read_metrics(tmp_path / "run")
    assert [row["updates"] for row in metrics] == list(range(8, 81, 8))  # 32 steps of 8 trials an iteration
    assert all(row["log_ratio/first_batch"] < 1e-5 < row["log_ratio/later_batches"] for row in metrics)
    assert all(row["batch/transitions"] == 8 for row in metrics)  # two of the trials
