"""A run goes on only where its folder holds a run with the same settings."""

from dataclasses import replace
from pathlib import Path

import pytest

from yamame.config import RunConfig
from yamame.config_io import settings_difference
from yamame.errors import UserError
from yamame.recipe_loader import load_recipe, settings_from_flags
from yamame.tools.many.planned_run import name_of_folder, plan_runs, require_same_settings

HERE = Path("runs/full-seed-0")


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return settings_from_flags(load_recipe("passive-tmaze"), (), ["--env-steps", "1000"])


def test_the_difference_is_the_first_field_with_both_values(config: RunConfig) -> None:
    other = replace(config, num_envs=7, env=replace(config.env, horizon=9))
    assert settings_difference(config, config) == ""
    assert settings_difference(config, other) == "env.horizon 30, not 9"
    assert settings_difference(replace(config, num_envs=5), replace(config, num_envs=7)) == "num_envs 5, not 7"


def test_a_shorter_run_can_go_on_and_a_longer_one_cannot_be_made_shorter(config: RunConfig) -> None:
    shorter, longer = replace(config, env_steps=10), replace(config, env_steps=5000)
    require_same_settings(HERE, config, config, longer=False)
    require_same_settings(HERE, shorter, config, longer=False)
    require_same_settings(HERE, longer, config)
    with pytest.raises(UserError, match="env_steps 5000, not 1000"):
        require_same_settings(HERE, longer, config, longer=False)


def test_what_is_said_to_differ_is_never_a_length_that_may(config: RunConfig) -> None:
    shorter = replace(config, env_steps=10, seed=3)
    for longer in (True, False):
        with pytest.raises(UserError, match=r"full-seed-0 was .*\(seed 3, not 0\)"):
            require_same_settings(HERE, shorter, config, longer=longer)


def test_every_name_has_every_seed_and_a_folder_that_tells_its_name(config: RunConfig) -> None:
    runs = plan_runs("passive-tmaze", {"full": config, "a+no-seed-b": config}, [2, 0], Path("here"))
    assert [run.title for run in runs] == ["full seed 2", "a+no-seed-b seed 2", "full seed 0", "a+no-seed-b seed 0"]
    assert [run.config.seed for run in runs] == [2, 2, 0, 0]
    assert [name_of_folder(run.directory) for run in runs] == [run.name for run in runs]
    assert name_of_folder(Path("here/results.csv")) is None and name_of_folder(Path("-seed-0")) is None
