"""What a run's report says of where its config came from."""

from yamame.recipes import config_from_flags, load_recipe, make_metadata


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
