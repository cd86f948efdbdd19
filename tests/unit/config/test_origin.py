"""What a run's report says of where its config came from."""

import shlex
from dataclasses import replace

import pytest

from yamame.recipes import config_from_flags, config_from_overrides, load_recipe, make_metadata, recipe_names
from yamame.recipes.settings.presets import default_config


def test_what_follows_from_the_task_is_no_difference() -> None:
    recipe = load_recipe("passive-tmaze")
    flags = ["--env.horizon", "60", "--learner.td.n-step", "1"]
    config = config_from_flags(recipe, [], flags)
    about = make_metadata(recipe, config, ["yamame", "train", "passive-tmaze", *flags, "--run-dir", "a b"])
    assert about.overrides == {"env.horizon": (30, 60), "learner.td.n_step": (61, 1)}
    assert about.command.endswith("--run-dir 'a b'") and about.recipe == "passive-tmaze"
    assert about.expected == ""
    assert make_metadata(recipe, recipe.make_config(recipe.env)).overrides == {}


def test_variants_are_differences() -> None:
    recipe = load_recipe("passive-tmaze")
    about = make_metadata(recipe, config_from_flags(recipe, ["no-popart"], []))
    assert about.overrides == {"agent.popart": (True, False)}


def test_what_follows_from_the_number_of_steps_is_no_difference() -> None:
    """A run of another length has its own schedules, by flags as in Python."""
    recipe = load_recipe("gymnasium")
    config = config_from_flags(recipe, [], ["--env-steps", "50000", "--seed", "3"])
    assert config == config_from_overrides(recipe, [], {"env_steps": 50_000, "seed": 3})
    assert config == replace(default_config(recipe.env, env_steps=50_000), seed=3)
    assert make_metadata(recipe, config).overrides == {"env_steps": (300_000, 50_000), "seed": (0, 3)}


def test_recipes_with_a_fixed_number_of_steps_keep_their_schedules() -> None:
    recipe = load_recipe("passive-tmaze")
    own, shorter = recipe.make_config(recipe.env), config_from_flags(recipe, [], ["--env-steps", "500"])
    assert shorter == replace(own, env_steps=500)
    assert make_metadata(recipe, shorter).overrides == {"env_steps": (own.env_steps, 500)}


def test_a_recipe_can_have_schedules_for_some_of_its_tasks() -> None:
    recipe = load_recipe("popgym")
    of_task = ["--env.name", "PositionOnlyCartPoleEasy"]
    config = config_from_flags(recipe, [], of_task)
    assert config == default_config(config.env, env_steps=200_000)
    shorter = config_from_flags(recipe, [], [*of_task, "--env-steps", "50000"])
    assert shorter == default_config(config.env, env_steps=50_000)
    assert make_metadata(recipe, shorter).overrides["env_steps"] == (200_000, 50_000)
    fixed = config_from_flags(recipe, [], ["--env-steps", "50000"])
    assert fixed == replace(recipe.make_config(recipe.env), env_steps=50_000)


@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        ("passive-tmaze", [], "success 1.0"),
        ("passive-tmaze", ["--seed", "3", "--compute.dtype", "bfloat16", "--eval.final-trials", "32"], "success 1.0"),
        ("passive-tmaze", ["--env.horizon", "60"], "success 1.0"),
        ("passive-tmaze", ["--env.horizon", "61"], ""),
        ("passive-tmaze", ["--env-steps", "500"], ""),
        ("passive-tmaze", ["--eval.stop-return", "0.5"], ""),
        ("popgym", ["--env.name", "HigherLowerEasy"], "0.53"),
        ("popgym", ["--env.name", "HigherLowerHard"], ""),
        ("crafter", [], ""),
        ("crafter", ["--env-steps", "200000"], "random instructions 0.22"),
        ("gymnasium", [], ""),
    ],
)
def test_a_result_is_expected_only_with_the_settings_it_was_measured_with(
    name: str, flags: list[str], expected: str
) -> None:
    recipe = load_recipe(name)
    found = make_metadata(recipe, config_from_flags(recipe, [], flags)).expected
    assert found.startswith(expected) and bool(found) is bool(expected)


def test_another_network_or_preset_has_no_expected_result() -> None:
    recipe = load_recipe("passive-tmaze")
    assert recipe.expected_result(config_from_flags(recipe, [], [], size="base")) == ""
    assert recipe.expected_result(config_from_flags(recipe, ["no-memory"], [])) == ""
    paper = load_recipe("wind", "paper")
    assert paper.expected_result(paper.make_config(paper.env)) == ""


@pytest.mark.parametrize("name", recipe_names())
def test_the_settings_of_every_expected_result_exist(name: str) -> None:
    recipe = load_recipe(name)
    for flags, result in recipe.info.expected.items():
        measured = config_from_flags(recipe, [], shlex.split(flags))
        assert recipe.expected_result(measured) == result and result in recipe.info.expected_text
