"""Whole runs of PPO: through both doors, killed and resumed to the bit, evaluated, loaded and exported."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from action_environments import LegalMoves, ReachPoint, RepeatPair, RepeatParts
from killed_runs import Killed, killed_at, outcome, start, train
from tiny import TINY_NETWORK

import yamame
from yamame.algorithms.ppo.learner import PPO
from yamame.cli import main
from yamame.collect.collector import Collector
from yamame.errors import UserError
from yamame.metrics.registry import METRICS, read_metrics
from yamame.recipes import config_from_flags, config_from_overrides, load_recipe, with_algorithm
from yamame.run_config import RunConfig
from yamame.training.trainer import Trainer

pytestmark = pytest.mark.slow

NETWORK = {name: value for name, value in TINY_NETWORK.items() if "critic" not in name}
TINY: dict[str, Any] = {
    **NETWORK,
    "agent.value.hidden_sizes": (8,),
    "env_steps": 240,
    "num_envs": 4,
    "env_steps_per_iteration": 60,
    "learner.passes.minibatch_transitions": 16,
    "checkpoint.interval_seconds": 0.0,
    "eval": {"trials": 4, "final_trials": 8, "num_envs": 4, "interval_env_steps": 120},
}


def tiny_ppo(**changes: Any) -> RunConfig:
    recipe = with_algorithm(load_recipe("passive-tmaze"), "ppo")
    return config_from_overrides(recipe, [], {"env.horizon": 5, **TINY, **changes})


def test_killed_between_updates_and_while_acting_it_is_the_same_run(tmp_path: Path) -> None:
    config = tiny_ppo()
    undisturbed, disturbed = start(tmp_path / "one", config), start(tmp_path / "other", config)
    assert train(undisturbed, config)
    kills = 0
    for owner, name, count in ((PPO, "update", 3), (Collector, "step", 2), (PPO, "update", 9), (PPO, "update", 1)):
        with killed_at(owner, name, count):
            try:
                train(disturbed, config)
            except Killed:
                kills += 1
    assert kills == 4 and train(disturbed, config)
    assert outcome(disturbed, config) == outcome(undisturbed, config)


def test_trials_of_others_are_not_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    yamame.train("passive-tmaze", algorithm="ppo", run_dir=tmp_path / "run", quiet=True, **{"env.horizon": 5, **TINY})
    capsys.readouterr()
    assert main(["data", "import", str(tmp_path / "run"), "nowhere"]) == 2
    assert "trains with ppo, which learns from the newest trials of its own policy alone" in capsys.readouterr().err


def test_a_replay_that_is_too_small_for_an_iteration_ends_the_run_at_once(tmp_path: Path) -> None:
    config = tiny_ppo(**{"replay.capacity_trajectories": 6})  # of 12 trials an iteration
    run = start(tmp_path / "run", config)
    with pytest.raises(UserError, match=r"the replay is too small .* larger replay\.capacity_trajectories"):
        train(run, config)


def test_stopped_between_two_updates_it_goes_on_with_the_next_minibatch(tmp_path: Path) -> None:
    """A signal ends an iteration between updates, and the checkpoint has the progress through its passes."""
    config = tiny_ppo()
    undisturbed, disturbed = start(tmp_path / "one", config), start(tmp_path / "other", config)
    assert train(undisturbed, config)
    original, seen = PPO.update, []

    def update(self: PPO, batch: Any) -> Any:
        metrics = original(self, batch)
        seen.append(self.trials.is_open)
        if len(seen) == 5:
            import signal

            signal.raise_signal(signal.SIGTERM)
        return metrics

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PPO, "update", update)
        assert not train(disturbed, config)
    assert seen[-1], "in the middle of an iteration"
    assert train(disturbed, config)
    assert outcome(disturbed, config) == outcome(undisturbed, config)


@pytest.mark.parametrize("env", [RepeatPair, RepeatParts, ReachPoint, LegalMoves])
def test_every_kind_of_action_trains_evaluates_loads_and_resumes(env: Any, tmp_path: Path) -> None:
    run = yamame.train(env, algorithm="ppo", run_dir=tmp_path / "run", quiet=True, **{"env.num_workers": 0, **TINY})
    assert run.result is not None and run.result["updates"] > 8
    policy = run.load()
    observation, _ = env().reset(seed=0)
    if env is not LegalMoves and env is not RepeatParts:
        policy.act(observation)
    assert run.evaluate(trials=4)["trials"] == 4
    resumed = yamame.resume(run.directory, env_steps=300, env_fn=env, quiet=True)
    assert resumed.result is not None and resumed.result["updates"] > run.result["updates"]


def test_metrics_are_in_the_table(tmp_path: Path) -> None:
    yamame.train("passive-tmaze", algorithm="ppo", run_dir=tmp_path / "run", quiet=True, **{"env.horizon": 5, **TINY})
    logged = {name for row in read_metrics(tmp_path / "run") for name in row}
    known = {metric.key for metric in METRICS}
    assert {"loss/policy", "loss/value", "actor/kl", "actor/entropy", "critic/explained_variance"} <= logged
    assert {name for name in logged if name.startswith(("loss/", "actor/", "critic/"))} <= known


def test_an_exported_policy_is_the_policy(tmp_path: Path) -> None:
    run = yamame.train(
        "passive-tmaze", algorithm="ppo", run_dir=tmp_path / "run", quiet=True, **{"env.horizon": 5, **TINY}
    )
    run.export(tmp_path / "policy.pt2")
    assert (tmp_path / "policy.pt2").exists()


def test_values_are_those_of_a_whole_pass(tmp_path: Path) -> None:
    run = yamame.train(
        "passive-tmaze", algorithm="ppo", run_dir=tmp_path / "run", quiet=True, **{"env.horizon": 5, **TINY}
    )
    trainer = Trainer(run.config, run.directory, resume=True)
    try:
        algorithm, replay = trainer.algorithm, trainer.components.replay
        assert isinstance(algorithm, PPO)
        algorithm.trials.load_state_dict({**algorithm.trials.state_dict(), "first": 0})
        algorithm.trials.open(replay.store)
        with torch.no_grad():
            values = algorithm._predict_trials(replay)[1]
        trial = replay.store.get(0)
        function = run.config.algorithm.value_function(algorithm.model, num_envs=1)
        from yamame.data.step import PolicyInput

        for time in range(len(trial) + 1):
            before = time - 1
            step = PolicyInput(
                time=np.array([time]),
                observation={name: leaf[time : time + 1].copy() for name, leaf in trial.observation.items()},
                previous_action=trial.action[before : before + 1].copy() if time else np.zeros_like(trial.action[:1]),
                previous_reward=trial.reward[before : before + 1].copy() if time else np.zeros(1, np.float32),
                episode_start=trial.episode_start[time : time + 1].copy(),
            )
            assert function.step(step)[0, 0] == pytest.approx(float(values[0][time]), abs=1e-4)
    finally:
        trainer.close()


def test_through_the_command_line_with_the_settings_of_other_projects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--env.horizon", "5", "--env-steps", "60", "--num-envs", "4", "--env-steps-per-iteration", "20"]
    flags += ["--size", "tiny", "--variant", "rl2-grid-navi", "--run-dir", str(tmp_path / "run"), "--quiet", "--json"]
    assert main(["train", "passive-tmaze", "--algorithm", "ppo", "--eval.final-trials", "4", *flags]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["updates"] > 0
    assert main(["train", "passive-tmaze", "--algorithm", "ppo", "--learner.td.weight", "1", *flags]) == 2
    assert "unknown flag --learner.td.weight" in capsys.readouterr().err
    config = config_from_flags(with_algorithm(load_recipe("passive-tmaze"), "ppo"), ["rl2-half-cheetah"], [])
    assert (config.env_steps_per_iteration, config.algorithm.learner.clip) == (6400, 0.1)
    with pytest.raises(UserError, match="requires --algorithm ppo, not amago"):
        config_from_flags(load_recipe("passive-tmaze"), ["rl2-half-cheetah"], [])


def test_deterministic_actions_are_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--deterministic-actions", "--run-dir", str(tmp_path / "run"), "--quiet"]
    assert main(["train", "passive-tmaze", "--algorithm", "ppo", *flags]) == 2
    assert "learns from samples, turn it off" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_collecting_in_a_second_thread_lags_one_iteration(tmp_path: Path) -> None:
    config = tiny_ppo(async_collection=True)
    assert train(start(tmp_path / "run", config), config)
    rows = [row for row in read_metrics(tmp_path / "run") if "actor/staleness" in row]
    assert rows and any(row["actor/staleness"] > 0 for row in rows)
