"""What a run's report says of where its config came from."""

from dataclasses import replace

from yamame.presets import default_config
from yamame.recipes import config_from_flags, config_from_overrides, load_recipe, make_metadata


def test_what_follows_from_the_task_is_no_difference() -> None:
    recipe = load_recipe("passive-tmaze")
    flags = ["--env.horizon", "60", "--learner.td.n-step", "1"]
    config = config_from_flags(recipe, [], flags)
    about = make_metadata(recipe, config, ["yamame", "train", "passive-tmaze", *flags, "--run-dir", "a b"])
    assert about.overrides == {"env.horizon": (30, 60), "learner.td.n_step": (61, 1)}
    assert about.command.endswith("--run-dir 'a b'") and about.recipe == "passive-tmaze"
    assert about.expected == recipe.metadata["expected"]
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
