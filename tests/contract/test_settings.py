"""Recipes: found by their files, complete, and configurable before and after their task is known."""

from contextlib import closing

import pytest

from yamame.config.serialization import from_json, to_json
from yamame.envs.dark_key_to_door import DarkKeyToDoorConfig
from yamame.envs.package_delivery import PackageDeliveryConfig
from yamame.errors import UserError
from yamame.nets.heads.classification import ClassificationConfig
from yamame.nets.sequence.feedforward import FeedForwardConfig
from yamame.nets.sequence.gru import GRUConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.recipes import config_from_flags, config_from_overrides, load_recipe, recipe_names
from yamame.recipes.settings.presets import VARIANTS, amago_config, apply_variants
from yamame.run_config import RunConfig

TMAZE = "passive-tmaze"


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_says_what_it_costs_and_survives_its_json(name: str) -> None:
    recipe = load_recipe(name)
    info = recipe.info
    assert info.summary.endswith(".") and info.cost and recipe.notes
    assert len(name) + len(info.minutes) + len(info.score) < 66, "a line of the list"
    assert info.command.startswith(f"yamame train {name}")
    config = recipe.make_config(recipe.env)
    assert from_json(RunConfig, to_json(config)) == config
    assert config.resolved_context_length <= config.env.max_trial_steps
    assert config_from_flags(recipe, [], info.command.split()[3:]) == config


@pytest.mark.parametrize("name", recipe_names())
def test_no_recipe_depends_on_the_unit_of_its_rewards(name: str) -> None:
    recipe = load_recipe(name)
    algorithm = amago_config(recipe.make_config(recipe.env))
    assert (algorithm.learner.td.reward_scale, algorithm.agent.critic.value_code.initial_square) == (1.0, 0.0)


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(UserError, match="passive-tmaze"):
        load_recipe("pasive-tmaze")


def test_settings_follow_from_the_task_and_flags_win() -> None:
    recipe = load_recipe(TMAZE)
    short, long = (config_from_flags(recipe, [], ["--env.horizon", str(n)]) for n in (30, 60))
    assert (short.resolved_context_length, long.resolved_context_length) == (31, 61)
    assert long.env_steps / short.env_steps == pytest.approx(61 / 31)
    flags = ["--env.horizon", "60", "--env-steps", "7", "--learner.td.n-step=3", "--agent.no-popart"]
    config = config_from_flags(recipe, [], flags)
    assert (config.env_steps, config.algorithm.learner.td.n_step, config.algorithm.agent.popart) == (7, 3, False)
    assert config_from_overrides(recipe, [], {"env": {"horizon": 60}}) == long
    assert config_from_overrides(recipe, [], {"env.horizon": 60}) == long


def test_a_wrong_flag_names_the_nearest_one() -> None:
    recipe = load_recipe(TMAZE)
    with pytest.raises(UserError, match=r"--env\.horizn.*--env\.horizon"):
        config_from_flags(recipe, [], ["--env.horizn", "60"])
    with pytest.raises(UserError, match=r"--learner\.learning-rate"):
        config_from_flags(recipe, [], ["--learner.learning-rat", "1"])
    with pytest.raises(UserError, match="int"):
        config_from_flags(recipe, [], ["--env.horizon", "far"])


def test_variants() -> None:
    recipe = load_recipe("dark-key-to-door")
    base = recipe.make_config(recipe.env)
    elsewhere = (*OF_INSTRUCTIONS, *OF_PPO, *OF_VARIBAD, *OF_HYPERX, "no-world-model", "no-token-shift", "transformer")
    others = [name for name in VARIANTS if name not in elsewhere]
    changed = {name: apply_variants(base, [name]) for name in others}
    assert all(config != base for config in changed.values())
    assert isinstance(changed["no-memory"].algorithm.agent.trajectory_encoder, FeedForwardConfig)
    assert isinstance(changed["gru"].algorithm.agent.trajectory_encoder, GRUConfig)
    assert (
        changed["no-memory"].algorithm.agent.trajectory_encoder.state_size
        == base.algorithm.agent.trajectory_encoder.state_size
    )
    naive = changed["naive"].algorithm.agent.trajectory_encoder
    assert isinstance(naive, TransformerConfig)
    assert not (naive.sigma_reparam or naive.normformer or naive.head_scaling)
    assert changed["no-filtered-bc"].algorithm.learner.filtered_bc.weight == 0.0
    assert not changed["no-multi-gamma"].algorithm.agent.multi_gamma
    assert not changed["no-popart"].algorithm.agent.popart
    with pytest.raises(UserError, match="no-memory"):
        apply_variants(base, ["no-memori"])
    flags = config_from_flags(recipe, ["gru"], ["--agent.trajectory-encoder.d-model", "32"])
    assert flags.algorithm.agent.trajectory_encoder.state_size == 32


