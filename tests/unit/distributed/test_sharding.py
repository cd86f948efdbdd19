"""The shard of a learner."""

from dataclasses import replace

import pytest
from pool_config import pool_config

from yamame.distributed.sharding import shard_config


@pytest.mark.parametrize(("learners", "steps", "transitions"), [(1, 81, 257), (2, 41, 129), (3, 27, 86)])
def test_steps_of_an_iteration_and_transitions_of_a_batch_are_divided(
    learners: int, steps: int, transitions: int
) -> None:
    config = pool_config(**{"env_steps_per_iteration": 81, "replay.min_batch_transitions": 257})
    shard = shard_config(replace(config, num_learners=learners, num_envs=8 * learners))
    assert (shard.env_steps_per_iteration, shard.replay.min_batch_transitions) == (steps, transitions)
    assert shard.env_steps == config.env_steps and shard.total_updates == config.total_updates


def test_one_trial_per_environment_stays_so() -> None:
    config = pool_config(num_learners=2)
    shard = shard_config(config)
    assert shard.env_steps_per_iteration == shard.replay.min_batch_transitions == 0
    assert shard.resolved_env_steps_per_iteration == config.resolved_env_steps_per_iteration // 2


def test_the_shard_of_a_single_learner_is_the_run() -> None:
    config = pool_config(**{"env_steps_per_iteration": 81, "replay.min_batch_transitions": 257})
    assert shard_config(config) == config
