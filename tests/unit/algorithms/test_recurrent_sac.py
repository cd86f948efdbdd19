"""Recurrent SAC and TD3: targets and losses against slow loops, what each gradient reaches, and exact state."""

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from recurrent_agents import TINY_RECURRENT, recurrent_agent, recurrent_learner
from tiny_agents import CONTINUOUS, DISCRETE, SEVERAL, ActionSpace, double_batch, every_action_space, random_windows
from torch import Tensor, nn

from yamame.algorithms.recurrent_sac.learner import (
    RecurrentSAC,
    RecurrentSACLearnerConfig,
    boltzmann_cross_entropy,
    td_target,
)
from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.batch import Batch, Window, pack
from yamame.data.trajectory import Trajectory
from yamame.errors import UserError
from yamame.metrics.registry import METRICS
from yamame.nets.compute import Compute
from yamame.nets.heads.distributions import CategoricalPolicy

SAC = RecurrentSACLearnerConfig()
TD3 = RecurrentSACLearnerConfig(method="td3")
SHARED = replace(TINY_RECURRENT, shared=True)
LENGTHS = (7, 4, 1, 9)


def batch_of(action_space: ActionSpace = DISCRETE, seed: int = 0) -> Batch:
    return double_batch(random_windows(seed, LENGTHS, action_space), token_multiple=8)


def masked(batch: Batch, mask_NA: Tensor) -> Batch:
    return replace(batch, observation={**batch.observation, ACTION_MASK_KEY: mask_NA})


def windows_of(batch: Batch) -> Iterator[range]:
    """The tokens of each window that have a transition."""
    for start, end in zip(batch.cu_seqlens.tolist(), batch.cu_seqlens.tolist()[1:], strict=False):
        yield range(start, end - 1)


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def moved(before: dict[str, Tensor], module: nn.Module) -> set[str]:
    """The parts of a module that changed."""
    return {name.partition(".")[0] for name, value in weights(module).items() if not torch.equal(value, before[name])}


