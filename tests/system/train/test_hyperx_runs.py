"""Whole runs of HyperX: killed and resumed to the bit, through both doors, evaluated, loaded and exported."""

import json
from pathlib import Path
from typing import Any

import pytest
from action_environments import LegalMoves, ReachPoint
from killed_runs import Killed, killed_at, outcome, start, train

import yamame
from yamame.algorithms.hyperx.bonuses import ExplorationBonuses
from yamame.algorithms.hyperx.learner import HyperX
from yamame.cli import main
from yamame.collect.collector import Collector
from yamame.metrics.registry import METRICS, read_metrics
from yamame.recipes import config_from_overrides, load_recipe, with_algorithm

pytestmark = pytest.mark.slow

TINY: dict[str, Any] = {
    "agent.timestep_encoder": {"hidden_sizes": (8,), "output_size": 8},
    "agent.trajectory_encoder.d_model": 8,
    "agent.actor.hidden_sizes": (8,),
    "agent.value.hidden_sizes": (8,),
    "agent.present_size": 8,
    "agent.novelty.hidden_sizes": (16,),
    "env_steps": 120,
    "num_envs": 4,
    "env_steps_per_iteration": 40,
    "learner.passes.minibatch_transitions": 16,
    "learner.passes.epochs": 2,
    "learner.trials_per_vae_batch": 3,
    "learner.novelty_updates": 2,
    "checkpoint.interval_seconds": 0.0,
    "eval": {"trials": 4, "final_trials": 4, "num_envs": 4, "interval_env_steps": 60},
}


def test_killed_before_and_after_bonuses_and_between_updates_of_the_predictor_it_is_the_same_run(
    tmp_path: Path,
) -> None:
    recipe = with_algorithm(load_recipe("passive-tmaze"), "hyperx")
    config = config_from_overrides(recipe, [], {"env.horizon": 5, **TINY})
    undisturbed, disturbed = start(tmp_path / "one", config), start(tmp_path / "other", config)
    assert train(undisturbed, config)
    kills = 0
    for owner, name, count in (
        (ExplorationBonuses, "training_rewards", 1),
        (HyperX, "update", 2),
        (ExplorationBonuses, "update", 1),
        (ExplorationBonuses, "update", 2),
        (Collector, "step", 3),
        (ExplorationBonuses, "training_rewards", 2),
    ):
        with killed_at(owner, name, count):
            try:
                train(disturbed, config)
            except Killed:
                kills += 1
    assert kills == 6 and train(disturbed, config)
    assert outcome(disturbed, config) == outcome(undisturbed, config)


@pytest.mark.parametrize("env", [ReachPoint, LegalMoves])
def test_other_actions_train_evaluate_load_and_resume(env: Any, tmp_path: Path) -> None:
    settings = {"env.num_workers": 0, **TINY}
    run = yamame.train(env, algorithm="hyperx", run_dir=tmp_path / "run", quiet=True, **settings)
    assert run.result is not None and run.result["updates"] > 8
    assert run.evaluate(trials=4)["trials"] == 4
    resumed = yamame.resume(run.directory, env_steps=160, env_fn=env, quiet=True)
    assert resumed.result is not None and resumed.result["updates"] > run.result["updates"]
    logged = {name for row in read_metrics(run.directory) for name in row}
    assert {"loss/policy", "loss/reconstruction", "loss/novelty", "bonus/novelty", "bonus/reconstruction"} <= logged
    groups = ("loss/", "actor/", "critic/", "optim/", "bonus/")
    assert {name for name in logged if name.startswith(groups)} <= {metric.key for metric in METRICS}


def test_images_can_be_new_and_no_return_has_a_bonus(tmp_path: Path) -> None:
    import gymnasium
    import numpy as np
    from gymnasium import spaces

    class Pictures(gymnasium.Env[np.ndarray, int]):
        """Five steps of noise."""

        observation_space = spaces.Box(0, 255, (16, 16, 3), np.uint8)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            super().reset(seed=seed)
            return self.np_random.integers(0, 256, (16, 16, 3), np.uint8), {}

        def step(self, action: int) -> Any:
            return self.np_random.integers(0, 256, (16, 16, 3), np.uint8), float(action), False, False, {}

    settings = {**TINY, "env.num_workers": 0, "env_steps": 40, "learner.novelty_weight": 1e6}
    run = yamame.train(Pictures, horizon=5, algorithm="hyperx", run_dir=tmp_path / "run", quiet=True, **settings)
    rows = read_metrics(run.directory)
    assert rows[0]["bonus/novelty"] > 1000
    returns = [row[name] for row in rows for name in ("rollout/return_mean", "eval/return_mean") if name in row]
    assert returns and 0.0 <= min(returns) <= max(returns) <= 5.0


def test_through_the_command_line_exported_and_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--env.attempt-length", "8", "--env-steps", "96", "--num-envs", "4", "--env-steps-per-iteration", "32"]
    flags += ["--size", "tiny", "--run-dir", str(tmp_path / "run"), "--quiet", "--json", "--eval.final-trials", "4"]
    assert main(["train", "rooms", "--algorithm", "hyperx", "--learner.novelty-weight", "0.5", *flags]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["updates"] > 0
    run = yamame.open(tmp_path / "run")
    assert run.config.algorithm.learner.bonus_anneal_env_steps == 96
    run.export(tmp_path / "policy.pt2")
    assert (tmp_path / "policy.pt2").exists()
    assert main(["train", "rooms", "--algorithm", "hyperx", "--learner.bonus-clip", "0", *flags]) == 2
    assert "bonus_clip" in capsys.readouterr().err.replace("-", "_")
    assert main(["train", "rooms", "--algorithm", "varibad", "--learner.novelty-weight", "1", *flags]) == 2
    assert "unknown flag --learner.novelty-weight" in capsys.readouterr().err