@pytest.mark.parametrize("name", recipe_names())
def test_amago_2_is_a_variant_of_every_recipe(name: str) -> None:
    recipe = load_recipe(name)
    config = apply_variants(recipe.make_config(recipe.env), ["amago-2"])
    agent, learner = config.algorithm.agent, config.algorithm.learner
    assert isinstance(agent.critic.value_code, ClassificationConfig) and agent.num_policy_samples == 3
    assert (learner.policy_gradient.weight, learner.filtered_bc.weight, learner.is_pessimistic) == (0.0, 1.0, False)
    assert learner.td.num_critics_in_target == agent.critic.num_critics
    assert from_json(RunConfig, to_json(config)) == config
    with pytest.raises(UserError, match="no-popart changes nothing here"):
        apply_variants(config, ["no-popart"])


def test_of_the_unit_that_values_of_amago_2_have_a_run_prints_a_line() -> None:
    recipe = load_recipe(TMAZE)
    default = recipe.make_config(recipe.env)
    with closing(recipe.env.build(1, 0)) as envs:
        task = recipe.env.task_spec(envs)
    (line,) = apply_variants(default, ["amago-2"]).algorithm.remarks(task)
    assert "unit of rewards" in line and not default.algorithm.remarks(task)


def test_flags_reach_the_bins_and_the_filter_of_amago_2() -> None:
    flags = ["--agent.critic.value-code.label", "hl_gauss", "--learner.filtered-bc.filter", "exponential"]
    config = config_from_flags(load_recipe(TMAZE), ["amago-2"], flags)
    assert config.algorithm.agent.critic.value_code == ClassificationConfig(label="hl_gauss")
    assert config.algorithm.learner.filtered_bc.filter == "exponential"


def test_variants_without_what_is_not_of_the_paper() -> None:
    recipe = load_recipe("package-delivery")
    base = recipe.make_config(recipe.env)
    assert base.algorithm.learner.world_model.weight > 1.0
    with pytest.raises(UserError, match="world-model changes nothing here"):  # the recipe has one
        apply_variants(base, ["world-model"])
    with pytest.raises(UserError, match="no-filtered-bc changes nothing here"):
        config_from_flags(recipe, ["no-filtered-bc"], [])
    assert apply_variants(base, ["no-world-model"]).algorithm.learner.world_model.weight == 0.0
    for name in ("no-token-shift", "naive"):
        encoder = apply_variants(base, [name]).algorithm.agent.trajectory_encoder
        assert isinstance(encoder, TransformerConfig) and not encoder.token_shift
        assert encoder.state_size == base.algorithm.agent.trajectory_encoder.state_size


OF_PPO = ("rl2-grid-navi", "rl2-half-cheetah", "recurrent-ppo")
OF_VARIBAD = ("varibad-grid-navi", "varibad-half-cheetah")
OF_HYPERX = ("hyperx-rooms",)
OF_INSTRUCTIONS = ("no-relabeling", "relabel-all", "no-goal-importance-sampling", "no-multi-goal", "no-planning")


def test_variants_of_tasks_with_instructions() -> None:
    recipe = load_recipe("package-delivery")
    base = recipe.make_config(recipe.env)
    changed = {name: apply_variants(base, [name]) for name in OF_INSTRUCTIONS}
    assert changed["no-relabeling"].replay.relabel.mode == "none"
    assert changed["relabel-all"].replay.relabel.mode == "all"
    assert not changed["no-goal-importance-sampling"].replay.relabel.importance_sampling
    assert (
        isinstance(changed["no-multi-goal"].env, PackageDeliveryConfig) and changed["no-multi-goal"].env.max_goals == 1
    )
    assert (
        isinstance(changed["no-planning"].env, PackageDeliveryConfig) and changed["no-planning"].env.hide_future_goals
    )
    for name in OF_INSTRUCTIONS:
        with pytest.raises(UserError, match="no instructions"):
            apply_variants(load_recipe("wind").make_config(load_recipe("wind").env), [name])


def test_a_task_object_replaces_the_task_whole() -> None:
    task = DarkKeyToDoorConfig(size=4, horizon=40, attempt_length=10)
    config = config_from_overrides(load_recipe("dark-key-to-door"), [], {"env": task})
    assert config.env == task
    assert config.resolved_context_length == 40
