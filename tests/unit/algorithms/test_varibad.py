"""variBAD against slow loops; which gradients reach what; exact continuation; units; that acting equals learning."""

import copy
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest
import torch
from action_environments import LegalMoves, ReachPoint, RepeatPair, RepeatParts
from belief_runs import TINY_AGENT, TINY_BELIEF_RUN, builder, collect, make_updates
from tiny_agents import DISCRETE, HORIZON, OBSERVATIONS, random_trajectory
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from yamame.algorithms.functional_network_policy import FunctionalNetworkPolicy
from yamame.algorithms.varibad.agent import VariBADAgent, VariBADAgentConfig
from yamame.algorithms.varibad.belief import Belief
from yamame.algorithms.varibad.config import VariBADConfig
from yamame.algorithms.varibad.decoder import DecoderConfig
from yamame.algorithms.varibad.learner import VariBAD
from yamame.algorithms.varibad.losses import belief_kl
from yamame.algorithms.varibad.settings import VariBADLearnerConfig
from yamame.algorithms.varibad.vae import BeliefLearner
from yamame.data.batch import ACTING_LOG_PROB, Batch, Window, pack
from yamame.data.codec import CorruptedRecordError
from yamame.envs.env_fn import env_config
from yamame.errors import UserError
from yamame.nets.compute import CPU_FLOAT32
from yamame.nets.sequence.gru import GRUConfig
from yamame.recipes import config_from_flags, config_from_overrides, load_recipe, own_recipe, with_algorithm
from yamame.run_config import RunConfig

LENGTHS = (5, 3, 7)
AGENT = VariBADAgentConfig(**TINY_AGENT)


def tiny_varibad(**changes: Any) -> RunConfig:
    recipe = with_algorithm(load_recipe("passive-tmaze"), "varibad")
    return config_from_overrides(recipe, [], {"env.horizon": 6, **TINY_BELIEF_RUN, **changes})


def own_varibad(env: type[gymnasium.Env[Any, Any]]) -> RunConfig:
    recipe = with_algorithm(own_recipe(env_config(env, horizon=None, attempts=1)), "varibad")
    return config_from_overrides(recipe, [], {"env.num_workers": 0, **TINY_BELIEF_RUN})


@pytest.fixture
def built(tmp_path: Path) -> Iterator[Any]:
    with builder(tmp_path) as build:
        yield build


def learner(*, dtype: torch.dtype = torch.float32, **changes: Any) -> BeliefLearner:
    torch.manual_seed(0)
    agent = VariBADAgent(
        AGENT, observation_space=OBSERVATIONS, action_space=DISCRETE, context_length=HORIZON, horizon=HORIZON
    )
    for module in agent.modules():
        for name, parameter in module.named_parameters(recurse=False):
            parameter.data = parameter.data.to(dtype)
            setattr(module, name, parameter)
    config = VariBADLearnerConfig(**changes)
    generator = torch.Generator().manual_seed(1)
    return BeliefLearner(agent, config, context_length=HORIZON, generator=generator, compute=CPU_FLOAT32)


def batch_of_trials(seed: int = 0, *, scale: float = 1.0, constant: bool = False) -> Batch:
    rng = np.random.default_rng(seed)
    trials = [random_trajectory(rng, length) for length in LENGTHS]
    rewards = [(scale * (np.ones_like(each.reward) if constant else each.reward)).astype(np.float32) for each in trials]
    trials = [replace(each, reward=reward) for each, reward in zip(trials, rewards, strict=True)]
    return pack([Window(trajectory=each, start=0, length=len(each)) for each in trials])


def double(batch: Batch) -> Batch:
    return batch.apply(lambda each: each.double() if each.dtype == torch.float32 else each)


def test_kl_against_the_closed_form_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, log_variance = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    first = torch.tensor([True, False, False, True, False, True])
    found = belief_kl(Belief(mean, log_variance), first)
    for index in range(6):
        own = Normal(mean[index], (0.5 * log_variance[index]).exp())
        prior = Normal(torch.zeros(3, dtype=torch.float64), 1.0)
        if not first[index]:
            prior = Normal(mean[index - 1], (0.5 * log_variance[index - 1]).exp())
        assert float(found[index]) == pytest.approx(float(kl_divergence(own, prior).sum()), abs=1e-12)
    assert float(belief_kl(Belief(torch.zeros(1, 3), torch.zeros(1, 3)), torch.tensor([True]))) == 0.0


