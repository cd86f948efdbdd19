"""The whole temporal-difference path on a two-state MDP whose values are known.

state 0:  action 0 -> state 0, reward 0     action 1 -> state 1, reward 1
state 1:  action 0 -> state 0, reward 2     action 1 -> state 0, reward 1/2, and there it ends (or is cut off)
"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from yamame.algorithms.amago.agent import Agent, AgentConfig
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.losses.filtered_bc import FilteredBCLoss
from yamame.algorithms.amago.losses.policy_gradient import PolicyGradientLoss
from yamame.algorithms.amago.losses.td import TargetValues, TDLoss
from yamame.data.batch import ACTING_LOG_PROB, Batch, Window, pack
from yamame.data.trajectory import Trajectory
from yamame.nets.heads.actor import ActorConfig
from yamame.nets.heads.critic import CriticConfig
from yamame.nets.sequence.feedforward import FeedForwardConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig

Ending = Literal["terminated", "truncated"]
TRANSITIONS = ((0, 0, 0.0, 0), (0, 1, 1.0, 1), (1, 0, 2.0, 0), (1, 1, 0.5, 0))
"""State, action, reward, next state."""
DISCOUNTS = torch.tensor([0.5, 0.9], dtype=torch.float64)


def known_q(discount: float, *, last_one_ends: bool) -> np.ndarray:
    """Q of the uniformly random policy, in the order of `TRANSITIONS`: solves Q = r + gamma P Q."""
    moves = np.zeros((4, 4))
    for index, (_, _, _, following) in enumerate(TRANSITIONS):
        if not (index == 3 and last_one_ends):
            moves[index, 2 * following : 2 * following + 2] = 0.5
    return np.linalg.solve(np.eye(4) - discount * moves, [reward for _, _, reward, _ in TRANSITIONS])


def mdp_batch(ending: Ending, repeat: int = 1) -> Batch:
    """A window of one transition for each of the four."""
    windows = []
    for index, (state, action, reward, following) in enumerate(TRANSITIONS):
        ends = {kind: np.array([index == 3 and kind == ending]) for kind in ("terminated", "truncated")}
        trajectory = Trajectory(
            reward=np.array([reward], np.float32),
            action=np.array([action]),
            episode_start=np.array([True, False]),
            observation={"observation": np.array([state, following])},
            horizon=1,
            **ends,
        )
        windows += [Window(trajectory=trajectory, start=0, length=1)] * repeat
    return pack(windows, pad_tokens_to_multiple_of=4)


def test_the_known_values() -> None:
    """Without discount Q is the reward; otherwise Bellman's equation holds."""
    np.testing.assert_allclose(known_q(0.0, last_one_ends=True), [0.0, 1.0, 2.0, 0.5])
    q = known_q(0.5, last_one_ends=True)
    np.testing.assert_allclose(q[1], 1.0 + 0.5 * (q[2] + q[3]) / 2)
    np.testing.assert_allclose(q[3], 0.5)


def fixed_point(loss: TDLoss, ending: Ending) -> Tensor:
    """Q `[transition, G]` that `TDLoss.target` maps to itself, for the uniformly random policy."""
    batch = mdp_batch(ending)
    state_N = batch.observation["observation"]
    q = torch.zeros(4, len(DISCOUNTS), dtype=torch.float64)
    for _ in range(300):
        value = q.view(2, 2, -1).mean(1)
        values = TargetValues(value[state_N][:, None].expand(-1, 2, -1), None, None)
        q = loss.td_target(batch, values, DISCOUNTS, torch.Generator())[batch.loss_mask]
    return q


@pytest.mark.parametrize(
    ("ending", "truncation_is_terminal", "last_one_ends"),
    [
        ("terminated", False, True),
        ("terminated", True, True),
        ("truncated", True, True),
        ("truncated", False, False),
    ],
)
@pytest.mark.parametrize("n_step", [1, 3])
def test_repeated_targets_reach_the_known_values(
    ending: Ending, truncation_is_terminal: bool, last_one_ends: bool, n_step: int
) -> None:
    loss = TDLoss(reward_scale=1.0, truncation_is_terminal=truncation_is_terminal, n_step=n_step)
    expected = np.stack([known_q(gamma, last_one_ends=last_one_ends) for gamma in DISCOUNTS.tolist()], axis=1)
    np.testing.assert_allclose(fixed_point(loss, ending).numpy(), expected, atol=1e-9)


def test_traces_carry_the_last_reward_to_the_first_step_as_far_as_the_policy_agrees() -> None:
    """Values of 0, a reward at the end alone, and the second of three actions half as likely as it was."""
    trajectory = Trajectory(
        reward=np.array([0.0, 0.0, 1.0], np.float32),
        action=np.zeros(3, np.int64),
        terminated=np.array([False, False, True]),
        truncated=np.zeros(3, np.bool_),
        episode_start=np.array([True, False, False, False]),
        observation={"observation": np.zeros(4, np.int64)},
        horizon=3,
        extras={ACTING_LOG_PROB: np.log(np.array([0.5, 0.5, 0.5], np.float32))},
    )
    batch = pack([Window(trajectory=trajectory, start=0, length=3)], pad_tokens_to_multiple_of=4)
    zeros = torch.zeros(4, 2, 2).double()
    log_prob_NG = torch.tensor([0.5, 0.25, 0.9, 0.1]).double().log()[:, None].expand(-1, 2)
    values = TargetValues(zeros, zeros, log_prob_NG)
    loss = TDLoss(reward_scale=1.0, trace_decay=0.8)
    target_NG = loss.td_target(batch, values, DISCOUNTS, torch.Generator())
    expected = torch.stack([0.8 * 0.5 * 0.8 * DISCOUNTS**2, 0.8 * DISCOUNTS, DISCOUNTS**0])
    torch.testing.assert_close(target_NG[:3], expected, rtol=0, atol=1e-6)
    assert loss.uses_traces(batch) and not TDLoss().uses_traces(batch)
    assert not loss.uses_traces(replace(batch, extras={}))


