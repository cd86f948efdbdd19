"""A whole run in an environment that fails at every twentieth step: it goes on to its end, and learns."""

import json
from pathlib import Path

import pytest
from failing_environments import UnreliableRecall

import yamame
from yamame.run.metrics import read_metrics

NETWORK = {
    "agent.timestep_encoder": {"hidden": (32,), "width": 32},
    "agent.trajectory_encoder": {"width": 32, "layers": 1, "heads": 2, "feedforward": 64},
    "agent.actor.hidden": (32,),
    "agent.critic.hidden": (32,),
}


@pytest.mark.slow
@pytest.mark.parametrize("on_fault", ["drop", "cut"])
def test_a_run_survives_and_learns(on_fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluation = {"trials": 32, "final_trials": 200, "num_envs": 16, "every_env_steps": 2_000}
    run = yamame.train(
        UnreliableRecall,
        horizon=3,
        env_steps=6_000,
        seed=0,
        run_dir=tmp_path / "run",
        faults={"on_fault": on_fault},
        evaluation=evaluation,
        **NETWORK,
    )
    assert run.summary["return_mean"] > 0.9 and run.summary["env_steps"] == 6_000
    assert run.summary["trials"] == 200
    last = read_metrics(tmp_path / "run")[-1]
    kinds = {key: value for key, value in last.items() if key.startswith("faults/")}
    assert set(kinds) == {"faults/restarts", "faults/raised", "faults/not_finite", "faults/wrong_shape"}
    assert kinds["faults/restarts"] == sum(kinds.values()) / 2 == pytest.approx(0.05 * 6_000, rel=0.25)
    assert json.loads((tmp_path / "run/config.json").read_text())["faults"]["on_fault"] == on_fault
    told = [line for line in capsys.readouterr().err.splitlines() if "begun anew" in line]
    assert 5 <= len(told) < 40
