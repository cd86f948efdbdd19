"""An agent that learns from stored data alone imitates it, unless the user says otherwise."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.losses.filtered_bc import ALL_ACTIONS, FilteredBCLoss
from yamame.data.schema import TaskSpec
from yamame.envs.env_fn import EnvFnConfig
from yamame.recipes import PAPER, config_from_flags, config_from_overrides, load_recipe, own_recipe
from yamame.recipes.settings.presets import amago_config, default_config
from yamame.run_config import RunConfig

RECIPE = load_recipe("passive-tmaze")
ALONE = ["--offline.data", "demonstrations"]


def imitation(config: RunConfig) -> tuple[float, bool]:
    loss = amago_config(config).learner.filtered_bc
    return loss.weight, loss.advantage_threshold == ALL_ACTIONS


@pytest.mark.parametrize(
    ("flags", "imitates"),
    [
        ([], False),
        (ALONE, True),
        ([*ALONE, "--offline.total-updates", "40"], True),
        ([*ALONE, "--offline.batch-fraction", "0.5"], False),
        (["--offline.batch-fraction", "1.0"], False),
    ],
)
def test_stored_data_alone_is_imitated(flags: list[str], imitates: bool) -> None:
    config = config_from_flags(RECIPE, [], flags)
    assert imitation(config)[1] is imitates
    assert amago_config(config).learner.policy_gradient.weight > 0
    if imitates:
        assert imitation(config)[0] == 1.0


@pytest.mark.parametrize("offline", [{"offline": {"data": ("a",)}}, {"offline.data": ("a",)}])
def test_python_has_the_same_default(offline: dict[str, Any]) -> None:
    assert imitation(config_from_overrides(RECIPE, [], offline)) == (1.0, True)
    own = own_recipe(EnvFnConfig(env_fn=dict, horizon=4))
    assert imitation(config_from_overrides(own, [], {**offline, "seed": 3})) == (1.0, True)
    assert config_from_overrides(own, [], {"seed": 3}) == replace(default_config(own.env), seed=3)


def test_updates_on_stored_data_alone_are_as_frequent_from_the_start() -> None:
    own = own_recipe(EnvFnConfig(env_fn=dict, horizon=4))
    online = config_from_overrides(own, [], {})
    offline = config_from_overrides(own, [], {"offline.data": ("a",)})
    assert online.updates_anneal_env_steps == online.env_steps // 4
    assert offline.updates_anneal_env_steps == 0
    assert offline.total_updates == pytest.approx(online.total_updates, abs=1)


def test_settings_of_the_user_and_of_the_paper_come_first() -> None:
    weight = [*ALONE, "--learner.filtered-bc.weight", "0.5"]
    assert imitation(config_from_flags(RECIPE, [], weight)) == (0.5, True)
    assert imitation(config_from_flags(RECIPE, ["no-filtered-bc"], ALONE))[0] == 0.0
    assert not imitation(config_from_flags(load_recipe("passive-tmaze", PAPER), [], ALONE))[1]


def test_one_line_says_which_it_is() -> None:
    task = TaskSpec(
        observation_space=spaces.Box(-1.0, 1.0, (2,), np.float32),
        action_space=spaces.Discrete(3),
        horizon=4,
        action_mask_key="action_mask",
    )
    algorithm = config_from_flags(RECIPE, [], ALONE).algorithm
    assert not algorithm.remarks(task)
    (imitates,), (warns,) = (each.remarks(task, offline_only=True) for each in (algorithm, AMAGOConfig()))
    assert "all of its actions are imitated" in imitates
    assert "may be below random actions without learner.filtered_bc.weight 1" in warns


def test_every_action_is_above_the_threshold() -> None:
    assert FilteredBCLoss(advantage_threshold=ALL_ACTIONS).advantage_threshold < -1e8
