"""What the main rank decides for all ranks from their reports."""

from dataclasses import replace

import numpy as np
import pytest
from tiny import tiny_config

from yamame.run_config import RunConfig
from yamame.training.decision import Decision, RankReport, decide

REPORT = RankReport(env_steps=40, vector_steps_left=0, can_update=True, needs_checkpoint=False, signal="")


@pytest.fixture
def config() -> RunConfig:
    """8 environments, 64 environment steps an iteration, an update every 4 steps after the first 16."""
    changes = {"env_steps": 200, "env_steps_per_iteration": 64, "updates_per_env_step": 0.25, "learning_starts": 16}
    config = tiny_config(**changes)
    assert config.num_envs == 8
    return replace(config, eval=replace(config.eval, interval_env_steps=50))


def decided(config: RunConfig, *reports: RankReport, must_save: bool = False, num_updates: int = 3) -> Decision:
    return decide(reports, config, num_updates=num_updates, next_eval_step=50, must_save=must_save)


def test_env_steps_of_all_ranks_make_updates_due(config: RunConfig) -> None:
    decision = decided(config, REPORT, replace(REPORT, env_steps=36))
    assert (decision.env_steps, decision.num_updates) == (76, (76 - 16) // 4)
    assert decision.evaluate and decision.is_collected and not decision.save and not decision.signal


@pytest.mark.parametrize("ramp", [1, 37, 120, 184, 5_000])
def test_updates_per_step_rise_linearly_and_are_as_many_in_all(config: RunConfig, ramp: int) -> None:
    constant, config = config, replace(config, updates_anneal_env_steps=ramp)
    length = 200 - 16
    fractions = np.minimum(1.0, (np.arange(length) + 0.5) / min(ramp, length))
    per_step = 0.25 * length * fractions / fractions.sum()
    for env_steps in range(0, 201, 10):
        due = config.updates_due(env_steps=env_steps, updates=0)
        assert due == pytest.approx(per_step[: max(0, env_steps - 16)].sum(), abs=1.0)
    assert config.total_updates == constant.total_updates == 46
    for updates in range(1, 50):
        env_steps = config.env_steps_of_updates(updates)
        assert config.updates_due(env_steps=env_steps, updates=0) >= updates
        assert config.updates_due(env_steps=env_steps - 1, updates=0) < updates


def test_no_rank_updates_before_all_can(config: RunConfig) -> None:
    decision = decided(config, REPORT, replace(REPORT, can_update=False))
    assert decision.num_updates == 3


def test_updates_that_are_made_are_never_taken_back(config: RunConfig) -> None:
    assert decided(config, REPORT, num_updates=50).num_updates == 50


@pytest.mark.parametrize(("env_steps", "vector_steps"), [(40, 8), (150, 7), (199, 1), (200, 0), (208, 0)])
def test_the_next_iteration_ends_with_the_run(config: RunConfig, env_steps: int, vector_steps: int) -> None:
    assert decided(config, replace(REPORT, env_steps=env_steps)).vector_steps == vector_steps


def test_an_evaluation_is_due_from_its_step_on_and_never_without_an_interval(config: RunConfig) -> None:
    assert not decided(config, replace(REPORT, env_steps=49)).evaluate
    assert decided(config, replace(REPORT, env_steps=50)).evaluate
    never = replace(config, eval=replace(config.eval, interval_env_steps=0))
    assert not decided(never, replace(REPORT, env_steps=50)).evaluate


def test_one_rank_is_enough_to_save_to_stop_and_to_wait(config: RunConfig) -> None:
    other = replace(REPORT, needs_checkpoint=True, signal="SIGTERM", vector_steps_left=2)
    decision = decided(config, REPORT, other)
    assert decision.save and decision.signal == "SIGTERM" and not decision.is_collected
    assert decided(config, REPORT, must_save=True).save


def test_counts_are_summed_and_a_rank_may_lack_some(config: RunConfig) -> None:
    one, two = {"faults/restarts": 1.0}, {"faults/restarts": 2.0, "collectors/num_ready": 4.0}
    decision = decided(config, replace(REPORT, counts=one), replace(REPORT, counts=two))
    assert decision.counts == {"faults/restarts": 3.0, "collectors/num_ready": 4.0}
