"""The task of every recipe keeps what `EnvironmentConfig` and `TrialEnvironments` promise."""

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from yamame.environments.adapters.action_masks import without_masks
from yamame.environments.adapters.gymnasium_ids import register_environments
from yamame.environments.config import EnvironmentConfig
from yamame.records.errors import UserError
from yamame.records.interfaces import TrialEnvironments
from yamame.records.trajectory import Trajectory
from yamame.replay.form import TrajectoryForm
from yamame.settings.catalogue import load_recipe, recipe_names

pytestmark = [
    pytest.mark.slow,  # simulators take their time to be built
    pytest.mark.filterwarnings("ignore:builtin type:DeprecationWarning"),  # Box2D's bindings
]

ROWS, STEPS = 3, 30
register_environments()


def tasks() -> list[Any]:
    """The default task of each recipe, and what it is evaluated on where that is another."""
    found = {}
    for name in recipe_names():
        task = load_recipe(name).environment
        found |= {task: name} if task.for_evaluation() == task else {task: name, task.for_evaluation(): f"{name}-eval"}
    return [pytest.param(task, id=name) for task, name in found.items()]


@contextmanager
def built(task: EnvironmentConfig, seed: int) -> Iterator[TrialEnvironments]:
    try:
        trials = task.build(ROWS, seed)
    except UserError as error:
        if "needs" in str(error):
            pytest.skip(str(error))
        raise
    with closing(trials):
        yield trials


def random_actions(trials: TrialEnvironments, rng: np.random.Generator) -> np.ndarray:
    space = trials.action_space
    if isinstance(space, spaces.Box):
        return rng.uniform(-1.0, 1.0, (ROWS, *space.shape)).astype(np.float32)
    return np.stack([rng.integers(0, getattr(space, "n", None) or space.nvec) for _ in range(ROWS)])


def played(task: EnvironmentConfig, seed: int) -> list[tuple[Any, ...]]:
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
def test_what_happens_follows_from_the_seed(task: EnvironmentConfig) -> None:
    once = played(task, 4)
    assert played(task, 4) == once
    assert any(played(task, seed) != once for seed in (5, 6, 7))


@pytest.mark.parametrize("task", tasks())
def test_the_horizon_is_the_trial_length_and_names_fit_for_files(task: EnvironmentConfig) -> None:
    assert re.fullmatch(r"[A-Za-z0-9.-]+", task.task)
    with built(task, 0) as trials:
        assert trials.horizon == task.trial_length
        assert trials.num_envs == ROWS


@pytest.mark.parametrize("task", tasks())
def test_tasks_for_evaluation_have_the_same_spaces(task: EnvironmentConfig) -> None:
    assert task.for_evaluation().for_evaluation() == task.for_evaluation()
    with built(task, 0) as ours, built(task.for_evaluation(), 0) as theirs:
        assert ours.observation_space == theirs.observation_space
        assert ours.action_space == theirs.action_space
        assert ours.horizon == theirs.horizon


@pytest.mark.parametrize("task", tasks())
def test_what_happens_has_the_form_that_the_spaces_announce(task: EnvironmentConfig) -> None:
    rng = np.random.default_rng(0)
    with built(task, 0) as trials:
        seen = [trials.reset()]
        actions = [random_actions(trials, rng) for _ in range(STEPS)]
        seen += [trials.step(action).observation for action in actions]
        space = without_masks(trials.observation_space, task.mask_key)
        form = TrajectoryForm.of(space, trials.action_space)
    trajectory = Trajectory(
        reward=np.zeros(STEPS, np.float32),
        action=np.stack([action[0] for action in actions]),
        terminated=np.zeros(STEPS, np.bool_),
        truncated=np.zeros(STEPS, np.bool_),
        episode_start=np.zeros(STEPS + 1, np.bool_),
        observation={name: np.stack([step[name][0] for step in seen]) for name in seen[0]},
        horizon=task.trial_length,
    )
    assert form.misfit(trajectory) == ""
