"""Evaluations: fixed tasks, separate ones for selection and for results, and test tasks where there are some."""

import itertools
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tiny import tiny_config
from torch import nn

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.data.step import PolicyInput
from yamame.envs.base import TrialVectorEnv
from yamame.envs.tmaze import PassiveTMazeConfig, TMazeVectorEnv
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError
from yamame.metrics.registry import read_metrics
from yamame.policy.loaded import LoadedPolicy
from yamame.recipes.settings.presets import amago_config, replace_agent_fields
from yamame.run_config import RunConfig
from yamame.runs.directory import BEST
from yamame.tools.trial_recording import record_trial
from yamame.tools.video import record_video
from yamame.training import run_evaluations
from yamame.training.evaluate import EVALUATION_SEED, SELECTION_SEED, EvalReport
from yamame.training.run_files import RunMetadata, read_result
from yamame.training.start import resume_run, train_run
from yamame.training.trained_run import load_trained_run

pytestmark = pytest.mark.slow


@dataclass(frozen=True, kw_only=True)
class SplitMazeConfig(PassiveTMazeConfig):
    """Training tasks with penalties nine times as high as test tasks."""

    held_out: bool = False

    def eval_config(self) -> "SplitMazeConfig":
        return SplitMazeConfig(horizon=self.horizon, held_out=True)

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        mazes = TMazeVectorEnv(num_envs, horizon=self.horizon, penalty=0.1 if self.held_out else 0.9)
        return TrialWrapper(GymnasiumVectorAdapter(mazes, seed), horizon=self.max_trial_steps, attempts=1)


def test_evaluations_have_fixed_tasks_and_selection_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met: dict[int, list[np.ndarray]] = {}
    original = TMazeVectorEnv.reset

    def reset(self: TMazeVectorEnv, **arguments: object) -> object:
        answer = original(self, **arguments)  # type: ignore[arg-type]
        met.setdefault(id(self), []).append(self.goal.copy())
        kept.append(self)
        return answer

    kept: list[TMazeVectorEnv] = []  # so that no id is used twice
    monkeypatch.setattr(TMazeVectorEnv, "reset", reset)
    evaluation = {"trials": 16, "final_trials": 32, "num_envs": 16, "interval_env_steps": 100, "stop_return": None}
    config = tiny_config(eval=evaluation, num_envs=8)
    train_run(config, RunMetadata(recipe="x"), run_dir=tmp_path / "run", quiet=True)
    load_trained_run(tmp_path / "run").evaluate(trials=None, seed=None)
    goals = [trials for trials in met.values() if len(trials[0]) == 16]
    assert len(goals) >= 5  # random actions, three during training, the final one, and `yamame eval`
    random_actions, *selection, final, evaluated = goals
    for first, others in ((random_actions, (final, evaluated)), (selection[0], selection[1:])):
        for trials in others:
            for one, other in zip(first, trials, strict=False):
                np.testing.assert_array_equal(one, other)
    assert (random_actions[0] != selection[0][0]).any()
    assert 0 < np.sum(goals[0][0] == 1) < 16


