"""Runs of experiments: shared, scaled and priced."""

from dataclasses import replace
from pathlib import Path

import pytest

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.collect.exploration import EpsilonGreedy, NoExploration
from yamame.errors import UserError
from yamame.experiments import Arm, Experiment, Panel, load_experiment
from yamame.recipes import load_recipe
from yamame.run_config import RunConfig
from yamame.tools.reproduce.cost import Cost, Speed, estimate
from yamame.tools.reproduce.plan import plan_arms, run_name, scale_budget

WIND = Arm(label="AMAGO", recipe="wind")
GRU = Arm(label="GRU", recipe="wind", variants=("gru",))


def experiment_of(*arms: Arm) -> Experiment:
    return Experiment(title="t", source="s", panels=(Panel(title="p", arms=arms), Panel(title="q", arms=arms)))


def wind() -> RunConfig:
    recipe = load_recipe("wind")
    return recipe.make_config(recipe.env)


def test_panels_share_the_runs_of_the_same_agent_and_task(tmp_path: Path) -> None:
    arms = plan_arms(experiment_of(WIND, GRU), tmp_path, preset="small", seeds=[0, 2])
    assert [run.directory.name for each in arms for run in each.runs] == [
        "wind-seed-0",
        "wind-seed-2",
        "wind+gru-seed-0",
        "wind+gru-seed-2",
    ]
    assert [run.config.seed for run in arms[1].runs] == [0, 2]


def test_experiments_share_runs(tmp_path: Path) -> None:
    crafter = {
        name: plan_arms(load_experiment(name), tmp_path, preset="paper", seeds=[0]) for name in ("fig9", "table1")
    }
    runs = {name: {run.directory: run.config for each in arms for run in each.runs} for name, arms in crafter.items()}
    common = set(runs["fig9"]) & set(runs["table1"])
    assert len(common) == 5
    assert all(runs["fig9"][directory] == runs["table1"][directory] for directory in common)


def test_an_arm_that_changes_nothing_is_skipped(tmp_path: Path) -> None:
    arm = Arm(label="w/o filtered BC", recipe="package-delivery", variants=("no-filtered-bc",))
    (small,) = plan_arms(experiment_of(arm), tmp_path, preset="small", seeds=[0])
    assert (small.runs, small.skipped) == ((), "no-filtered-bc changes nothing in the preset small")
    (paper,) = plan_arms(experiment_of(arm), tmp_path, preset="paper", seeds=[0])
    assert len(paper.runs) == 1


def test_flags_apply_to_all_arms_and_own_flags_are_refused(tmp_path: Path) -> None:
    arms = plan_arms(experiment_of(WIND, GRU), tmp_path, preset="small", seeds=[0], flags=["--num-envs", "3"])
    assert [each.config.num_envs for each in arms] == [3, 3]
    for flag in ("--seed", "--env-steps=3", "--variant", "--run-dir"):
        with pytest.raises(UserError, match="is set by the experiment"):
            plan_arms(experiment_of(WIND), tmp_path, preset="small", seeds=[0], flags=[flag, "3"])


def test_a_budget_shortens_the_run_and_its_schedules() -> None:
    config = wind()
    config = replace(config, checkpoint=replace(config.checkpoint, milestone_interval_env_steps=1000))
    short = scale_budget(config, 0.1)
    assert isinstance(config.algorithm, AMAGOConfig)
    assert isinstance(short.algorithm, AMAGOConfig)
    assert isinstance(config.exploration, EpsilonGreedy)
    assert isinstance(short.exploration, EpsilonGreedy)
    pairs = [
        (short.env_steps, config.env_steps),
        (short.learning_starts, config.learning_starts),
        (short.exploration.anneal_env_steps, config.exploration.anneal_env_steps),
        (short.eval.interval_env_steps, config.eval.interval_env_steps),
        (short.algorithm.learner.lr_decay_updates, config.algorithm.learner.lr_decay_updates),
        (short.algorithm.learner.lr_warmup_updates, config.algorithm.learner.lr_warmup_updates),
        (short.checkpoint.milestone_interval_env_steps, 1000),
    ]
    assert all(one == round(other / 10) for one, other in pairs)
    assert short.total_updates == pytest.approx(config.total_updates / 10, abs=1)
    assert scale_budget(config, 1.0) is config
    silent = scale_budget(replace(config, exploration=NoExploration()), 0.1)
    assert silent.exploration == NoExploration()


def test_names_of_runs_are_short_and_distinct() -> None:
    arms = [arm for name in ("fig3", "fig18", "table2") for arm in load_experiment(name).arms]
    names = {run_name(arm) for arm in arms}
    assert len(names) == len({(arm.recipe, arm.flags, arm.variants) for arm in arms})
    assert max(map(len, names)) <= 110
    assert run_name(Arm(label="", recipe="crafter", flags=("--env.horizon", "2000"), variants=("gru",))) == (
        "crafter-env.horizon-2000+gru"
    )


def test_the_cost_measures_each_kind_of_run_once(tmp_path: Path) -> None:
    measured: list[RunConfig] = []

    def measure(config: RunConfig) -> Speed:
        measured.append(config)
        return Speed(env_steps_per_second=1000.0, updates_per_second=10.0)

    popgym = [
        Arm(label=name, recipe="popgym", flags=("--env.name", name)) for name in ("CountRecallEasy", "RepeatFirstEasy")
    ]
    flags = ["--env-steps-per-iteration", "100"]
    arms = plan_arms(experiment_of(WIND, GRU, *popgym), tmp_path, preset="small", seeds=[0, 1], flags=flags)
    cost = estimate(arms, measure)
    assert len(measured) == 3
    configs = [run.config for each in arms for run in each.runs]
    assert cost.num_runs == 8
    assert cost.env_steps == sum(config.env_steps for config in configs)
    assert cost.updates == sum(config.total_updates for config in configs)
    least = cost.env_steps / 1000 + cost.updates / 10
    assert least < cost.seconds < 3 * least


def test_the_cost_in_words() -> None:
    cost = Cost(num_runs=2, env_steps=3_000_000, updates=10, seconds=5400.0)
    assert cost.to_text() == "2 runs, 3,000,000 environment steps, 10 updates: about 1.5 hours on this machine"
    assert "about 3.0 minutes" in Cost(num_runs=1, env_steps=1, updates=1, seconds=180.0).to_text()
    assert Cost(num_runs=0, env_steps=0, updates=0, seconds=0.0).to_text() == "all runs are finished"
