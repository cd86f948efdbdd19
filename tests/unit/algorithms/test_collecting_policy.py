"""The policy that collects: in which trials those of novelty and of the separate gamma act, and how."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tiny_agents import (
    DISCRETE,
    TINY_AGENT,
    ActionSpace,
    double_batch,
    every_action_space,
    random_step,
    random_windows,
    shake,
    tiny_agent,
)

from yamame.algorithms.amago.agent import AgentConfig
from yamame.algorithms.amago.collecting_policy import CollectingPolicy
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.novelty import NoveltyPolicyConfig
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.data.batch import ACTING_LOG_PROB
from yamame.errors import UserError

NOVELTY = NoveltyPolicyConfig(trial_fraction=0.5, num_updates=100, hidden_sizes=(16, 16))
SEPARATE = replace(TINY_AGENT, separate_gamma=0.999, separate_trial_fraction=0.25)
WITHOUT = replace(SEPARATE, multi_gamma=False)
OF_SEPARATE = 2
"""Index of the separate gamma among those of `SEPARATE`."""
ENVS = 4
step_at = partial(random_step, num_envs=ENVS)


@pytest.mark.parametrize("num_envs", [1, 2, 3, 4, 24])
@pytest.mark.parametrize("fraction", [0.25, 0.4, 1.0])
def test_novelty_acts_in_a_fraction_of_the_trials_of_each_environment(num_envs: int, fraction: float) -> None:
    policy = acting_policy(num_envs, fraction)
    turns = np.array([policy_turns(policy, np.zeros(num_envs, np.int64)) for _ in range(20)])
    np.testing.assert_array_equal(turns.mean(axis=0), fraction)
    for trials in turns:
        assert abs(trials.sum() - fraction * num_envs) < 1


def test_turns_are_those_of_trials_and_not_of_steps() -> None:
    policy = acting_policy(2, 0.25)
    rng = np.random.default_rng(0)
    times, trials, previous = np.zeros(2, np.int64), [[], []], np.zeros(2, np.bool_)
    for _ in range(200):
        turns = policy_turns(policy, times)
        for env in range(2):
            if times[env] == 0:
                trials[env].append(bool(turns[env]))
            else:
                assert turns[env] == previous[env]
        previous = turns
        times = np.where(rng.random(2) < 0.3, 0, times + 1)
    assert trials[0][:8] == [False, False, False, True] * 2
    assert trials[1][:8] == [False, False, True, False] * 2


def test_a_start_that_is_repeated_since_the_environment_resets_one_call_late_is_no_other_trial() -> None:
    policy, start = acting_policy(1, 0.25), replace(step_at(0, DISCRETE, num_envs=1), time=np.zeros(1, np.int64))
    turns = []
    for _ in range(8):
        policy.act(start)
        policy.act(replace(start, is_repeated=np.ones(1, np.bool_)))
        turns.append(bool(policy._acts_for_novelty_E))
    assert turns == [False, False, False, True] * 2


def test_turns_are_resumed() -> None:
    policy, resumed = acting_policy(3, 0.25), acting_policy(3, 0.25)
    start = np.zeros(3, np.int64)
    for _ in range(2):
        policy_turns(policy, start)
    resumed.load_state_dict(policy.state_dict())
    for _ in range(4):
        np.testing.assert_array_equal(policy_turns(policy, start), policy_turns(resumed, start))


def acting_policy(num_envs: int, fraction: float) -> CollectingPolicy:
    config = replace(NOVELTY, trial_fraction=fraction)
    agent = tiny_agent(novelty=config)
    agent.novelty.acts.fill_(value=True)  # type: ignore[union-attr]
    policy = AMAGOConfig(agent=TINY_AGENT, novelty=config).build_policy(
        agent, num_envs=num_envs, generator=torch.Generator(), collects=True
    )
    assert isinstance(policy, CollectingPolicy)
    return policy


def policy_turns(policy: CollectingPolicy, time_E: np.ndarray) -> np.ndarray:
    """Act at these times; return in which environments the policy of novelty did."""
    policy.act(replace(step_at(0, DISCRETE, num_envs=len(time_E)), time=time_E))
    turns_E: np.ndarray = policy._acts_for_novelty_E.numpy().copy()
    return turns_E


def test_novelty_acts_from_its_first_update_on() -> None:
    agent = tiny_agent(novelty=NOVELTY)
    learner = Learner(agent, LearnerConfig(lr_warmup_updates=1), generator=torch.Generator().manual_seed(0))
    assert learner.agent.novelty is not None and not learner.agent.novelty.acts
    collecting = AMAGOConfig(agent=TINY_AGENT, novelty=NOVELTY).build_policy(
        learner.agent, num_envs=ENVS, generator=torch.Generator(), collects=True
    )
    assert isinstance(collecting, CollectingPolicy)
    assert not policy_turns(collecting, np.zeros(ENVS, np.int64)).any()
    batch = double_batch(random_windows(0, (5, 9, 2)), token_multiple=8)
    learner.update(replace(batch, reward=torch.zeros_like(batch.reward)))
    collecting.load_weights(learner.agent, version=1)
    assert policy_turns(collecting, np.ones(ENVS, np.int64)).tolist() == [False, True, False, True]


def policies(config: AgentConfig, action_space: ActionSpace = DISCRETE) -> list[NetworkPolicy]:
    """One that collects, the one of the acting gamma and that of the separate one, of the same agent."""
    agent, algorithm = tiny_agent(config, action_space), AMAGOConfig(agent=config)
    shake(agent)
    return [
        of.build_policy(agent, num_envs=ENVS, generator=torch.Generator().manual_seed(0), collects=of is algorithm)
        for of in (algorithm, algorithm.with_policy(-1), algorithm.with_policy(OF_SEPARATE))
    ]


@every_action_space
def test_the_separate_gamma_acts_in_its_trials_and_the_acting_one_in_the_others(action_space: ActionSpace) -> None:
    collecting, own, separate = policies(SEPARATE, action_space)
    assert isinstance(collecting, CollectingPolicy)
    for trial in range(5):
        in_turn = (np.arange(ENVS) + trial) % 4 == 0
        for time in range(3):
            step = step_at(time, action_space)
            mixed, of_own, of_separate = (
                policy.act(step, deterministic=True).reshape(ENVS, -1) for policy in (collecting, own, separate)
            )
            np.testing.assert_allclose(mixed, np.where(in_turn[:, None], of_separate, of_own), rtol=1e-6)
    assert collecting.explores_E is not None and not collecting.explores_E.any()  # it gets the exploration noise


def test_there_is_no_policy_but_the_agents_without_a_fraction() -> None:
    collecting, *_ = policies(replace(SEPARATE, separate_trial_fraction=0.0))
    assert type(collecting) is NetworkPolicy


def test_a_fraction_without_a_separate_gamma_has_no_effect() -> None:
    agent, config = tiny_agent(WITHOUT), AMAGOConfig(agent=WITHOUT)
    shake(agent)
    collecting, own = (
        config.build_policy(agent, num_envs=ENVS, generator=torch.Generator(), collects=collects)
        for collects in (True, False)
    )
    for _ in range(4):
        step = step_at(0)
        np.testing.assert_array_equal(*(policy.act(step, deterministic=True) for policy in (collecting, own)))


@pytest.mark.parametrize("fraction", [-0.1, 1.1])
def test_a_fraction_out_of_range_is_refused(fraction: float) -> None:
    with pytest.raises(UserError, match="separate_trial_fraction"):
        replace(SEPARATE, separate_trial_fraction=fraction)


@pytest.mark.parametrize(("of_novelty", "of_separate"), [(0.25, 0.125), (0.25, 0.25), (0.5, 0.5)])
def test_both_have_their_fractions_of_the_trials(of_novelty: float, of_separate: float) -> None:
    config = replace(NOVELTY, trial_fraction=of_novelty)
    agent = tiny_agent(SEPARATE, novelty=config)
    agent.novelty.acts.fill_(value=True)  # type: ignore[union-attr]
    policy = AMAGOConfig(agent=replace(SEPARATE, separate_trial_fraction=of_separate), novelty=config).build_policy(
        agent, num_envs=ENVS, generator=torch.Generator(), collects=True
    )
    assert isinstance(policy, CollectingPolicy)
    turns = []
    for _ in range(16):
        policy.act(step_at(0))
        turns.append((policy._acts_for_novelty_E.numpy().copy(), policy._acts_separately_E.numpy().copy()))
    novelty, separate = (np.array(each) for each in zip(*turns, strict=True))
    np.testing.assert_array_equal(novelty.mean(0), of_novelty)
    np.testing.assert_array_equal(separate.mean(0), of_separate)
    assert not (novelty & separate).any()


def test_the_log_probability_is_that_of_the_policy_that_acted() -> None:
    agent = tiny_agent(SEPARATE)
    shake(agent)
    collecting, separate = (
        CollectingPolicy(
            agent, novelty_fraction=0.0, separate_fraction=fraction, gamma_index=index, num_envs=ENVS,
            generator=torch.Generator().manual_seed(0), records_log_prob=True,
        )
        for fraction, index in ((1.0, -1), (0.0, OF_SEPARATE))
    )  # fmt: skip
    recorded = []
    for policy in (collecting, separate):
        action = policy.act(step_at(0))
        recorded.append(policy.extras(action, np.zeros(ENVS), np.zeros(ENVS, np.bool_))[ACTING_LOG_PROB])
    np.testing.assert_allclose(*recorded, rtol=1e-5)


def test_the_weights_of_the_separate_actor_follow_those_of_the_agent() -> None:
    agent = tiny_agent(SEPARATE)
    collecting = CollectingPolicy(
        agent, novelty_fraction=0.0, separate_fraction=1.0, num_envs=ENVS, generator=torch.Generator()
    )
    assert agent.separate is not None
    for action in (2, 1):
        with torch.no_grad():
            agent.separate.acting_actor.mlp.output.weight.zero_()
            agent.separate.acting_actor.mlp.output.bias.copy_(40.0 * torch.eye(3)[action])
        collecting.load_weights(agent, version=1)
        assert collecting.act(step_at(0), deterministic=True).tolist() == [action] * ENVS