def slow_loss(of: BeliefLearner, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of squared errors, of divergences, and number of predictions, by loops over windows, t and transitions."""
    agent, decoder = of.agent, of.agent.decoder
    features = agent.features(batch)
    mean, log_variance = agent.belief(features, batch)
    vector = decoder.encoder(features, batch.observation)
    noise = torch.randn(3, batch.max_seqlen, 2, generator=torch.Generator().manual_seed(1), dtype=mean.dtype)
    rewards = batch.reward[batch.loss_mask]
    normal = (batch.reward - rewards.mean()) / rewards.std(unbiased=False)
    error, divergence, count = mean.new_zeros(()), mean.new_zeros(()), mean.new_zeros(())
    for window, (start, end) in enumerate(
        zip(batch.cu_seqlens[:-1].tolist(), batch.cu_seqlens[1:].tolist(), strict=True)
    ):
        before = Normal(torch.zeros(2, dtype=mean.dtype), 1.0)
        for time in range(end - start):
            now = Normal(mean[start + time], (0.5 * log_variance[start + time]).exp())
            divergence = divergence + kl_divergence(now, before).sum()
            before = now
            latent = now.loc + now.scale * noise[window, time]
            for token in range(start, end - 1):
                pair = torch.cat([vector[token], vector[token + 1]])
                hidden = decoder.activation(decoder.of_latent(latent) + decoder.of_transition(pair))
                error = error + (decoder.mlp(hidden)[0] - normal[token]).square()
                count = count + 1
    return error, divergence, count


def test_the_loss_and_its_gradient_are_those_of_slow_loops() -> None:
    fast, slow = (learner(dtype=torch.float64, kl_weight=0.3, vae_max_grad_norm=1e9) for _ in range(2))
    batch = double(batch_of_trials())
    metrics = fast.update(batch)
    agent = slow.agent
    agent.decoder.encoder.update_normalizers(agent.features(batch), batch.observation, batch.token_mask)
    error, divergence, count = slow_loss(slow, batch)
    assert int(count) == sum(length * (length + 1) for length in LENGTHS), "every belief, and the whole trial"
    torch.testing.assert_close(metrics["loss/reconstruction"], (error / count).detach(), rtol=1e-9, atol=1e-9)
    tokens = sum(LENGTHS) + len(LENGTHS)
    torch.testing.assert_close(metrics["loss/belief_kl"], (divergence / tokens).detach(), rtol=1e-9, atol=1e-9)
    ((error + 0.3 * divergence) / count).backward()
    for found, expected in zip(fast.agent.belief_parameters(), agent.belief_parameters(), strict=True):
        assert found.grad is not None and expected.grad is not None
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-8, atol=1e-10)


def test_of_long_trials_some_beliefs_are_decoded_none_twice_and_none_of_padding() -> None:
    some = learner(max_decoded_steps=4)
    mask = torch.arange(8) < torch.tensor([8, 3, 5])[:, None]
    seen = torch.zeros(3, 8)
    for _ in range(50):
        index, decoded = some._choose(mask)
        assert index.shape == (3, 4) and torch.equal(decoded.sum(1), torch.tensor([4, 3, 4]))
        for row in range(3):
            chosen = index[row][decoded[row]]
            assert len(chosen.unique()) == len(chosen) and mask[row, chosen].all()
            seen[row, chosen] += 1
    assert torch.equal(seen > 0, mask) and float(seen[0].min()) > 15 and float(seen[0].max()) < 35


def test_a_subset_has_the_same_mean_loss() -> None:
    batch = batch_of_trials()
    whole = float(learner().update(batch)["loss/reconstruction"])
    part = learner(max_decoded_steps=3)
    before = copy.deepcopy(part.agent.state_dict())
    found = []
    for _ in range(100):
        part.agent.load_state_dict(before)
        found.append(float(part.update(batch)["loss/reconstruction"]))
    assert np.mean(found) == pytest.approx(whole, rel=0.05) and np.std(found) > 1e-4


def test_no_gradient_of_ppo_reaches_the_belief_and_none_of_the_autoencoder_the_policy(built: Any) -> None:
    components = built(tiny_varibad())
    algorithm, replay = components.algorithm, components.replay
    assert isinstance(algorithm, VariBAD)
    agent = algorithm.model
    assert isinstance(agent, VariBADAgent)
    own, others = agent.belief_parameters(), agent.policy_parameters()
    assert len({id(each) for each in [*own, *others]}) == len(list(agent.parameters())) == len(own) + len(others)
    kinds = set()
    for batch in algorithm.batches(replay, algorithm.updates_due(replay)):
        is_ppo = algorithm.ppo.trials.is_open
        before = [each.detach().clone() for each in (*own, *others)]
        agent.zero_grad()
        algorithm.update(batch)
        moved = [not torch.equal(a, b) for a, b in zip((*own, *others), before, strict=True)]
        of_belief, of_policy = moved[: len(own)], moved[len(own) :]
        still, trained = (of_belief, of_policy) if is_ppo else (of_policy, of_belief)
        assert not any(still) and sum(trained) > 0.8 * len(trained)
        assert all(each.grad is None for each in (own if is_ppo else others))
        kinds.add(is_ppo)
    assert kinds == {True, False}


def test_the_updates_of_ppo_come_first_then_those_of_the_belief(built: Any) -> None:
    components = built(tiny_varibad())
    algorithm = components.algorithm
    due = algorithm.updates_due(components.replay)
    metrics = make_updates(components)
    is_ppo = ["loss/policy" in each for each in metrics]
    assert is_ppo == [True] * (due - 3) + [False] * 3 and algorithm.num_updates == due
    assert algorithm.updates_due(components.replay) == 0
    assert {"loss/reconstruction", "loss/belief_kl"} <= set(metrics[-1])
    before = components.replay.store.total_appended
    collect(components)
    assert algorithm.updates_due(components.replay) > 3
    windows = [
        window
        for number in range(20)
        for window in algorithm.vae._sample(components.replay.store, np.random.default_rng(number))
    ]
    assert {window.trajectory_id for window in windows} == set(range(components.replay.store.total_appended))
    assert before < components.replay.store.total_appended, "trials of both iterations"


def test_a_store_of_unreadable_trials_is_one_line_instead_of_an_endless_search(
    built: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    components = built(tiny_varibad())
    monkeypatch.setattr(components.replay.store, "get", Mock(side_effect=CorruptedRecordError("flipped")))
    with pytest.raises(UserError, match="check its disk"):
        components.algorithm.vae._sample(components.replay.store, np.random.default_rng(0))


def test_of_trials_longer_than_the_context_all_parts_are_decoded(built: Any) -> None:
    components = built(tiny_varibad(context_length=4))
    windows = components.algorithm.vae._sample(components.replay.store, np.random.default_rng(0))
    lengths = {window.trajectory_id: len(components.replay.store.get(window.trajectory_id)) for window in windows}
    assert {(window.start, window.length) for window in windows} == {(0, 4), (4, lengths[windows[0].trajectory_id] - 4)}
    assert all("loss/policy" in each or float(each["loss/reconstruction"]) > 0 for each in make_updates(components))


@pytest.mark.parametrize("from_end", [5, 3, 2])
def test_it_goes_on_between_two_updates_to_the_bit(from_end: int, built: Any) -> None:
    """Within the updates of PPO, between the last of them and the first of the belief, and within the latter."""
    one, other = built(tiny_varibad()), built(tiny_varibad())
    due = one.algorithm.updates_due(one.replay)
    batches = one.algorithm.batches(one.replay, due)
    for _ in range(due - from_end):
        one.algorithm.update(next(batches))
    other.algorithm.load_state_dict(copy.deepcopy(one.algorithm.state_dict()))
    assert other.algorithm.updates_due(other.replay) == one.algorithm.updates_due(one.replay) == from_end
    for batch in batches:
        one.algorithm.update(batch)
    make_updates(other)
    for each in (one, other):
        collect(each)
        make_updates(each)
    same = zip(one.algorithm.model.state_dict().values(), other.algorithm.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)
    assert one.algorithm.vae.reward_stats.state_dict() == other.algorithm.vae.reward_stats.state_dict()
    assert one.algorithm.num_updates == other.algorithm.num_updates > due


def learned_belief(scale: float) -> list[float]:
    """Losses of some updates, and beliefs after them, of trials with rewards in another unit."""
    of = learner(vae_learning_rate=0.01)
    found: list[float] = []
    for update in range(12):
        batch = batch_of_trials(update, scale=scale)
        of.agent.timestep_encoder.update_normalizers(of.agent.features(batch), batch.observation, batch.token_mask)
        found += [float(each) for each in of.update(batch).values()]
    batch = batch_of_trials(99, scale=scale)
    with torch.no_grad():
        belief = of.agent.belief(of.agent.features(batch), batch)
    return found + torch.cat(belief, dim=1)[batch.token_mask].flatten().tolist()


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_unit_of_rewards_does_not_matter(scale: float) -> None:
    np.testing.assert_allclose(learned_belief(scale), learned_belief(1.0), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("scale", [0.1, 1e9])
def test_a_constant_reward_is_predicted_from_nothing(scale: float) -> None:
    of = learner()
    for update in range(3):
        of.update(batch_of_trials(update, scale=scale, constant=True))
    normal = of._normalized_rewards(batch_of_trials(scale=scale, constant=True))
    assert float(normal[batch_of_trials().loss_mask].abs().max()) < 1e-6


def test_an_update_that_is_not_finite_changes_no_weight() -> None:
    of = learner(max_nonfinite_updates=2)
    of.update(batch_of_trials())
    before = copy.deepcopy([each.detach() for each in of.agent.parameters()])
    broken = batch_of_trials(1, scale=float("inf"))
    of.update(broken)
    of.raise_if_diverged()
    of.update(broken)
    assert all(torch.equal(a, b) for a, b in zip(before, of.agent.parameters(), strict=True))
    assert of.nonfinite.total == of.nonfinite.consecutive == 2
    with pytest.raises(UserError, match="consecutive updates"):
        of.raise_if_diverged()
    assert np.isfinite(of.reward_stats.std)


@pytest.mark.parametrize("env", [RepeatPair, RepeatParts, ReachPoint, LegalMoves])
def test_log_probabilities_of_learning_are_those_of_acting(env: Any, built: Any) -> None:
    components = built(own_varibad(env))
    ppo = components.algorithm.ppo
    ppo.trials.open(components.replay.store)
    with torch.no_grad():
        log_probs, _ = ppo._predict_trials(components.replay)
    assert len(log_probs) == len(components.replay.store) > 8
    for trial, log_prob in log_probs.items():
        acting = components.replay.store.get(trial).extras[ACTING_LOG_PROB]
        np.testing.assert_allclose(log_prob, acting, atol=2e-5)


def test_policy_and_value_see_moments_of_the_belief_in_deviations_of_the_new_trials(built: Any) -> None:
    components = built(own_varibad(RepeatPair))
    ppo, agent = components.algorithm.ppo, components.algorithm.ppo.agent
    with torch.no_grad():
        agent.trajectory_encoder.posterior.weight.mul_(1e-3)
        agent.trajectory_encoder.posterior.bias.fill_(-7.0)
    ppo.trials.open(components.replay.store)
    ppo.annotate(components.replay)
    states = [
        agent.encode(batch)[batch.token_mask, agent.config.present_size :]
        for batch in components.replay.sampler.iter_windows(ppo.trials.minibatches(0), {})
    ]
    moments = torch.cat(states).detach()
    torch.testing.assert_close(moments.mean(0), torch.zeros(moments.shape[1]), rtol=0, atol=0.2)
    torch.testing.assert_close(moments.std(0), torch.ones(moments.shape[1]), rtol=0, atol=0.2)


@torch.no_grad()
def test_a_checkpoint_without_statistics_of_the_belief_acts_as_before() -> None:
    agent, batch = learner().agent, batch_of_trials()
    present_ND = agent.timestep_encoder.present(agent.features(batch), batch.observation)
    unnormalized = torch.cat([present_ND, *agent.belief(agent.features(batch), batch)], dim=1)
    all_saved = copy.deepcopy(agent.state_dict())
    saved = {name: each for name, each in all_saved.items() if "trajectory_encoder.normalizer" not in name}
    for _ in range(3):
        agent.update_normalizers(batch)
    assert not torch.allclose(agent.encode(batch), unnormalized)
    agent.load_state_dict(saved)
    torch.testing.assert_close(agent.encode(batch), unnormalized)
    agent.trajectory_encoder.normalizer.update(torch.ones(1, 2 * AGENT.latent_size), torch.tensor([True]))
    torch.testing.assert_close(agent.encode(batch), unnormalized, rtol=0.01, atol=0.01)


@torch.no_grad()
def test_beliefs_and_decoded_rewards_are_not_rounded_to_bfloat16() -> None:
    of, batch = learner().agent.float(), batch_of_trials()
    with torch.autocast("cpu", torch.bfloat16):
        belief = of.belief(of.features(batch), batch)
        reward = of.decoder(
            torch.ones(1, 2, AGENT.latent_size), torch.ones(1, 5, of.decoder.of_transition.out_features)
        )
    for found in (*belief, reward):
        assert found.dtype == torch.float32 and not torch.equal(found, found.bfloat16().float())


@torch.no_grad()
def test_what_was_earned_reaches_the_policy_through_the_belief_alone() -> None:
    agent, batch = learner().agent, batch_of_trials()
    other = replace(batch, previous_reward=batch.previous_reward + 1.0, previous_action=(batch.previous_action + 1) % 3)
    later = replace(batch, time=batch.time + 5)

    def parts(of: Batch) -> tuple[Tensor, Tensor, Tensor]:
        state = agent.encode(of)
        return (
            state[:, : AGENT.present_size],
            state[:, AGENT.present_size :],
            agent.decoder.encoder(agent.features(of), of.observation),
        )

    present, belief, decoded = parts(batch)
    assert torch.equal(parts(other)[0], present) and not torch.allclose(parts(other)[1], belief)
    after_first = batch.token_mask & (batch.time > 0)  # at time 0 nothing is previous
    assert not torch.allclose(parts(later)[0], present)
    assert torch.equal(parts(later)[2][after_first], decoded[after_first])
    rewarded = replace(batch, previous_reward=batch.previous_reward + 1.0)
    assert torch.equal(parts(rewarded)[2], decoded) and not torch.allclose(parts(other)[2], decoded)


def test_its_settings_are_those_of_ppo_with_a_memory_of_its_own() -> None:
    recipe = with_algorithm(load_recipe("gridnavi"), "varibad")
    ppo = with_algorithm(load_recipe("gridnavi"), "ppo")
    own, other = recipe.make_config(recipe.env), ppo.make_config(ppo.env)
    assert isinstance(own.algorithm, VariBADConfig) and isinstance(own.algorithm.agent.trajectory_encoder, GRUConfig)
    assert own.algorithm.agent.timestep_encoder == other.algorithm.agent.timestep_encoder
    assert own.algorithm.agent.actor == other.algorithm.agent.actor
    assert replace(own, algorithm=other.algorithm) == other


def test_its_variants_have_the_settings_of_its_authors() -> None:
    recipe = with_algorithm(load_recipe("gridnavi"), "varibad")
    grid, cheetah = (config_from_flags(recipe, [f"varibad-{name}"], []) for name in ("grid-navi", "half-cheetah"))
    of_ppo = config_from_flags(with_algorithm(load_recipe("gridnavi"), "ppo"), ["rl2-grid-navi"], [])
    found = [
        (
            each.algorithm.agent.trajectory_encoder.state_size,
            each.algorithm.learner.kl_weight,
            each.algorithm.learner.trials_per_vae_batch,
            each.algorithm.learner.vae_updates_per_iteration,
            each.replay.capacity_trajectories,
        )
        for each in (grid, cheetah)
    ]
    assert found == [(64, 0.01, 25, 3, 100_000), (128, 0.1, 10, 1, 10_000)]
    shared = {each.name: getattr(grid.algorithm.learner, each.name) for each in fields(of_ppo.algorithm.learner)}
    assert type(of_ppo.algorithm.learner)(**shared) == of_ppo.algorithm.learner
    with pytest.raises(UserError, match="requires --algorithm varibad, not ppo"):
        config_from_flags(with_algorithm(load_recipe("gridnavi"), "ppo"), ["varibad-grid-navi"], [])


def test_a_decoder_without_hidden_layer_is_refused_by_the_name_of_the_field() -> None:
    with pytest.raises(UserError, match=r"^hidden_sizes must have at least one hidden layer"):
        DecoderConfig(hidden_sizes=())


def test_an_encoder_without_functional_step_is_refused_in_a_line() -> None:
    class Plain(torch.nn.Module):
        """Has neither step."""

    class PlainConfig(GRUConfig):
        def build(self, **_: Any) -> Any:
            return Plain()

    config = replace(AGENT, trajectory_encoder=PlainConfig())
    with pytest.raises(UserError, match="varibad cannot use Plain, which lacks static_step"):
        config.build_encoders(dict(OBSERVATIONS.spaces), DISCRETE, context_length=4, horizon=4)


@torch.no_grad()
def test_the_functional_step_is_the_forward() -> None:
    agent, batch = learner().agent.eval(), batch_of_trials()
    expected = agent.actor(agent.encode(batch), None).probability_NGA[:, 0]
    policy = FunctionalNetworkPolicy(agent, clips=False)
    memory = policy.empty_memory(1)
    for token in range(LENGTHS[0] + 1):
        now = slice(token, token + 1)
        result = policy(
            {
                **{f"observation/{name}": leaf[now] for name, leaf in batch.observation.items()},
                **{f"memory/{name}": each for name, each in memory.items()},
                "previous_action": batch.previous_action[now],
                "previous_reward": batch.previous_reward[now],
                "episode_start": batch.episode_start[now],
                "time": batch.time[now],
                "deterministic": torch.tensor([True]),
                "seed": torch.tensor([0]),
            }
        )
        memory = {name.removeprefix("memory/"): each for name, each in result.items() if name.startswith("memory/")}
        torch.testing.assert_close(result["probability"], expected[now], rtol=0, atol=1e-6)