def test_reward_scale_multiplies_targets_only() -> None:
    plain, scaled = (fixed_point(TDLoss(reward_scale=scale), "terminated") for scale in (1.0, 7.0))
    torch.testing.assert_close(scaled, 7.0 * plain, rtol=0, atol=1e-9)


def test_targets_are_the_minimum_of_a_subset_of_the_slow_critics() -> None:
    batch = mdp_batch("terminated", repeat=2000)
    next_q_NKG = torch.tensor([1.0, 2.0, 3.0]).double()[None, :, None].expand(len(batch.loss_mask), -1, 1)
    values = TargetValues(next_q_NKG, None, None)
    loss, half = TDLoss(reward_scale=1.0), torch.tensor([0.5]).double()
    first = batch.loss_mask & (batch.reward == 1.0)
    drawn = loss.td_target(batch, values, half, torch.Generator().manual_seed(0))[first]
    assert sorted(set(drawn.flatten().tolist())) == [1.5, 2.0]
    assert (drawn == 1.5).double().mean().item() == pytest.approx(2 / 3, abs=0.04)
    whole = replace(loss, num_critics_in_target=3).td_target(batch, values, half, torch.Generator())[first]
    assert set(whole.flatten().tolist()) == {1.5}
    means = loss.td_target(batch, values, half, torch.Generator().manual_seed(0), pessimistic=False)[first]
    assert sorted(set(means.flatten().tolist())) == [1.75, 2.0, 2.25]


def learned_agent(td: TDLoss, ending: Ending, monkeypatch: pytest.MonkeyPatch, **config: Any) -> Agent:
    """Critics trained on the four transitions while the policy stays uniformly random."""
    torch.manual_seed(0)
    agent = Agent(
        AgentConfig(
            timestep_encoder=TimestepEncoderConfig(hidden_sizes=(), output_size=8),
            trajectory_encoder=FeedForwardConfig(d_model=8, num_layers=1),
            actor=ActorConfig(hidden_sizes=()),
            critic=CriticConfig(num_critics=2, hidden_sizes=(16,)),
            gammas=(0.5,),
            acting_gamma=0.9,
            **config,
        ),
        observation_space=spaces.Discrete(2),
        action_space=spaces.Discrete(2),
        context_length=1,
        horizon=1,
    )
    for parameter in agent.actor.parameters():
        torch.nn.init.zeros_(parameter)
    agent.target_actor.load_state_dict(agent.actor.state_dict())
    # a state is its observation alone, so that the last slots of windows are states that training sees
    only_state = torch.arange(7) < 2
    features = agent.features
    monkeypatch.setattr(agent, "features", lambda batch: features(batch) * only_state)
    learner = Learner(
        agent,
        LearnerConfig(
            td=td,
            policy_gradient=PolicyGradientLoss(weight=0.0),
            filtered_bc=FilteredBCLoss(weight=0.0),
            learning_rate=1e-2,
            lr_warmup_updates=1,
            weight_decay=0.0,
            max_grad_norm=10.0,
            tau=0.3,
        ),
        generator=torch.Generator().manual_seed(0),
    )
    batch = mdp_batch(ending)
    for update in range(250):
        learner.config = replace(learner.config, learning_rate=1e-2 * (1 - update / 250))
        learner.update(batch)
    return agent


@torch.no_grad()
def learned_q(agent: Agent, reward_scale: float) -> np.ndarray:
    batch = mdp_batch("terminated")
    raw_NKGA = agent.critic(agent.encode(agent.features(batch), batch))[batch.loss_mask].squeeze(-1)
    action = batch.action[batch.loss_mask][:, None, None, None].expand(-1, *raw_NKGA.shape[1:3], 1)
    q_NKG = agent.value_code.denormalize(raw_NKGA.gather(3, action).squeeze(3))
    return q_NKG.mean(1).numpy() / reward_scale


@pytest.mark.parametrize(
    ("td", "ending", "last_one_ends", "popart"),
    [
        (TDLoss(), "terminated", True, True),
        (TDLoss(reward_scale=1.0, truncation_is_terminal=False), "truncated", False, False),
    ],
    ids=["terminated", "truncated, without PopArt"],
)
def test_critics_learn_the_known_values(
    td: TDLoss, ending: Ending, last_one_ends: bool, popart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = learned_q(learned_agent(td, ending, monkeypatch, popart=popart), td.reward_scale)
    expected = np.stack([known_q(gamma, last_one_ends=last_one_ends) for gamma in (0.5, 0.9)], axis=1)
    np.testing.assert_allclose(q, expected, rtol=0, atol=0.05)
