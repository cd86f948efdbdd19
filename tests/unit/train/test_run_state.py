"""Counters of a run after evaluations."""

from dataclasses import replace

import pytest
import torch
from tiny import tiny_config

from yamame.config.differences import flatten_config
from yamame.recipes.settings.presets import amago_config, replace_agent_fields
from yamame.run_config import EvalConfig
from yamame.training.state import IterationState, TrainState


def test_two_solved_evaluations_in_a_row_end_a_run() -> None:
    state, config = TrainState(), EvalConfig(interval_env_steps=100, stop_return=2.0)
    for return_mean in (2.5, 1.9, 2.0):
        state.record_evaluation(return_mean, config, env_steps=100)
        assert not state.end_reason
    state.record_evaluation(2.1, config, env_steps=400)
    assert state.end_reason == "solved: two evaluations of at least 2"
    assert state.next_eval_step == 500


def test_what_was_solved_with_another_stop_return_does_not_count() -> None:
    saved = flatten_config(tiny_config(**{"eval.stop_return": 2.0}))
    state = TrainState(consecutive_solved=2, end_reason="solved: two evaluations of at least 2")
    assert state.resumed_with(tiny_config(**{"eval.stop_return": 2.0}), saved=saved) == state
    for stop_return in (3.0, None):
        config = tiny_config(**{"eval.stop_return": stop_return})
        assert state.resumed_with(config, saved=saved) == TrainState()
        assert replace(state, end_reason="enough").resumed_with(config, saved=saved).end_reason == "enough"


def test_only_a_higher_return_is_an_improvement() -> None:
    state, config = TrainState(), EvalConfig(interval_env_steps=100)
    improved = [state.record_evaluation(return_mean, config, env_steps=0) for return_mean in (-1.0, -2.0, -1.0, 0.5)]
    assert improved == [True, False, False, True]
    assert state.best_eval_return == 0.5
    assert not state.end_reason


def test_a_run_without_a_choice_acts_as_its_config_says() -> None:
    config = replace_agent_fields(tiny_config(deterministic_actions=False), evaluation_gamma_index=0)
    assert TrainState().trained_config(config) == config


@pytest.mark.parametrize("policy_index", [-1, 1])
@pytest.mark.parametrize("mode_is_better", [False, True])
def test_a_choice_replaces_that_of_the_config(policy_index: int, mode_is_better: bool) -> None:
    config = replace_agent_fields(tiny_config(deterministic_actions=False), evaluation_gamma_index=0)
    config = replace(config, eval=replace(config.eval, choose_policy=True))
    trained = TrainState(policy_index=policy_index, mode_is_better=mode_is_better).trained_config(config)
    assert amago_config(trained).agent.evaluation_gamma_index == policy_index
    assert trained.deterministic_actions == mode_is_better


def test_metrics_of_an_interrupted_iteration_are_restored_on_the_device_of_the_updates() -> None:
    stopped = IterationState(phase="update", update_metrics={"loss/td": [torch.tensor(1.0), torch.tensor(2.0)]})
    state = stopped.state_dict()
    assert state["update_metrics"]["loss/td"].device.type == "cpu"
    here = IterationState.from_state_dict(state, torch.device("cpu"))
    assert here.phase == "update" and [float(each) for each in here.update_metrics["loss/td"]] == [1.0, 2.0]
    elsewhere = IterationState.from_state_dict(state, torch.device("meta"))
    assert [each.device.type for each in elsewhere.update_metrics["loss/td"]] == ["meta", "meta"]
