"""What an agent makes of a trial: the policy's own probabilities, the agent's own values, of every kind of action."""

from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
import torch
from tiny_agents import TINY_AGENT, ActionSpace, every_action_space, random_trajectory, shake, tiny_agent

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.analysis import analyze_trajectory
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.data.actions import num_choices, zero_action
from yamame.data.batch import Window, pack
from yamame.data.step import PolicyInput
from yamame.data.trajectory import Trajectory
from yamame.nets.heads.distributions import CategoricalPolicy
from yamame.nets.heads.tanh_gaussian import TanhGaussianPolicy
from yamame.nets.sequence.gru import GRUConfig

pytestmark = pytest.mark.slow

LENGTH, CONTEXT = 30, 12


def shaken(action_space: ActionSpace, *, averaged: bool = False, clips: bool = True) -> Agent:
    config = replace(TINY_AGENT, actor=replace(TINY_AGENT.actor, clip_evaluation=clips))
    agent = tiny_agent(config, action_space, context_length=CONTEXT, dtype=torch.float32, averaged=averaged)
    shake(agent)
    agent.value_code.mean_G.fill_(3.0)
    agent.value_code.scale_G.fill_(0.7)
    return agent


def moments(trajectory: Trajectory, action_space: ActionSpace) -> list[PolicyInput]:
    """The trial as one environment shows it to a policy, moment by moment."""
    blank = zero_action(action_space, 1)
    return [
        PolicyInput(
            time=np.array([time]),
            observation={name: leaf[time : time + 1] for name, leaf in trajectory.observation.items()},
            previous_action=trajectory.action[time - 1 : time] if time else blank,
            previous_reward=trajectory.reward[time - 1 : time] if time else np.zeros(1, np.float32),
            episode_start=trajectory.episode_start[time : time + 1],
        )
        for time in range(len(trajectory) + 1)
    ]


@pytest.mark.parametrize(("gamma_index", "averaged", "clips"), [(-1, False, True), (0, True, True), (-1, True, False)])
@every_action_space
def test_probabilities_are_those_that_the_policy_acts_by(
    action_space: ActionSpace, gamma_index: int, averaged: bool, clips: bool
) -> None:
    """Over a trial longer than the context, where the attention window matters."""
    agent = shaken(action_space, averaged=averaged, clips=clips)
    trajectory = random_trajectory(np.random.default_rng(0), LENGTH, action_space)
    policy = NetworkPolicy(agent, num_envs=1, generator=torch.Generator(), gamma_index=gamma_index, clips=clips)
    found = analyze_trajectory(agent, trajectory, reward_scale=1.0, gamma_index=gamma_index).action_distributions
    assert found.num_choices == num_choices(action_space)
    for time, now in enumerate(moments(trajectory, action_space)):
        acting = policy.distribution(now)
        if isinstance(acting, TanhGaussianPolicy):
            assert found.mean_TA is not None and found.std_TA is not None and found.probability_TA is None
            np.testing.assert_allclose(found.mean_TA[time], acting.mean_NGA[0, 0], atol=1e-4)
            np.testing.assert_allclose(found.std_TA[time], acting.log_std_NGA[0, 0].exp(), rtol=1e-4)
            continue
        assert found.probability_TA is not None and found.mean_TA is None
        parts = np.split(found.probability_TA[time], list(accumulate(found.num_choices))[:-1])
        each = acting if isinstance(acting, CategoricalPolicy) else acting.categorical
        for row, part in enumerate(parts):
            np.testing.assert_allclose(part, each.probability_NGA[row, 0, : len(part)], atol=1e-5)
            assert part.sum() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("averaged", [False, True])
@every_action_space
@torch.no_grad()
def test_values_are_the_agents(action_space: ActionSpace, averaged: bool) -> None:
    agent = shaken(action_space, averaged=averaged)
    trajectory = random_trajectory(np.random.default_rng(0), LENGTH, action_space)
    found = analyze_trajectory(agent, trajectory, reward_scale=10.0)
    batch = pack([Window(trajectory=trajectory, start=0, length=LENGTH)], pad_tokens_to_multiple_of=1)
    state_ND = agent.encode(agent.features(batch), batch)
    policy = agent.actor(state_ND)
    noise = None if agent.actor.discrete else torch.zeros(LENGTH + 1, 3, agent.actor.action_size)
    output, _ = agent.critic.q_values(state_ND, batch.action, policy, noise, agent.value_code)
    q_NKG = agent.value_code.decode(output)
    value_NKG = agent.critic.policy_q(state_ND, policy, noise, agent.value_code)
    np.testing.assert_allclose(found.q_TG, agent.value_code.denormalize(q_NKG).mean(1)[:-1] / 10, atol=1e-5)
    np.testing.assert_allclose(found.value_TG, agent.value_code.denormalize(value_NKG).mean(1) / 10, atol=1e-5)
    assert found.q_TG.shape == (LENGTH, 3) and found.value_TG.shape == (LENGTH + 1, 3)
    np.testing.assert_allclose(found.gammas_G, agent.gammas_G)
    assert found.attention is not None and found.attention.attention_window == CONTEXT + 1
    np.testing.assert_allclose(found.attention.weight_LHTS.sum(3), 1.0, atol=1e-5)


def test_a_recurrent_agent_has_values_but_no_attention() -> None:
    agent = tiny_agent(replace(TINY_AGENT, trajectory_encoder=GRUConfig(d_model=8)), dtype=torch.float32)
    found = analyze_trajectory(agent, random_trajectory(np.random.default_rng(0), LENGTH), reward_scale=1.0)
    assert found.attention is None and found.max_abs_LPT is None
    assert found.q_TG.shape == (LENGTH, 3) and np.isfinite(found.value_TG).all()
