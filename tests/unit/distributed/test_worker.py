"""A collector that works off orders: the same trajectories as ever, whatever the orders they were made under."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from collecting import collect_trials
from pool_config import pool_config
from troubled import Troubled

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.base import build_model
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.collect.collector import Collector
from yamame.collect.exploration import EpsilonGreedy, Explorer
from yamame.data.trajectory import Trajectory
from yamame.distributed.ray.worker import (
    CollectorWorker,
    CollectRequest,
    CollectResult,
    PolicyWeights,
    actor_state,
    load_actor_state,
)
from yamame.envs.env_fn import EnvFnConfig
from yamame.run_config import RunConfig

SEED = (0, 0, 1, 2)


@pytest.fixture(scope="module")
def config() -> RunConfig:
    exploration = EpsilonGreedy(anneal_env_steps=400, initial_eps=1.0, final_eps=0.0)
    return replace(pool_config(), exploration=exploration)


def agent_of(config: RunConfig, seed: int) -> Agent:
    trials = config.env.build(1, 0)
    return build_model(
        config.algorithm, config.env.task_spec(trials), context_length=config.resolved_context_length, seed=seed
    )


def weights(agent: Agent, version: int) -> PolicyWeights:
    return PolicyWeights(version=version, tensors=actor_state(AMAGOConfig(), agent))


def order(vector_steps: int, *, env_steps: int = 0, seconds: float = 60.0) -> CollectRequest:
    return CollectRequest(
        weight_sync=0,
        vector_steps=vector_steps,
        seconds=seconds,
        env_steps=env_steps,
        deterministic=False,
    )


def fingerprints(trajectories: list[Trajectory]) -> list[tuple[bytes, bytes, int, float]]:
    return [(t.action.tobytes(), t.reward.tobytes(), t.policy_version, t.noise_scale) for t in trajectories]


def work_through(collector: CollectorWorker, orders: list[int], by: PolicyWeights) -> list[CollectResult]:
    results: list[CollectResult] = []
    for vector_steps in orders:
        done = sum(result.env_steps for result in results)
        results.append(collector.collect(order(vector_steps, env_steps=done), by))
    return results


def test_it_makes_what_a_collector_of_this_process_makes(config: RunConfig) -> None:
    agent = agent_of(config, seed=3)
    acting, exploring, environments = np.random.SeedSequence(config.seed, spawn_key=SEED).spawn(3)
    trials = config.env.build(4, int(environments.generate_state(1)[0]))
    generator = torch.Generator().manual_seed(int(acting.generate_state(1)[0]))
    policy = NetworkPolicy(agent, num_envs=4, generator=generator)
    policy.load_weights(agent, version=5)
    explorer = Explorer(config.exploration, trials.action_space, 4, np.random.default_rng(exploring))
    expected = list(collect_trials(Collector(trials, config.env.task_name, explorer), policy, 4 * 42))
    assert len(expected) == 4 * 10

    results = work_through(CollectorWorker(config, seed=SEED), [42], weights(agent, 5))
    assert fingerprints(list(results[0].trajectories)) == fingerprints(expected)
    assert {trajectory.policy_version for trajectory in expected} == {5}


def test_trials_continue_across_collect_requests(config: RunConfig) -> None:
    by = weights(agent_of(config, seed=3), 5)
    whole = work_through(CollectorWorker(config, seed=SEED), [42], by)
    results = work_through(CollectorWorker(config, seed=SEED), [1, 2, 3, 30, 6], by)
    assert [len(result.trajectories) for result in results] == [0, 0, 4, 32, 4]
    assert [result.env_steps for result in results] == [4, 8, 12, 120, 24]
    collected = [trajectory for result in results for trajectory in result.trajectories]
    assert fingerprints(collected) == fingerprints(list(whole[0].trajectories))


def test_another_seed_makes_other_trials(config: RunConfig) -> None:
    by = weights(agent_of(config, seed=3), 5)
    first, second = (
        work_through(CollectorWorker(config, seed=seed), [42], by)[0].trajectories for seed in (SEED, (0, 0, 0, 2))
    )
    assert fingerprints(list(first)) != fingerprints(list(second))


def test_a_trial_carries_the_version_that_began_it(config: RunConfig) -> None:
    collector = CollectorWorker(config, seed=SEED)
    agent = agent_of(config, seed=3)
    collector.collect(order(2), weights(agent, 10))
    second = collector.collect(order(6), weights(agent, 20))
    assert [trajectory.policy_version for trajectory in second.trajectories] == [10] * 4 + [20] * 4


def test_weights_are_taken_over_once(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = CollectorWorker(config, seed=SEED)
    agent = agent_of(config, seed=3)
    taken: list[int] = []
    monkeypatch.setattr(NetworkPolicy, "load_weights", lambda policy, agent, *, version: taken.append(version))
    for version in (0, 0, 4, 4, 9):
        collector.collect(order(1), weights(agent, version))
    assert taken == [0, 4, 9]


def test_the_clock_of_exploration_is_the_orders(config: RunConfig) -> None:
    agent = agent_of(config, seed=3)
    silent = replace(config, exploration=EpsilonGreedy(anneal_env_steps=1, initial_eps=1.0, final_eps=0.0))
    without, late, early = (
        CollectorWorker(either, seed=SEED).collect(order(4, env_steps=env_steps), weights(agent, 0)).trajectories
        for either, env_steps in ((silent, 1), (config, 400), (config, 0))
    )
    assert [t.action.tobytes() for t in late] == [t.action.tobytes() for t in without]
    assert [t.action.tobytes() for t in early] != [t.action.tobytes() for t in without]


def test_an_order_ends_early_where_it_takes_long(config: RunConfig) -> None:
    collector = CollectorWorker(config, seed=SEED)
    result = collector.collect(order(1000, seconds=0.0), weights(agent_of(config, seed=3), 0))
    assert result.vector_steps == 1
    assert result.seconds > 0.0
    assert result.idle_seconds > 0.0


def test_faults_come_with_the_collect_result_in_which_they_happened(config: RunConfig) -> None:
    env = EnvFnConfig(env_fn=Troubled(raises_at=6), horizon=4)
    strict = replace(config, env=env, context_length=0, fault_tolerance=replace(config.fault_tolerance, max_restarts=0))
    collector = CollectorWorker(strict, seed=SEED)
    by = weights(agent_of(strict, seed=3), 0)
    assert not collector.collect(order(5), by).faults
    result = collector.collect(order(1), by)
    assert [(fault.kind, "not today" in fault.message) for fault in result.faults] == [("exception", True)] * 4
    assert result.env_steps == 0
    after = collector.collect(order(4), by)
    assert (list(after.faults), after.num_finished, len(after.trajectories)) == ([], 4, 4)


def test_acting_needs_a_part_of_the_weights(config: RunConfig) -> None:
    one, other = agent_of(config, seed=3), agent_of(config, seed=4)
    tensors = actor_state(AMAGOConfig(), one)
    assert {name.split(".")[0] for name in tensors} == {"timestep_encoder", "trajectory_encoder", "actor"}
    critic_before = other.critic.state_dict()
    load_actor_state(AMAGOConfig(), other, tensors)
    assert all(np.array_equal(value, tensors[name]) for name, value in actor_state(AMAGOConfig(), other).items())
    assert all(torch.equal(value, critic_before[name]) for name, value in other.critic.state_dict().items())
    tensors[min(tensors)][...] = 17.0
    assert not np.array_equal(actor_state(AMAGOConfig(), one)[min(tensors)], tensors[min(tensors)])


def test_weights_of_another_network_are_refused(config: RunConfig) -> None:
    agent = agent_of(config, seed=3)
    tensors = actor_state(AMAGOConfig(), agent)
    first = min(tensors)
    with pytest.raises(ValueError, match=first):
        load_actor_state(AMAGOConfig(), agent, {name: value for name, value in tensors.items() if name != first})
    with pytest.raises(ValueError, match="unknown"):
        load_actor_state(AMAGOConfig(), agent, {**tensors, "unknown": np.zeros(1)})
    with pytest.raises(ValueError, match="size mismatch"):
        load_actor_state(AMAGOConfig(), agent, {**tensors, first: np.zeros((99, 99), np.float32)})