def test_training_tasks_choose_the_best_checkpoint_and_when_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Returns rise on training tasks and fall on test tasks."""
    evaluations = itertools.count(1)
    original = run_evaluations.evaluate_model

    def evaluate_model(config: RunConfig, model: nn.Module, *, seed: int, **options: Any) -> EvalReport:
        report = original(config, model, seed=seed, **options)
        assert report.train_tasks is not None
        if seed != SELECTION_SEED:
            return report
        number = next(evaluations)
        return EvalReport(
            test=replace(report.test, return_mean=float(-number)),
            train_tasks=replace(report.train_tasks, return_mean=float(number)),
        )

    monkeypatch.setattr(run_evaluations, "evaluate_model", evaluate_model)
    config = tiny_config(env=SplitMazeConfig(horizon=3))
    train_run(config, RunMetadata(recipe="x"), run_dir=tmp_path / "run", quiet=True)
    assert next(evaluations) > 3
    last = [line for line in read_metrics(tmp_path / "run") if "eval/return_mean" in line][-1]
    (checkpoint,) = (tmp_path / "run" / BEST).iterdir()
    assert checkpoint.name == f"update-{int(last['updates']):09d}"

    stopped = tiny_config(env=SplitMazeConfig(horizon=3), eval=replace(config.eval, stop_return=5.0))
    evaluations = itertools.count(4)
    assert train_run(stopped, RunMetadata(recipe="x"), run_dir=tmp_path / "stopped", quiet=True)["env_steps"] < 400


@pytest.mark.parametrize(("policy_index", "mode_is_better"), [(0, True), (-1, True), (0, False), (-1, False)])
def test_training_tasks_choose_how_the_trained_policy_acts(
    policy_index: int, mode_is_better: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the end, evaluations act as in training; test tasks, on which other ways are better, do not count."""
    original = run_evaluations.evaluate_model
    calls: list[tuple[int, int, bool]] = []

    def evaluate_model(config: RunConfig, model: nn.Module, *, seed: int, **options: Any) -> EvalReport:
        report = original(config, model, seed=seed, **options)
        assert report.train_tasks is not None
        index = amago_config(config).agent.evaluation_gamma_index
        calls.append((seed, index, config.deterministic_actions))
        better = float(config.deterministic_actions == mode_is_better) + float(index == policy_index)
        return EvalReport(
            test=replace(report.test, return_mean=-better), train_tasks=replace(report.train_tasks, return_mean=better)
        )

    monkeypatch.setattr(run_evaluations, "evaluate_model", evaluate_model)
    config = tiny_config(env=SplitMazeConfig(horizon=3), deterministic_actions=False)
    config = replace_agent_fields(
        replace(config, eval=replace(config.eval, choose_policy=True)), evaluation_gamma_index=0
    )
    run = tmp_path / "run"
    result = train_run(config, RunMetadata(recipe="x"), run_dir=run, quiet=True)
    others = range(len(amago_config(config).agent.all_gammas(spaces.Discrete(2))) - 1)
    choice = [-1, *others, policy_index]
    *before, final = calls
    before, chosen = before[: -len(choice)], before[-len(choice) :]
    assert len(before) > 2 and set(before) == {(SELECTION_SEED, -1, False)}
    assert [(seed, index) for seed, index, _ in chosen] == [(SELECTION_SEED, index) for index in choice]
    assert [mode for _, _, mode in chosen] == [False] * (len(choice) - 1) + [True]
    assert final == (EVALUATION_SEED, policy_index, mode_is_better)
    assert (result["policy_index"], result["deterministic_actions"]) == (policy_index, mode_is_better)
    acted: list[tuple[int, bool]] = []
    act, build = NetworkPolicy.act, NetworkPolicy.__init__
    index_of: dict[int, int] = {}

    def record_index(self: NetworkPolicy, agent: Agent, *, gamma_index: int = -1, **options: Any) -> None:
        index_of[id(self)] = gamma_index
        build(self, agent, gamma_index=gamma_index, **options)

    def record_act(self: NetworkPolicy, step: PolicyInput, *, deterministic: bool = False) -> np.ndarray:
        acted.append((index_of[id(self)], deterministic))
        return act(self, step, deterministic=deterministic)

    with monkeypatch.context() as patched:
        patched.setattr(NetworkPolicy, "__init__", record_index)
        patched.setattr(NetworkPolicy, "act", record_act)
        trained = load_trained_run(run, config=config)
        LoadedPolicy.from_run(trained, num_envs=None).act(trained.task.observation_space.sample())
        trained.evaluate(trials=1, seed=None)
        assert record_trial(trained, frames=False).deterministic == mode_is_better
    assert len(acted) > 2 and set(acted) == {(policy_index, mode_is_better)}

    acted.clear()
    with monkeypatch.context() as patched:
        patched.setattr(NetworkPolicy, "__init__", record_index)
        patched.setattr(NetworkPolicy, "act", record_act)
        record_video(trained, tmp_path / "trial.gif")
    assert acted and set(acted) == {(policy_index, True)}, "videos show the mode"

    calls.clear()
    resume_run(run, env_steps=800, quiet=True, config=config)
    assert calls[0] == (SELECTION_SEED, -1, False), "the longer run chooses again"
    assert [index for _, index, _ in calls[-len(choice) - 1 :]] == [*choice, policy_index]


def test_a_run_that_trains_with_the_mode_keeps_it(tmp_path: Path) -> None:
    config = tiny_config(deterministic_actions=True)
    config = replace(config, eval=replace(config.eval, choose_policy=True))
    assert train_run(config, RunMetadata(recipe="x"), run_dir=tmp_path / "run", quiet=True)["deterministic_actions"]