@pytest.mark.parametrize("truncation_is_terminal", [True, False])
def test_targets_are_those_of_a_slow_loop(truncation_is_terminal: bool) -> None:
    batch = batch_of()
    value_N = torch.randn(len(batch.reward), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    target_N = td_target(batch, value_N, gamma=0.9, truncation_is_terminal=truncation_is_terminal)
    ended = 0
    for window in windows_of(batch):
        for token in window:
            ends = bool(batch.terminated[token]) or (truncation_is_terminal and bool(batch.truncated[token]))
            ended += ends
            expected = float(batch.reward[token]) + (0.0 if ends else 0.9 * float(value_N[token + 1]))
            assert float(target_N[token]) == pytest.approx(expected)
    assert ended > 0


def test_the_value_of_a_single_choice_is_the_expectation_of_the_minimum() -> None:
    learner, batch = recurrent_learner(), batch_of()
    agent = learner.agent
    with torch.no_grad():
        features = agent.features(batch)
        state_ND = agent.target_encoders(features, batch)
        policy = agent.actor(agent.encoders(features, batch))
        q_NKA = torch.stack(
            [agent.action_values(state_ND, torch.full_like(batch.action, each), target=True) for each in range(3)], 2
        )
        value_N = learner._next_value(features, batch, policy)
    probability_NA = policy.probability_NGA[:, 0]
    for token in range(len(batch.reward)):
        expected = 0.0
        for action in range(3):
            p = float(probability_NA[token, action])
            expected += p * (min(float(q) for q in q_NKA[token, :, action]) - 0.2 * math.log(p))
        assert float(value_N[token]) == pytest.approx(expected, abs=1e-6)


def test_the_value_of_a_continuous_action_is_that_of_a_sample() -> None:
    learner, batch = recurrent_learner(action_space=CONTINUOUS), batch_of(CONTINUOUS)
    agent = learner.agent
    before = learner.generator.get_state()
    with torch.no_grad():
        features = agent.features(batch)
        state_ND, actor_ND = agent.target_encoders(features, batch), agent.encoders(features, batch)
        policy = agent.actor(actor_ND)
        value_N = learner._next_value(features, batch, policy)
        learner.generator.set_state(before)
        noise = agent.actor.sample_noise(actor_ND, learner.generator)
        action_NA = (policy.mean_NGA + policy.log_std_NGA.exp() * noise)[:, 0].tanh()
        q_NK = agent.action_values(state_ND, action_NA, target=True)
    expected_N = q_NK.min(1).values + 0.2 * policy.entropy(noise)[:, 0]
    torch.testing.assert_close(value_N, expected_N, rtol=0, atol=1e-6)


def test_targets_of_td3_have_clipped_noise() -> None:
    config = replace(TD3, target_noise=3.0, target_noise_clip=0.1)
    learner, batch = recurrent_learner(action_space=CONTINUOUS, learner=config), batch_of(CONTINUOUS)
    agent = learner.agent
    actions: list[Tensor] = []
    original = agent.action_values

    def recorded(state_ND: Tensor, action: Tensor, *, target: bool = False) -> Tensor:
        actions.append(action)
        return original(state_ND, action, target=target)

    agent.action_values = recorded  # type: ignore[method-assign]
    with torch.no_grad():
        features = agent.features(batch)
        learner._next_value(features, batch, agent.actor(agent.encoders(features, batch)))
        assert agent.target_actor is not None and agent.target_actor_encoders is not None
        mode_NA = agent.target_actor(agent.target_actor_encoders(features, batch)).mode()[:, 0]
    (action_NA,) = actions
    noise_NA = action_NA - mode_NA
    assert float(noise_NA.abs().max()) <= 0.1 + 1e-9 < 3.0
    assert float((noise_NA.abs() > 0.0999).double().mean()) > 0.8
    assert float(action_NA.abs().max()) <= 1.0


@every_action_space
@pytest.mark.parametrize("config", [TINY_RECURRENT, SHARED], ids=["separate", "shared"])
def test_each_loss_moves_its_own_networks(config: Any, action_space: ActionSpace) -> None:
    learner, batch = recurrent_learner(config, action_space), batch_of(action_space)
    agent = learner.agent
    features = agent.features(batch)

    def mean(value_N: Tensor) -> Tensor:
        return value_N[batch.loss_mask].mean()

    critic_ND = agent.value_encoders(features, batch)
    actor_ND = critic_ND.detach() if config.shared else agent.encoders(features, batch)
    losses, _ = learner._actor_losses(batch, critic_ND, agent.actor(actor_ND), mean)
    losses["loss/actor"].backward()
    reached = {name.partition(".")[0] for name, each in agent.named_parameters() if each.grad is not None}
    assert reached == ({"actor"} if config.shared else {"actor", "encoders"})

    before = weights(agent)
    metrics = learner.update(batch)
    parts = {"encoders", "actor", "critic", "log_temperature", "target_encoders", "target_critic"}
    assert moved(before, agent) == (parts if config.shared else parts | {"critic_encoders"})
    assert all(torch.isfinite(value) for value in metrics.values())
    assert set(metrics) <= {metric.key for metric in METRICS}


def test_shared_and_separate_networks() -> None:
    separate, shared = recurrent_agent(), recurrent_agent(SHARED)
    ids = [{id(each) for each in part.parameters()} for part in (separate.encoders, separate.value_encoders)]
    assert not ids[0] & ids[1]
    assert shared.value_encoders is shared.encoders
    assert {id(each) for each in shared.actor_parameters()} == {id(each) for each in shared.actor.parameters()}
    trained = [*separate.actor_parameters(), *separate.critic_parameters(), separate.log_temperature]
    assert {id(each) for each in trained} == {id(each) for each in separate.parameters() if each.requires_grad}


def test_targets_follow_slowly_and_share_the_statistics_of_inputs() -> None:
    learner = recurrent_learner()
    agent = learner.agent
    before = copy.deepcopy(agent)
    learner.update(batch_of())
    for target, old, online in (
        (agent.target_critic, before.target_critic, agent.critic),
        (agent.target_encoders, before.target_encoders, agent.value_encoders),
    ):
        for name, value in weights(target).items():
            was, now = weights(old)[name], weights(online)[name]
            torch.testing.assert_close(value, was + 0.005 * (now - was))
    means = [each.timestep_encoder.normalizer.mean for each in agent._all_encoders()]
    assert float(means[0].abs().sum()) > 0
    assert all(torch.equal(mean, means[0]) for mean in means) and len(means) == 3


def test_td3_updates_its_actor_and_targets_every_second_time() -> None:
    learner = recurrent_learner(action_space=CONTINUOUS, learner=TD3)
    batch = batch_of(CONTINUOUS)
    before = weights(learner.agent)
    assert "loss/actor" not in learner.update(batch)
    assert moved(before, learner.agent) == {"critic", "critic_encoders"}
    before = weights(learner.agent)
    assert "loss/actor" in learner.update(batch)
    online = {"critic", "critic_encoders", "actor", "encoders"}
    targets = {"target_critic", "target_encoders", "target_actor", "target_actor_encoders"}
    assert moved(before, learner.agent) == online | targets


def test_critics_without_hidden_layer_are_refused_by_the_name_of_the_field() -> None:
    with pytest.raises(UserError, match=r"^critic_hidden_sizes must have at least one hidden layer"):
        replace(TINY_RECURRENT, critic_hidden_sizes=())


def test_td3_has_no_discrete_actions() -> None:
    with pytest.raises(UserError, match="TD3 needs continuous actions"):
        recurrent_agent(learner=TD3)


def test_target_entropies() -> None:
    batch = batch_of()
    config = replace(SAC, target_entropy_fraction=0.5)
    assert recurrent_learner(learner=config)._target_entropy(batch).tolist() == pytest.approx(
        [0.5 * math.log(3)] * len(batch.reward)
    )
    mask_NA = torch.zeros(len(batch.reward), 5, dtype=torch.bool)
    mask_NA[:, [0, 1, 4]] = True  # two of the three choices of the first component, one of the other two
    several = masked(batch_of(SEVERAL), mask_NA)
    entropy_N = recurrent_learner(action_space=SEVERAL, learner=config)._target_entropy(several)
    assert torch.allclose(entropy_N[several.token_mask], torch.tensor(0.5 * math.log(2)).to(entropy_N.dtype))
    continuous = recurrent_learner(action_space=CONTINUOUS)._target_entropy(batch_of(CONTINUOUS))
    assert set(continuous.tolist()) == {-2.0}


def test_the_target_entropy_falls() -> None:
    batch = batch_of()
    config = replace(
        SAC, target_entropy_fraction=0.8, final_target_entropy_fraction=0.2, target_entropy_anneal_updates=3
    )
    learner = recurrent_learner(learner=config)
    targets = [float(learner.update(batch)["actor/target_entropy"]) for _ in range(5)]
    assert targets == pytest.approx([fraction * math.log(3) for fraction in (0.6, 0.4, 0.2, 0.2, 0.2)])


@pytest.mark.slow
def test_the_temperature_moves_the_entropy_to_its_target() -> None:
    rates = {"learning_rate": 0.02, "temperature_learning_rate": 0.02, "tau": 0.1}
    config = replace(SAC, **rates, target_entropy_fraction=0.5)
    agent, batch = replace(TINY_RECURRENT, acting_gamma=0.5), batch_of()
    learner = recurrent_learner(agent, learner=config)
    rewarded = replace(batch, reward=(batch.action == 1).double())  # one action is better by 1
    for _ in range(500):
        metrics = learner.update(rewarded)
    assert float(metrics["actor/entropy"]) == pytest.approx(0.5 * math.log(3), abs=0.06)
    assert 0.1 < float(metrics["actor/temperature"]) < 1.0

    fixed = recurrent_learner(agent, learner=replace(config, automatic_temperature=False))
    for _ in range(20):
        metrics = fixed.update(rewarded)
    assert float(metrics["actor/temperature"]) == pytest.approx(0.2)


@pytest.mark.parametrize("allows_all", [True, False])
def test_a_policy_that_excludes_the_better_action_is_corrected_at_once(allows_all: bool) -> None:
    logits_NGA = torch.tensor([[[30.0, 0.0, 0.0]]], requires_grad=True)
    allowed_N1A = None if allows_all else torch.tensor([[[True, True, False]]])
    policy = CategoricalPolicy.from_logits(logits_NGA, (1e-8, 1.0), allowed_N1A)
    q_NA, temperature = torch.tensor([[0.0, 1.0, 1.0 if allows_all else 5.0]]), torch.tensor(0.01)
    loss_N = boltzmann_cross_entropy(policy, q_NA, temperature)
    loss_N.sum().backward()
    expected = [1.0, -0.5, -0.5] if allows_all else [1.0, -1.0, 0.0]  # of the expectation of Q: below 1e-12
    torch.testing.assert_close(logits_NGA.grad, torch.tensor([[expected]]))


def test_the_best_policy_has_no_gradient() -> None:
    q_NA, temperature = torch.tensor([[0.3, -0.2, 0.1]]), torch.tensor(0.5)
    logits_NGA = (q_NA / temperature)[:, None].requires_grad_()
    policy = CategoricalPolicy.from_logits(logits_NGA, (1e-8, 1.0))
    loss_N = boltzmann_cross_entropy(policy, q_NA, temperature)
    loss_N.sum().backward()
    torch.testing.assert_close(logits_NGA.grad, torch.zeros(1, 1, 3), rtol=0.0, atol=1e-6)
    torch.testing.assert_close(loss_N, policy.entropy()[:, 0])


def test_values_do_not_lose_their_digits_in_bfloat16() -> None:
    """Values are not normalized: those of 90 would differ by steps of 0.5."""
    batch = pack(random_windows(0, LENGTHS), pad_tokens_to_multiple_of=8)
    agent, generator = recurrent_agent(dtype=torch.float32), torch.Generator().manual_seed(0)
    learner = RecurrentSAC(agent, SAC, generator=generator, compute=Compute(dtype=torch.bfloat16))
    for critic in (learner.agent.critic, learner.agent.target_critic):
        critic.layers[-1].bias.data += 90.0
    seen: list[Tensor] = []
    learner.agent.critic.register_forward_hook(lambda module, inputs, output: seen.append(output))
    learner.update(batch)
    assert seen and all(len(values.unique()) > values.numel() / 2 for values in seen)


def test_masked_actions_have_no_part() -> None:
    """Neither values nor losses depend on what the critics say about them."""
    batch = batch_of()
    mask_NA = torch.ones(len(batch.reward), 3, dtype=torch.bool)
    mask_NA[:, 2] = False
    batch = masked(replace(batch, action=batch.action.clamp(max=1)), mask_NA)
    results = []
    for offset in (0.0, 100.0):
        learner = recurrent_learner()
        for critic in (learner.agent.critic, learner.agent.target_critic):
            with torch.no_grad():
                critic.layers[-1].bias[..., 2] += offset
        results.append(learner.update(batch))
        assert all(torch.isfinite(value) for value in results[-1].values())
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("learner_config", [SAC, TD3], ids=["sac", "td3"])
@pytest.mark.parametrize("config", [TINY_RECURRENT, SHARED], ids=["separate", "shared"])
def test_a_restored_learner_continues_exactly(config: Any, learner_config: RecurrentSACLearnerConfig) -> None:
    def make(seed: int) -> RecurrentSAC:
        return recurrent_learner(config, CONTINUOUS, learner=learner_config, seed=seed, dtype=torch.float32)

    def float_batch(seed: int) -> Batch:
        return batch_of(CONTINUOUS, seed).apply(lambda x: x.float() if x.dtype == torch.float64 else x)

    learner = make(0)
    for seed in range(3):
        learner.update(float_batch(seed))
    state = copy.deepcopy(learner.state_dict())
    other = make(1)
    other.load_state_dict(state)
    for seed in range(3, 6):
        one, two = (each.update(float_batch(seed)) for each in (learner, other))
        assert all(torch.equal(one[name], two[name]) for name in one)
    final = learner.state_dict(), other.state_dict()
    assert all(torch.equal(final[0]["model"][name], final[1]["model"][name]) for name in final[0]["model"])
    assert final[0]["updates"] == final[1]["updates"] == 6


@pytest.mark.parametrize("learner_config", [SAC, TD3], ids=["sac", "td3"])
def test_a_nonfinite_update_changes_nothing(learner_config: RecurrentSACLearnerConfig) -> None:
    config = replace(learner_config, max_nonfinite_updates=2, actor_interval=1)
    learner, batch = recurrent_learner(action_space=CONTINUOUS, learner=config), batch_of(CONTINUOUS)
    learner.update(batch)
    before = {name: value.clone() for name, value in learner.agent.state_dict().items()}
    broken = replace(batch, reward=torch.full_like(batch.reward, 1e300))
    learner.update(broken)
    learner.raise_if_diverged()
    learner.update(broken)
    assert all(torch.equal(value, before[name]) for name, value in learner.agent.state_dict().items())
    assert learner.metrics() == {"optim/nonfinite_updates": 2.0}
    with pytest.raises(UserError, match="the reward has numbers of 1e\\+300"):
        learner.raise_if_diverged()
    learner.update(batch)
    learner.raise_if_diverged()


def two_step_batch(repeat: int) -> Batch:
    """All four trials of a two-step task: the reward is 1 where the second action equals the first."""
    windows = []
    for first in range(2):
        for second in range(2):
            trajectory = Trajectory(
                reward=np.array([0.0, float(first == second)], np.float32),
                action=np.array([first, second]),
                terminated=np.array([False, True]),
                truncated=np.zeros(2, np.bool_),
                episode_start=np.array([True, False, False]),
                observation={"observation": np.zeros((3, 1), np.float32)},
                horizon=2,
            )
            windows += [Window(trajectory=trajectory, start=0, length=2)] * repeat
    return pack(windows)


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY_RECURRENT, SHARED], ids=["separate", "shared"])
def test_values_and_policy_of_a_two_step_task_of_memory(config: Any) -> None:
    """The second action must repeat the first, which the observation does not show. True soft values are known."""
    temperature, gamma = 0.1, 0.9
    learner_config = replace(
        SAC, learning_rate=3e-3, tau=0.05, initial_temperature=temperature, automatic_temperature=False
    )
    observation_space = spaces.Dict({"observation": spaces.Box(-1.0, 1.0, (1,), np.float32)})
    learner = recurrent_learner(
        replace(config, acting_gamma=gamma),
        spaces.Discrete(2),
        learner=learner_config,
        observation_space=observation_space,
        dtype=torch.float32,
    )
    batch = two_step_batch(4)
    for _ in range(700):
        learner.update(batch)
    agent = learner.agent
    with torch.no_grad():
        features = agent.features(batch)
        q_N = agent.action_values(agent.value_encoders(features, batch), batch.action).mean(1)
        probability_NA = agent.actor(agent.encoders(features, batch)).probability_NGA[:, 0]
    # soft value of the second step: temperature * log(sum of exp(reward / temperature))
    value = temperature * math.log(math.exp(1.0 / temperature) + 1.0)
    for window in windows_of(batch):
        first, second = window
        assert float(q_N[first]) == pytest.approx(gamma * value, abs=0.05)
        assert float(q_N[second]) == pytest.approx(float(batch.reward[second]), abs=0.05)
        assert float(probability_NA[second, batch.action[first]]) > 0.98
        assert float(probability_NA[first, 0]) == pytest.approx(0.5, abs=0.15)
