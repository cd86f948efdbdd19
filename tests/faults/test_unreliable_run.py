"""A whole run in an environment that fails at every twentieth step: it finishes, and its returns improve."""

from pathlib import Path
from typing import Any

import pytest
from failing_environments import UnreliableRecall

import yamame
from yamame.metrics.registry import read_metrics

SMALL: dict[str, Any] = {
    "agent.timestep_encoder": {"hidden_sizes": (16,), "output_size": 16},
    "agent.trajectory_encoder": {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32},
    "agent.actor.hidden_sizes": (16,),
    "agent.critic.hidden_sizes": (16,),
    "learner.learning_rate": 3e-3,
    "replay.batch_size": 16,
    "updates_per_env_step": 0.25,
}


@pytest.mark.slow
def test_a_run_survives_and_learns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = yamame.train(
        UnreliableRecall,
        horizon=2,
        num_envs=8,
        env_steps=2_400,
        seed=0,
        run_dir=tmp_path / "run",
        eval={"trials": 16, "final_trials": 100, "num_envs": 16, "interval_env_steps": 0},
        **SMALL,
    )
    assert run.result["return_mean"] > 0.9 and run.result["trials"] == 100
    assert run.result["env_steps"] >= 2_400
    last = read_metrics(tmp_path / "run")[-1]
    counts = {key: value for key, value in last.items() if key.startswith("faults/")}
    assert set(counts) == {"faults/restarts", "faults/exception", "faults/nonfinite", "faults/shape_mismatch"}
    assert counts["faults/restarts"] == sum(counts.values()) / 2
    assert 70 < counts["faults/restarts"] < 180  # 120 are expected
    printed = [line for line in capsys.readouterr().err.splitlines() if "(restart " in line]
    assert 5 <= len(printed) < 50, "a few for training and for each of the five evaluations at its end"
