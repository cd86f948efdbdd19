"""Settings that let a run train nothing are named at its start."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_first_update import Endless, Ends, config

import yamame
from yamame.algorithms.selection import algorithm_config
from yamame.recipes.settings.presets import apply_algorithm, replace_learner_fields
from yamame.training.first_update import describe_first_update, describe_missing_updates, describe_no_updates

TINY = {"horizon": 2, "env_steps": 32, "num_envs": 2, "size": "tiny", "eval": {"trials": 2, "final_trials": 2}}


def test_no_updates_are_named_where_the_settings_say_so() -> None:
    usual = config(4, env_steps=1_000)
    assert describe_no_updates(usual) == ""
    assert describe_no_updates(replace(usual, updates_per_env_step=0.0)).startswith(
        "updates_per_env_step is 0: the run collects trials and makes no update"
    )
    assert algorithm_config("ppo").is_on_policy
    assert describe_no_updates(apply_algorithm(usual, "ppo")) == ""


def test_a_run_that_only_collects_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = yamame.train(Ends, run_dir=tmp_path / "run", updates_per_env_step=0, **TINY)
    assert run.result["updates"] == 0
    assert capsys.readouterr().err.count("updates_per_env_step is 0") == 1
    with pytest.raises(yamame.UserError, match=r"^updates_per_env_step is 0: .*stored data alone collects none"):
        yamame.train(
            Ends, run_dir=tmp_path / "other", updates_per_env_step=0, **{**TINY, "offline.data": (str(run.directory),)}
        )
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_run_on_policy_without_updates_says_so_at_its_start_and_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four trials must end before its first update."""
    few = {**TINY, "horizon": 100, "env_steps": 300, "algorithm": "ppo"}
    run = yamame.train(Endless, run_dir=tmp_path / "few", **few)
    assert run.result["updates"] == 0
    at_start, at_end = (line for line in capsys.readouterr().err.splitlines() if "update" in line)
    needed = "if trials take all 100 steps in 2 environments, no update is made in 300 environment steps: "
    assert at_start == f"{needed}pass env_steps=1600, or a smaller horizon if trials are shorter"
    assert at_end == f"the run made no update: its policy is as untrained as at the start; {at_start}"
    enough = yamame.train(Endless, run_dir=tmp_path / "enough", **{**few, "env_steps": 1_600})
    metrics = enough.metrics()
    first = metrics["env_steps"][np.flatnonzero(metrics["updates"] > 0)[0]]
    assert first == enough.config.first_update_env_steps and "no update" not in capsys.readouterr().err


def test_an_iteration_on_policy_longer_than_the_run_is_named() -> None:
    long = apply_algorithm(config(4, env_steps=1_000), "ppo")
    late = replace(long, env_steps_per_iteration=1_000)
    assert describe_first_update(late).endswith("pass env_steps_per_iteration=50, or more env_steps")


@pytest.mark.parametrize("algorithm", ["amago", "ppo"])
@pytest.mark.parametrize("iteration", [1, 30, 100, 400])
@pytest.mark.parametrize(("horizon", "num_envs"), [(10, 8), (50, 1), (50, 2), (50, 3), (100, 2), (400, 4)])
def test_what_to_change_is_always_named(algorithm: str, iteration: int, horizon: int, num_envs: int) -> None:
    made = config(horizon, env_steps=500)
    made = apply_algorithm(made, algorithm) if algorithm != "amago" else made
    made = replace(made, num_envs=num_envs, env_steps_per_iteration=iteration)
    for line in (describe_first_update(made), describe_missing_updates(made, trials=3, end_reason="")):
        assert "pass ," not in line and ("pass " in line or "first update after at most" in line), line


def test_what_no_loss_trains_is_named() -> None:
    usual = config(4, env_steps=1_000)
    with closing(usual.env.build(1, 0)) as envs:
        task = usual.env.task_spec(envs)
    losses = usual.algorithm.learner
    no_policy = replace_learner_fields(
        usual,
        policy_gradient=replace(losses.policy_gradient, weight=0.0),
        filtered_bc=replace(losses.filtered_bc, weight=0.0),
    )
    no_critics = replace_learner_fields(usual, td=replace(losses.td, weight=0.0))
    assert not any("no loss" in remark for remark in usual.algorithm.remarks(task))
    two_steps = replace_learner_fields(usual, td=replace(losses.td, n_step=2))
    assert losses.td.trace_decay and "learner.td.n_step has no effect here" in " ".join(
        two_steps.algorithm.remarks(task)
    )
    assert "no loss trains the policy: " in " ".join(no_policy.algorithm.remarks(task))
    assert "no loss trains the critics: " in " ".join(no_critics.algorithm.remarks(task))
