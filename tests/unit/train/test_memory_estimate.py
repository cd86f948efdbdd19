"""Observations that a machine cannot hold are refused at the start; ordinary ones pass on a small machine."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import yamame
from yamame.data.sampler import ReplayConfig
from yamame.distributed.sharding import shard_config
from yamame.envs.env_fn import EnvFnConfig
from yamame.recipes import config_from_overrides, load_recipe
from yamame.recipes.settings.presets import apply_size, default_config
from yamame.training import memory_estimate
from yamame.training.memory_estimate import check_memory, estimate_bytes, machine_bytes

GIB = 2**30
BYTES = np.uint8


class Shows(gymnasium.Env[Any, Any]):
    action_space = spaces.Discrete(2)

    def __init__(self, space: Any) -> None:
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(self.observation_space.shape, self.observation_space.dtype), {}

    def step(self, action: Any) -> Any:
        return self.reset()[0], 1.0, True, False, {}


def check(space: Any, *, size: str | None = None) -> None:
    config = default_config(EnvFnConfig(env_fn=lambda: Shows(space), horizon=100, num_workers=0))
    with closing(config.env.build(1, 0)) as envs:
        check_memory(apply_size(config, size), config.env.task_spec(envs))


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_estimate, "machine_bytes", lambda: 4 * GIB)


@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (84, 84, 4), BYTES),
        spaces.Box(0, 255, (64, 64, 3), BYTES),
        spaces.Box(0, 255, (210, 160, 3), BYTES),
        spaces.Box(0.0, 1.0, (4, 84, 84), np.float32),
        spaces.Box(-np.inf, np.inf, (20_000,), np.float32),
        spaces.Discrete(500),
        spaces.Box(-1.0, 1.0, (0,), np.float32),
    ],
)
@pytest.mark.parametrize("size", [None, "large"])
def test_ordinary_observations_pass(space: Any, size: str | None) -> None:
    check(space, size=size)


@pytest.mark.usefixtures("small_machine")
def test_recipes_of_pixels_pass() -> None:
    pytest.importorskip("crafter")
    config = config_from_overrides(load_recipe("crafter"), [], {})
    with closing(config.env.build(1, 0)) as envs:
        check_memory(config, config.env.task_spec(envs))


@pytest.mark.usefixtures("small_machine")
@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(0, 255, (2000, 2000, 3), BYTES), r"'observation' \(2000 x 2000 x 3\) takes 11.4 MiB, .* batches "),
        (spaces.Box(-1.0, 1.0, (1_000_000,), np.float32), r"\(1000000\) takes 3.8 MiB, .* first layer "),
    ],
)
def test_observations_that_do_not_fit_are_named(space: Any, message: str) -> None:
    with pytest.raises(yamame.UserError, match=message) as error:
        check(space)
    assert "this machine has 4.0 GiB of memory: make it smaller, or lower num_envs" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_learner_of_several_prepares_as_many_batches_as_a_single_one() -> None:
    space = spaces.Box(-1.0, 1.0, (8,), np.float32)
    env = EnvFnConfig(env_fn=lambda: Shows(space), horizon=100, num_workers=0)
    replay = ReplayConfig(batch_size=8)
    config = replace(
        default_config(env), num_envs=8, env_steps_per_iteration=64, updates_per_env_step=4 / 64, replay=replay
    )
    shard = shard_config(replace(config, num_learners=4))
    leaf = {"observation": space}
    whole, quarter = (estimate_bytes(each, "observation", space, leaf)["batches"] for each in (config, shard))
    assert whole == 4 * quarter > 0


def test_training_and_check_env_refuse_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_estimate, "machine_bytes", lambda: 2**20)

    def make() -> Shows:
        return Shows(spaces.Box(-1.0, 1.0, (5_000,), np.float32))

    with pytest.raises(yamame.UserError, match="with which training needs at least"):
        yamame.train(make, horizon=4, env_steps=100, size="tiny", num_envs=2, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(yamame.UserError, match="with which training needs at least"):
        yamame.check_env(make, horizon=4)


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory_estimate, "_CGROUP_LIMITS", (limit, tmp_path / "none"))
    plain = machine_bytes()
    assert plain is None or plain > 2**28
    limit.write_text("max\n")
    assert machine_bytes() == plain
    limit.write_text("1048576\n")
    assert machine_bytes() == 2**20
