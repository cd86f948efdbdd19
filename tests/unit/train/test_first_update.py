"""When the first update of a run comes, and what is said if that is late or never."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import yamame
from yamame.envs.env_fn import EnvFnConfig
from yamame.recipes import load_recipe, recipe_names
from yamame.recipes.settings.presets import NUM_ENVS, default_config
from yamame.run_config import RunConfig
from yamame.training.first_update import describe_first_update, is_first_update_late


class Endless(gymnasium.Env):
    observation_space, action_space = spaces.MultiBinary(1), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.int8), {}

    def step(self, action):
        return np.zeros(1, np.int8), float(action), False, False, {}


class Ends(Endless):
    def step(self, action):
        return np.zeros(1, np.int8), float(action), True, False, {}


def config(horizon: int, *, env_steps: int, vector_size: int | None = None, **changes) -> RunConfig:
    env = EnvFnConfig(env_fn=Endless, horizon=horizon, vector_size=vector_size)
    return replace(default_config(env, env_steps=env_steps), **changes)


@pytest.mark.parametrize(
    ("horizon", "env_steps", "num_envs"),
    [
        (1_000, 300_000, 24),
        (1_000, 20_000, 4),
        (1_024, 100_000, 24),
        (500, 20_000, 8),
        (10_000, 300_000, 6),
        (4, 800, 24),
    ],
)
def test_the_default_has_as_many_environments_as_let_updates_begin_early(horizon, env_steps, num_envs):
    chosen = config(horizon, env_steps=env_steps)
    assert chosen.num_envs == num_envs and num_envs in NUM_ENVS
    assert chosen.first_update_env_steps <= 0.3 * env_steps
    assert not is_first_update_late(chosen)


@pytest.mark.parametrize("preset", ["small", "paper"])
@pytest.mark.parametrize("name", recipe_names())
def test_no_recipe_begins_late(name, preset):
    recipe = load_recipe(name, preset)
    assert not is_first_update_late(recipe.make_config(recipe.env))


@pytest.mark.parametrize(
    ("late", "line"),
    [
        (
            config(1_000, env_steps=20_000, num_envs=24),
            "if trials take all 1,000 steps in 24 environments, no update is made in 20,000 environment steps: "
            "pass num_envs=5, or a smaller horizon if trials are shorter",
        ),
        (
            config(1_000, env_steps=20_000, num_envs=16, env_steps_per_iteration=384),
            "if trials take all 1,000 steps in 16 environments, the first update comes after 16,128 of 20,000 "
            "environment steps: pass num_envs=5, or a smaller horizon if trials are shorter",
        ),
        (
            config(30_000, env_steps=20_000, num_envs=1),
            "if trials take all 30,000 steps, no update is made in 20,000 environment steps: "
            "pass env_steps=120000, or a smaller horizon if trials are shorter",
        ),
        (
            config(1_000, env_steps=1_500),
            "if trials take all 1,000 steps in 2 environments, no update is made in 1,500 environment steps: "
            "pass num_envs=1 and env_steps=4000, or a smaller horizon if trials are shorter",
        ),
        (
            config(1_000, env_steps=20_000, num_envs=16, vector_size=16),
            "if trials take all 1,000 steps in 16 environments, the first update comes after 16,128 of 20,000 "
            "environment steps: pass env_steps=64000, or a smaller horizon if trials are shorter",
        ),
        (
            config(10, env_steps=20_000, learning_starts=50_000),
            "no update is made in 20,000 environment steps: "
            "pass learning_starts below 50,000, a larger updates_per_env_step or more env_steps",
        ),
        (
            config(10, env_steps=20_000, updates_per_env_step=1e-5),
            "no update is made in 20,000 environment steps: pass a larger updates_per_env_step or more env_steps",
        ),
        (
            config(10, env_steps=20_000, env_steps_per_iteration=20_000),
            "the first update comes after 20,016 of 20,000 environment steps: "
            "pass env_steps_per_iteration=1000, or more env_steps",
        ),
    ],
)
def test_a_late_first_update_is_said_in_one_line_with_what_to_change(late, line):
    assert is_first_update_late(late)
    assert describe_first_update(late) == line


@pytest.mark.parametrize("changes", [{"updates_per_env_step": 0.0}, {"num_envs": 1, "learning_starts": 100}])
def test_nothing_is_said_of_runs_without_updates_or_with_early_ones(changes):
    assert not is_first_update_late(config(100, env_steps=20_000, **changes))


TINY = {
    "size": "tiny",
    "seed": 0,
    "eval": {"trials": 2, "final_trials": 2, "interval_env_steps": 0, "num_envs": 2, "choose_policy": False},
}


@pytest.mark.slow
def test_the_predicted_first_update_is_that_of_the_run(tmp_path):
    run = yamame.train(
        Endless,
        run_dir=tmp_path / "run",
        horizon=10,
        num_envs=3,
        env_steps=120,
        env_steps_per_iteration=14,
        **TINY,
    )
    metrics = run.metrics()
    first = metrics["env_steps"][np.flatnonzero(metrics["updates"] > 0)[0]]
    assert first == run.config.first_update_env_steps == 30  # of 3 trials of 10 steps, in iterations of 15


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_fn", "settings", "at_start", "at_end"),
    [
        (Endless, {"num_envs": 24}, "if trials take all 20 steps in 24", "no trial was completed in 120 environment"),
        (Ends, {"learning_starts": 900}, "no update is made", "no update is made in 120 environment steps: pass"),
        (Ends, {"num_envs": 24}, "if trials take all 20 steps in 24 environments", ""),
    ],
)
def test_a_run_without_updates_says_so_at_start_and_end(env_fn, settings, at_start, at_end, tmp_path, capsys):
    run = yamame.train(env_fn, horizon=20, env_steps=120, run_dir=tmp_path / "run", **TINY, **settings)
    lines = [line for line in capsys.readouterr().err.splitlines() if "update" in line]
    assert len(lines) == bool(at_start) + bool(at_end), lines
    if at_start:
        assert lines[0].startswith(at_start)
    if at_end:
        assert (
            lines[1].startswith("the run made no update: its policy is as untrained as at the start; ")
            and at_end in lines[1]
        )
    assert bool(run.result["updates"]) == (not at_end)
