"""Whole runs of variBAD: killed and resumed to the bit, through both doors, evaluated, loaded and exported."""

import json
from pathlib import Path
from typing import Any

import pytest
from action_environments import LegalMoves, ReachPoint
from killed_runs import Killed, killed_at, outcome, start, train

import yamame
from yamame.algorithms.varibad.learner import VariBAD
from yamame.algorithms.varibad.vae import BeliefLearner
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
    "env_steps": 120,
    "num_envs": 4,
    "env_steps_per_iteration": 40,
    "learner.passes.minibatch_transitions": 16,
    "learner.passes.epochs": 2,
    "learner.trials_per_vae_batch": 3,
    "checkpoint.interval_seconds": 0.0,
    "eval": {"trials": 4, "final_trials": 4, "num_envs": 4, "interval_env_steps": 60},
}


def test_killed_and_stopped_between_updates_of_the_belief_it_is_the_same_run(tmp_path: Path) -> None:
    """A signal ends the updates between two of the belief: the checkpoint has how many are left."""
    recipe = with_algorithm(load_recipe("passive-tmaze"), "varibad")
    config = config_from_overrides(recipe, [], {"env.horizon": 5, **TINY})
    undisturbed, disturbed = start(tmp_path / "one", config), start(tmp_path / "other", config)
    assert train(undisturbed, config)
    original, left = BeliefLearner.update, []

    def update(self: BeliefLearner, batch: Any) -> Any:
        metrics = original(self, batch)
        left.append(self.num_updates)
        if len(left) == 2:
            import signal

            signal.raise_signal(signal.SIGTERM)
        return metrics

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BeliefLearner, "update", update)
        assert not train(disturbed, config)
    assert left == [1, 2], "of three"
    kills = 0
    for owner, name, count in ((BeliefLearner, "update", 1), (Collector, "step", 2), (VariBAD, "update", 3)):
        with killed_at(owner, name, count):
            try:
                train(disturbed, config)
            except Killed:
                kills += 1
    assert kills == 3 and train(disturbed, config)
    assert outcome(disturbed, config) == outcome(undisturbed, config)


@pytest.mark.parametrize("env", [ReachPoint, LegalMoves])
def test_other_actions_train_evaluate_load_and_resume(env: Any, tmp_path: Path) -> None:
    settings = {"env.num_workers": 0, **TINY}
    run = yamame.train(env, algorithm="varibad", run_dir=tmp_path / "run", quiet=True, **settings)
    assert run.result is not None and run.result["updates"] > 8
    assert run.evaluate(trials=4)["trials"] == 4
    resumed = yamame.resume(run.directory, env_steps=160, env_fn=env, quiet=True)
    assert resumed.result is not None and resumed.result["updates"] > run.result["updates"]
    logged = {name for row in read_metrics(run.directory) for name in row}
    assert {"loss/policy", "loss/reconstruction", "loss/belief_kl", "optim/grad_norm_belief"} <= logged
    groups = ("loss/", "actor/", "critic/", "optim/")
    assert {name for name in logged if name.startswith(groups)} <= {metric.key for metric in METRICS}


def test_through_the_command_line_exported_and_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--env.horizon", "5", "--env-steps", "60", "--num-envs", "4", "--env-steps-per-iteration", "20"]
    flags += ["--size", "tiny", "--model", "transformer", "--run-dir", str(tmp_path / "run"), "--quiet", "--json"]
    flags += ["--learner.max-decoded-steps", "2", "--variant", "rl2-grid-navi", "--eval.final-trials", "4"]
    assert main(["train", "passive-tmaze", "--algorithm", "varibad", *flags]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["updates"] > 0
    run = yamame.open(tmp_path / "run")
    run.export(tmp_path / "policy.pt2")
    assert (tmp_path / "policy.pt2").exists() and type(run.config.algorithm.agent.trajectory_encoder).__name__ == (
        "TransformerConfig"
    )
    assert main(["train", "passive-tmaze", "--algorithm", "varibad", "--learner.kl-weight", "-1", *flags]) == 2
    assert "kl_weight" in capsys.readouterr().err.replace("-", "_")
    assert main(["train", "passive-tmaze", "--algorithm", "ppo", "--learner.kl-weight", "1", *flags]) == 2
    assert "unknown flag --learner.kl-weight" in capsys.readouterr().err