def test_a_signal_while_the_way_of_acting_is_chosen_leaves_it_to_the_resumed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = run_evaluations.evaluate_model

    def evaluate_model(config: RunConfig, model: nn.Module, *, seed: int, **options: Any) -> EvalReport:
        report = original(config, model, seed=seed, **options)
        if config.deterministic_actions:
            os.kill(os.getpid(), signal.SIGINT)
        return replace(report, test=replace(report.test, return_mean=float(config.deterministic_actions)))

    monkeypatch.setattr(run_evaluations, "evaluate_model", evaluate_model)
    config = tiny_config(deterministic_actions=False)
    config = replace(config, eval=replace(config.eval, choose_policy=True))
    assert train_run(config, RunMetadata(recipe="x"), run_dir=tmp_path / "run", quiet=True)["stopped_by"] == "SIGINT"
    monkeypatch.setattr(os, "kill", lambda *_: None)
    assert resume_run(tmp_path / "run", env_steps=None, quiet=True)["deterministic_actions"]


def test_test_tasks_and_training_tasks_are_evaluated_separately(tmp_path: Path) -> None:
    config = tiny_config(env=SplitMazeConfig(horizon=3))
    summary = train_run(config, RunMetadata(recipe="x"), run_dir=tmp_path / "run", quiet=True)
    training_tasks = summary["train_tasks"]
    assert set(training_tasks) < set(summary)
    assert training_tasks["trials"] == summary["trials"] == 16
    # same seed, same mazes, same random choices: only the penalty differs, unless there is nothing to be punished for
    assert training_tasks["success_rate"] == summary["success_rate"]
    punished = summary["success_rate"] - summary["return_mean"]
    assert training_tasks["success_rate"] - training_tasks["return_mean"] == pytest.approx(9 * punished, abs=1e-4)
    lines = [line for line in read_metrics(tmp_path / "run") if "eval/return_mean" in line]
    assert lines and all("eval_train_tasks/return_mean" in line for line in lines)
    assert any(line["eval/return_mean"] > line["eval_train_tasks/return_mean"] for line in lines)
    evaluation = load_trained_run(tmp_path / "run", config=config).evaluate(trials=None, seed=None)
    assert evaluation["train_tasks"] == training_tasks


def test_a_task_without_test_tasks_has_one_evaluation(tmp_path: Path) -> None:
    summary = train_run(tiny_config(), RunMetadata(recipe="x"), run_dir=tmp_path / "run", quiet=True)
    assert summary["train_tasks"] is None
    assert not any(key.startswith("evaluate_training_tasks") for line in read_metrics(tmp_path / "run") for key in line)


def test_the_result_is_there_once_a_run_is_over_and_only_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    summary = train_run(tiny_config(), RunMetadata(recipe="x"), run_dir=run, quiet=True)
    assert read_result(run) == summary
    again = resume_run(run, env_steps=None, quiet=True)
    assert read_result(run) == again

    def die(*_: object, **__: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr("yamame.training.run_evaluations.evaluate_model", die)
        with pytest.raises(RuntimeError):
            resume_run(run, env_steps=800, quiet=True)
    assert read_result(run) is None
    assert resume_run(run, env_steps=None, quiet=True)["env_steps"] == 800
    assert read_result(run) is not None


@dataclass(frozen=True, kw_only=True)
class FailingMazeConfig(PassiveTMazeConfig):
    """Environments of evaluations fail in their first reset, as often as `failures` says."""

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        if seed == SELECTION_SEED and failures:
            raise failures.pop()
        return super().build(num_envs, seed)


failures: list[Exception] = []


def test_an_evaluation_whose_environments_fail_at_the_start_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yamame.envs.vector.faults.RETRY_DELAYS_SECONDS", (0.0, 0.0, 0.0))
    evaluation = {"trials": 8, "final_trials": 8, "num_envs": 8, "interval_env_steps": 100}
    config = tiny_config(eval=evaluation, num_envs=8)
    run = RunMetadata(recipe="x")
    undisturbed = train_run(config, run, run_dir=tmp_path / "undisturbed", quiet=True)
    failing = replace(config, env=FailingMazeConfig(**vars(config.env)))
    failures[:] = [ValueError("no license"), ConnectionError("no port")]
    result = train_run(failing, run, run_dir=tmp_path / "failing", quiet=True)
    assert not failures and result["return_mean"] == undisturbed["return_mean"]
    failures[:] = [ValueError("no license")] * 3
    with pytest.raises(UserError, match="the environments of an evaluation failed and could not be restarted after 3"):
        train_run(failing, run, run_dir=tmp_path / "never", quiet=True)
    assert (
        resume_run(tmp_path / "never", env_steps=None, quiet=True, config=failing)["return_mean"]
        == result["return_mean"]
    )
