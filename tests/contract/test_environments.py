"""The contract of `EnvConfig` and `TrialVectorEnv`, for every config in `yamame.envs` and every recipe's."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from yamame import envs
from yamame.data.actions import strip_action_mask
from yamame.data.schema import TrajectorySchema
from yamame.data.trajectory import Trajectory
from yamame.discovery import classes_in, module_names
from yamame.envs import register_environments
from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.errors import UserError
from yamame.recipes import load_recipe, recipe_names

pytestmark = [
    pytest.mark.slow,  # simulators take their time to be built
    pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning"),  # Box2D's bindings
]

ROWS, STEPS = 3, 30
register_environments()


def tasks() -> list[Any]:
    """The default config of each file in `yamame.envs`, the config of each recipe, and their test tasks."""
    found: dict[EnvConfig, str] = {}
    for module in module_names(envs):
        for kind in classes_in(envs, module, EnvConfig):
            if not any(field.default is field.default_factory is MISSING for field in fields(kind)):
                found |= with_eval_config(kind(), kind.__name__)
    for name in recipe_names():
        task = load_recipe(name).env
        found |= with_eval_config(task, name)
    return [pytest.param(task, id=name) for task, name in found.items()]


def with_eval_config(task: EnvConfig, name: str) -> dict[EnvConfig, str]:
    return {task: name} if task.eval_config() == task else {task: name, task.eval_config(): f"{name}-eval"}


@contextmanager
def built(task: EnvConfig, seed: int) -> Iterator[TrialVectorEnv]:
    try:
        trials = task.build(ROWS, seed)
    except UserError as error:
        if "needs" in str(error):
            pytest.skip(str(error))
        raise
    with closing(trials):
        yield trials


def random_actions(trials: TrialVectorEnv, rng: np.random.Generator) -> np.ndarray:
    space = trials.action_space
    if isinstance(space, spaces.Box):
        return rng.uniform(-1.0, 1.0, (ROWS, *space.shape)).astype(np.float32)
    return np.stack([rng.integers(0, getattr(space, "n", None) or space.nvec) for _ in range(ROWS)])


def played(task: EnvConfig, seed: int) -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(0)
    with built(task, seed) as trials:
        log: list[tuple[Any, ...]] = [tuple(leaf.tolist() for leaf in trials.reset().values())]
        for _ in range(STEPS):
            step = trials.step(random_actions(trials, rng))
            seen = (*step.final_observation.values(), *step.observation.values())
            flags = (step.reward, step.terminated, step.truncated, step.episode_start)
            log.append(tuple(leaf.tolist() for leaf in (*seen, *flags)))
    return log


@pytest.mark.parametrize("task", tasks())
def test_the_seed_determines_the_trials(task: EnvConfig) -> None:
    once = played(task, 4)
    assert played(task, 4) == once
    assert any(played(task, seed) != once for seed in (5, 6, 7))


@pytest.mark.parametrize("task", tasks())
def test_the_horizon_is_the_trial_length_and_names_fit_for_files(task: EnvConfig) -> None:
    assert re.fullmatch(r"[A-Za-z0-9.-]+", task.task_name)
    with built(task, 0) as trials:
        assert trials.horizon == task.max_trial_steps
        assert trials.num_envs == ROWS


@pytest.mark.parametrize("task", tasks())
def test_tasks_for_evaluation_have_the_same_spaces(task: EnvConfig) -> None:
    assert task.eval_config().eval_config() == task.eval_config()
    with built(task, 0) as ours, built(task.eval_config(), 0) as theirs:
        assert ours.observation_space == theirs.observation_space
        assert ours.action_space == theirs.action_space
        assert ours.horizon == theirs.horizon


@pytest.mark.parametrize("task", tasks())
def test_steps_match_the_schema_of_the_spaces(task: EnvConfig) -> None:
    rng = np.random.default_rng(0)
    with built(task, 0) as trials:
        seen = [trials.reset()]
        actions = [random_actions(trials, rng) for _ in range(STEPS)]
        seen += [trials.step(action).observation for action in actions]
        space = strip_action_mask(trials.observation_space, task.action_mask_key)
        form = TrajectorySchema.from_spaces(space, trials.action_space)
    trajectory = Trajectory(
        reward=np.zeros(STEPS, np.float32),
        action=np.stack([action[0] for action in actions]),
        terminated=np.zeros(STEPS, np.bool_),
        truncated=np.zeros(STEPS, np.bool_),
        episode_start=np.zeros(STEPS + 1, np.bool_),
        observation={name: np.stack([step[name][0] for step in seen]) for name in seen[0]},
        horizon=task.max_trial_steps,
    )
    assert form.validation_error(trajectory) == ""
