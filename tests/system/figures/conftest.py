"""Real runs that train in a moment, made once."""

from pathlib import Path
from typing import Any

import pytest
from tiny import TINY_NETWORK

from yamame.recipes import config_from_overrides, load_recipe, make_metadata
from yamame.recipes.settings.presets import apply_variants
from yamame.training import start as runs

TINY: dict[str, Any] = {
    "env.horizon": 3,
    "env_steps": 200,
    "num_envs": 8,
    "replay.batch_size": 4,
    "updates_per_env_step": 0.1,
    "checkpoint.milestone_interval_env_steps": 100,
    **TINY_NETWORK,
    "eval": {"trials": 4, "final_trials": 16, "num_envs": 16, "interval_env_steps": 60, "stop_return": None},
}
MAZE: dict[str, Any] = {
    "env.size": 7,
    "env.horizon": 20,
    "env_steps": 320,
    "num_envs": 8,
    "context_length": 10,
    "updates_per_env_step": 0.06,
    "replay.batch_size": 4,
    **TINY_NETWORK,
    "eval": {"final_trials": 4, "num_envs": 4, "interval_env_steps": 0},
}


def train(recipe: str, directory: Path, variants: list[str], settings: dict[str, Any]) -> Path:
    """A whole run, without its report."""
    chosen = load_recipe(recipe)
    config = apply_variants(config_from_overrides(chosen, [], settings), variants)
    runs.train_run(config, make_metadata(chosen, config), run_dir=directory, quiet=True)
    return directory


@pytest.fixture(scope="session")
def tmaze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `yamame sweep` leaves it: two seeds of `full`, one of `no-memory`."""
    folder = tmp_path_factory.mktemp("sweep")
    for name, seed in (("full", 0), ("full", 1), ("no-memory", 0)):
        variants = [] if name == "full" else [name]
        train("passive-tmaze", folder / f"{name}-seed-{seed}", variants, TINY | {"seed": seed})
    return folder


@pytest.fixture(scope="session")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with instructions, with one checkpoint alone."""
    return train("maze-runner", tmp_path_factory.mktemp("maze") / "run", [], MAZE)
