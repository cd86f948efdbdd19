"""HyperX against slow loops; what its bonuses change and what they do not; which gradients reach what; continuation."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from belief_runs import TINY_AGENT, TINY_BELIEF_RUN, builder, collect, make_updates
from tiny_agents import DISCRETE, HORIZON, OBSERVATIONS, random_trajectory

from yamame.algorithms.base import Replay
from yamame.algorithms.hyperx.agent import HyperXAgent, HyperXAgentConfig
from yamame.algorithms.hyperx.bonuses import NOVELTY, RECONSTRUCTION, ExplorationBonuses
from yamame.algorithms.hyperx.config import HyperXConfig
from yamame.algorithms.hyperx.learner import HyperX
from yamame.algorithms.hyperx.novelty import NoveltyConfig
from yamame.algorithms.hyperx.return_deviation import ReturnDeviation
from yamame.algorithms.hyperx.settings import HyperXLearnerConfig
from yamame.algorithms.on_policy import NewTrials, PassesConfig
from yamame.algorithms.ppo.learner import ADVANTAGE
from yamame.algorithms.varibad.vae import BeliefLearner
from yamame.data.batch import Batch, Window, pack
from yamame.data.codec import encode
from yamame.data.sampler import Sampler, StoredWindow
from yamame.data.store import ReplayStore
from yamame.data.trajectory import Trajectory
from yamame.errors import UserError
from yamame.nets.compute import CPU_FLOAT32
from yamame.recipes import config_from_flags, config_from_overrides, load_recipe, with_algorithm
from yamame.run_config import RunConfig

LENGTHS = (5, 3, 7)
AGENT = HyperXAgentConfig(**TINY_AGENT, novelty=NoveltyConfig(hidden_sizes=(16,), output_size=8))
TINY: dict[str, Any] = {**TINY_BELIEF_RUN, "agent.novelty.hidden_sizes": (16,), "agent.novelty.output_size": 8}


def tiny_run(algorithm: str = "hyperx", **changes: Any) -> RunConfig:
    recipe = with_algorithm(load_recipe("passive-tmaze"), algorithm)
    settings = TINY if algorithm == "hyperx" else TINY_BELIEF_RUN
    return config_from_overrides(recipe, [], {"env.horizon": 6, **settings, **changes})


@pytest.fixture
def built(tmp_path: Path) -> Iterator[Any]:
    with builder(tmp_path) as build:
        yield build


def bonuses(scale: float = 1.0, **changes: Any) -> ExplorationBonuses:
    torch.manual_seed(0)
    agent = HyperXAgent(
        replace(AGENT, novelty=replace(AGENT.novelty, scale=scale)),
        observation_space=OBSERVATIONS,
        action_space=DISCRETE,
        context_length=HORIZON,
        horizon=HORIZON,
    )
    config = HyperXLearnerConfig(**changes)
    vae = BeliefLearner(
        agent, config, context_length=HORIZON, generator=torch.Generator().manual_seed(1), compute=CPU_FLOAT32
    )
    return ExplorationBonuses(agent, config, vae=vae, compute=CPU_FLOAT32, seed=0)


def batch_of(trials: list[Trajectory]) -> Batch:
    return pack([Window(trajectory=each, start=0, length=len(each)) for each in trials])


def some_trials(seed: int = 0) -> list[Trajectory]:
    rng = np.random.default_rng(seed)
    return [random_trajectory(rng, length) for length in LENGTHS]


def replay_of(trials: list[Trajectory]) -> Any:
    """A store and a sampler of a few trials, as far as bonuses need them."""

    def windows(parts: list[list[StoredWindow]], _: Any) -> Iterator[Batch]:
        for part in parts:
            yield pack(
                [Window(trajectory=trials[each.trajectory_id], start=each.start, length=each.length) for each in part]
            )

    store, sampler = Mock(spec=ReplayStore, total_appended=len(trials)), Mock(spec=Sampler)
    store.ids.return_value = list(range(len(trials)))
    store.has_evicted.return_value = False
    store.get.side_effect = lambda trial, lazy: trials[trial]
    sampler.iter_windows.side_effect = windows
    return Mock(spec=Replay, store=store, sampler=sampler)


def opened(replay: Any, *, context_length: int = HORIZON, transitions: int = 0) -> NewTrials:
    trials = NewTrials(PassesConfig(), context_length=context_length, seed=0)
    trials.open(replay.store)
    trials.transitions = transitions
    return trials


def discounted(rewards: np.ndarray, gamma: float) -> list[float]:
    return [
        sum(gamma ** (time - before) * rewards[before] for before in range(time + 1)) for time in range(len(rewards))
    ]


@torch.no_grad()
def test_bonuses_of_tokens_are_those_of_slow_loops() -> None:
    of, batch = bonuses(), batch_of(some_trials())
    with torch.enable_grad():
        of.vae.update(batch)
    agent = of.agent
    agent.novelty.encoder.update_normalizers(agent.features(batch), batch.observation, batch.token_mask)
    agent.update_normalizers(batch)
    novelty, error = of._of_tokens(batch, np.random.default_rng(5))
    features = agent.features(batch)
    belief = mean, log_variance = agent.belief(features, batch)
    normalizer = agent.trajectory_encoder.normalizer
    moments = (torch.cat(belief, dim=1) - normalizer.mean.float()) * normalizer.variance.rsqrt().float()
    noise = torch.from_numpy(np.random.default_rng(5).standard_normal(mean.shape)).float()
    present = agent.novelty.encoder.inputs(features, batch.observation)
    vector = agent.decoder.encoder(features, batch.observation)
    decoder, rewards = agent.decoder, of.vae.reward_stats
    for start, end in zip(batch.cu_seqlens[:-1].tolist(), batch.cu_seqlens[1:].tolist(), strict=True):
        for token in range(start + 1, end):
            hyper_state = torch.cat([present[token], moments[token]])
            difference = agent.novelty.predictor(hyper_state) - agent.novelty.fixed(hyper_state)
            assert novelty[token] == pytest.approx(float((difference**2).mean()), rel=1e-4)
            latent = mean[token] + noise[token] * (0.5 * log_variance[token]).exp()
            pair = torch.cat([vector[token - 1], vector[token]])
            hidden = decoder.activation(decoder.of_latent(latent) + decoder.of_transition(pair))
            reward = (float(batch.reward[token - 1]) - rewards.mean) / rewards.std
            squared = rewards.std**2 * (float(decoder.mlp(hidden)[0]) - reward) ** 2
            assert error[token] == pytest.approx(squared, rel=1e-3, abs=1e-6)


@torch.no_grad()
def test_bonuses_of_a_trial_in_windows_are_of_the_hyper_states_that_its_transitions_lead_to() -> None:
    of, trials = bonuses(), some_trials()
    replay = replay_of(trials)
    with torch.enable_grad():
        of.vae.update(batch_of(trials))
    raw = of._raw(replay, opened(replay, context_length=4))
    for trial, trajectory in enumerate(trials):
        expected = []
        for start in range(0, len(trajectory), 4):
            batch = pack([Window(trajectory=trajectory, start=start, length=min(4, len(trajectory) - start))])
            expected += of._of_tokens(batch, np.random.default_rng(0))[0][1 : int(batch.cu_seqlens[1])].tolist()
        np.testing.assert_allclose(raw[NOVELTY][trial], expected, rtol=1e-5)
        assert raw[RECONSTRUCTION][trial].shape == (len(trajectory),)


@torch.no_grad()
def test_before_the_first_update_of_the_belief_no_reward_is_wrong() -> None:
    of, trials = bonuses(), some_trials()
    replay = replay_of(trials)
    assert set(of._raw(replay, opened(replay))) == {NOVELTY}
    with torch.enable_grad():
        of.vae.update(batch_of(trials))
    assert set(of._raw(replay, opened(replay))) == {NOVELTY, RECONSTRUCTION}


def test_the_deviation_is_that_of_all_discounted_returns_so_far() -> None:
    rng, found, all_sums = np.random.default_rng(0), ReturnDeviation(0.8), list[float]()
    assert found.std == 0.0
    for scale in (1000.0, 1.0, 0.01):
        trials = [scale * rng.random(length) for length in (4, 9)]
        found.update(trials)
        all_sums += [each for trial in trials for each in discounted(trial, 0.8)]
        assert found.std == pytest.approx(np.std(all_sums), rel=1e-9)
    other = ReturnDeviation(0.8)
    other.load_state_dict(found.state_dict())
    for each in (found, other):
        each.update([np.ones(5)])
    assert other.state_dict() == found.state_dict()


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e6])
def test_rewards_are_normalized_and_clipped_and_bonuses_weighted_and_annealed_besides(
    unit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = [replace(each, reward=(unit * each.reward).astype(np.float32)) for each in some_trials()]
    settings = {"novelty_weight": 3.0, "reconstruction_weight": 0.5, "bonus_clip": 0.2, "bonus_anneal_env_steps": 1000}
    settings |= {"reward_clip": 1.0}
    of, replay, rng = bonuses(**settings), replay_of(trials), np.random.default_rng(0)
    raw = {
        name: {trial: scale * rng.random(length) ** 8 for trial, length in enumerate(LENGTHS)}
        for name, scale in ((NOVELTY, 1e4), (RECONSTRUCTION, 1e-3))
    }
    monkeypatch.setattr(of, "_raw", lambda *_: raw)
    total = of.training_rewards(replay, opened(replay, transitions=250))
    gamma, clipped = of.agent.gamma, 0
    task = np.std([each for trial in trials for each in discounted(trial.reward.astype(float), gamma)])
    of_name = {}
    for name, weight in ((NOVELTY, 3.0), (RECONSTRUCTION, 0.5)):
        own = np.std([each for trial in raw[name].values() for each in discounted(trial, gamma)])
        clipped += sum(int((each / own > 0.2).sum()) for each in raw[name].values())
        of_name[name] = {trial: 0.75 * weight * np.minimum(each / own, 0.2) for trial, each in raw[name].items()}
    rewards = [np.clip(each.reward.astype(float) / task, -1.0, 1.0) for each in trials]
    assert clipped > 1 and 0 < sum(int((abs(each) == 1.0).sum()) for each in rewards) < sum(LENGTHS)
    for trial, reward in enumerate(rewards):
        expected = reward + of_name[NOVELTY][trial] + of_name[RECONSTRUCTION][trial]
        np.testing.assert_allclose(total[trial], expected, rtol=1e-9)
    metrics = of.metrics()
    assert metrics["bonus/scale"] == 0.75
    for name in (NOVELTY, RECONSTRUCTION):
        mean = np.concatenate(list(of_name[name].values())).mean()
        assert metrics[f"bonus/{name}"] == pytest.approx(mean, rel=1e-9)


def test_the_first_reward_of_a_run_is_clipped_and_changes_no_bonus(monkeypatch: pytest.MonkeyPatch) -> None:
    of = bonuses(novelty_weight=2.0)
    raw = {NOVELTY: {trial: np.arange(length) / 7 for trial, length in enumerate(LENGTHS)}}
    monkeypatch.setattr(of, "_raw", lambda *_: raw)
    without = [replace(each, reward=np.zeros_like(each.reward)) for each in some_trials()]
    replay = replay_of(without)
    for _ in range(100):
        before = of.training_rewards(replay, opened(replay))
        np.testing.assert_allclose(before[2], 2.0 * np.arange(7) / 7 / of.deviations[NOVELTY].std)
    rewarded = replay_of([*without[:2], replace(without[2], reward=np.eye(7, dtype=np.float32)[6])])
    after = of.training_rewards(rewarded, opened(rewarded))
    assert 1.0 / of.task.std > 20.0
    np.testing.assert_allclose(after[2], before[2] + 10.0 * np.eye(7)[6], rtol=1e-3)


def test_bonuses_fall_linearly_to_0_over_the_run() -> None:
    config = HyperXLearnerConfig(bonus_anneal_env_steps=400)
    assert [config.bonus_scale_at(steps) for steps in (0, 100, 400, 500)] == [1.0, 0.75, 0.0, 0.0]
    assert HyperXLearnerConfig().bonus_scale_at(10**9) == 1.0


def test_the_fixed_network_starts_as_wide_as_its_scale_and_novelty_reaches_no_other_network() -> None:
    of, batch = bonuses(10.0, novelty_updates=3, novelty_learning_rate=0.01), batch_of(some_trials())
    novelty = of.agent.novelty
    for fixed, predictor in zip(novelty.fixed.parameters(), novelty.predictor.parameters(), strict=True):
        if fixed.ndim == 2:
            assert float(fixed.abs().max()) == pytest.approx(10 * float(predictor.detach().abs().max()), rel=0.1)
    before = {name: each.clone() for name, each in of.agent.state_dict().items()}
    of.agent.zero_grad()
    of.update(batch)
    assert of.num_updates == 3
    moved = {name for name, each in of.agent.state_dict().items() if not torch.equal(each, before[name])}
    trained = {f"novelty.predictor.{name}" for name, _ in novelty.predictor.named_parameters()}
    assert moved == trained
    assert {name for name, each in of.agent.named_parameters() if each.grad is not None} == trained
    own = {id(each) for each in novelty.parameters()}
    assert not own & {id(each) for each in [*of.agent.policy_parameters(), *of.agent.belief_parameters()]}
    others = len(of.agent.policy_parameters()) + len(of.agent.belief_parameters())
    assert others + len(own) == len(list(of.agent.parameters()))


@torch.no_grad()
def test_novelty_sees_observation_and_belief_alone() -> None:
    of, batch = bonuses(), batch_of(some_trials())
    moments = torch.cat(of.agent.belief(of.agent.features(batch), batch), dim=1)

    def hyper_states(changed: Batch) -> torch.Tensor:
        found = of.agent.novelty.hyper_states(of.agent.features(changed), changed, moments)
        return found[batch.token_mask & (batch.time > 0)]

    before = hyper_states(batch)
    hidden = replace(
        batch,
        time=batch.time + 3,
        previous_reward=batch.previous_reward + 1.0,
        previous_action=(batch.previous_action + 1) % 3,
    )
    assert torch.equal(hyper_states(hidden), before)
    seen = {**batch.observation, "vector": batch.observation["vector"] + 1.0}
    assert not torch.allclose(hyper_states(replace(batch, observation=seen)), before)
    assert torch.equal(before[:, -4:], moments[batch.token_mask & (batch.time > 0)])


@torch.no_grad()
def test_novelty_sees_the_numbers_of_an_observation_and_not_their_direction_alone() -> None:
    of, batch = bonuses(), batch_of(some_trials())
    vector = batch.observation["vector"]
    features = of.agent.features(batch)
    hyper_state = of.agent.novelty.hyper_states(features, batch, torch.cat(of.agent.belief(features, batch), dim=1))
    # before the first batch the normalizer changes nothing
    columns = [torch.isclose(hyper_state, each[:, None]).all(0).any() for each in vector.T]
    assert vector.shape[1] > 0 and all(columns)


def test_what_the_predictor_was_trained_on_is_not_new_any_more() -> None:
    of, known, unknown = bonuses(novelty_learning_rate=3e-3), batch_of(some_trials()), batch_of(some_trials(1))
    unknown = replace(unknown, observation={**unknown.observation, "vector": unknown.observation["vector"] + 3.0})

    def novelty(batch: Batch) -> float:
        return float(np.mean(of._of_tokens(batch, np.random.default_rng(0))[0][batch.token_mask.numpy()]))

    with torch.no_grad():
        before = novelty(known), novelty(unknown)
    losses = [float(of.update(known)["loss/novelty"]) for _ in range(40)]
    with torch.no_grad():
        after = novelty(known), novelty(unknown)
    assert losses[-1] < 0.2 * losses[0]
    assert after[0] / before[0] < 0.5 * after[1] / before[1]


def test_without_weights_it_is_varibad_with_normalized_rewards_to_the_bit(built: Any) -> None:
    none = {"learner.novelty_weight": 0.0, "learner.reconstruction_weight": 0.0, "learner.reward_clip": 0.1}
    one, other = built(tiny_run(**none)), built(tiny_run("varibad"))
    deviation = ReturnDeviation(other.algorithm.ppo.agent.gamma)

    def normalized(replay: Replay, trials: NewTrials) -> dict[int, np.ndarray]:
        ids = dict.fromkeys(window.trajectory_id for window in trials.windows)
        rewards = {trial: replay.store.get(trial).reward.astype(np.float64) for trial in ids}
        deviation.update(list(rewards.values()))
        return {trial: np.clip(each / deviation.std, -0.1, 0.1) for trial, each in rewards.items()}

    other.algorithm.ppo.training_rewards = normalized
    for _ in range(2):
        for each in (one, other):
            make_updates(each)
            collect(each)
    weights = one.algorithm.model.state_dict()
    assert all(torch.equal(weights[name], each) for name, each in other.algorithm.model.state_dict().items())
    assert len(weights) > len(other.algorithm.model.state_dict())


def test_bonuses_change_advantages_but_no_stored_trial(built: Any) -> None:
    components = built(tiny_run())
    algorithm, replay = components.algorithm, components.replay
    assert isinstance(algorithm, HyperX)
    make_updates(components)
    collect(components)
    stored = [encode(replay.store.get(trial)) for trial in replay.store.ids()]
    ppo = algorithm.ppo
    ppo.trials.open(replay.store)
    state = copy.deepcopy(algorithm.state_dict())
    with_bonuses = ppo.annotate(replay)
    assert algorithm.metrics()["bonus/novelty"] > 0 and algorithm.metrics()["bonus/reconstruction"] > 0
    algorithm.load_state_dict(state)
    ppo.training_rewards = None
    without = ppo.annotate(replay)
    assert not np.allclose(
        np.concatenate([each[ADVANTAGE] for each in with_bonuses.values()]),
        np.concatenate([each[ADVANTAGE] for each in without.values()]),
    )
    assert [encode(replay.store.get(trial)) for trial in replay.store.ids()] == stored


def test_advantages_are_of_the_rewards_of_training(built: Any) -> None:
    settings = {"learner.normalize_advantages": False, "learner.trace_decay": 1.0}
    components = built(tiny_run(**settings))
    ppo, replay = components.algorithm.ppo, components.replay
    ppo.trials.open(replay.store)
    rewards = {trial: np.linspace(0.0, 1.0, len(replay.store.get(trial))) for trial in replay.store.ids()}
    ppo.training_rewards = lambda *_: rewards
    for trial, each in ppo.annotate(replay).items():
        total = sum(ppo.agent.gamma**time * reward for time, reward in enumerate(rewards[trial]))
        assert each["value_target"][0] == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("from_end", [5, 3, 1])
def test_it_goes_on_between_two_updates_to_the_bit(from_end: int, built: Any) -> None:
    one, other = built(tiny_run()), built(tiny_run())
    for each in (one, other):
        make_updates(each)
        collect(each)
    due = one.algorithm.updates_due(one.replay)
    batches = one.algorithm.batches(one.replay, due)
    for _ in range(due - from_end):
        one.algorithm.update(next(batches))
    other.algorithm.load_state_dict(copy.deepcopy(one.algorithm.state_dict()))
    assert other.algorithm.metrics() == one.algorithm.metrics()
    for batch in batches:
        one.algorithm.update(batch)
    make_updates(other)
    for each in (one, other):
        collect(each)
        make_updates(each)
    same = zip(one.algorithm.model.state_dict().values(), other.algorithm.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)
    assert one.algorithm.metrics() == other.algorithm.metrics()
    of_one, of_other = one.algorithm.bonuses.state_dict(), other.algorithm.bonuses.state_dict()
    assert of_one.pop("optimizer").keys() == of_other.pop("optimizer").keys() and of_one == of_other


@pytest.mark.parametrize("broken", [NOVELTY, RECONSTRUCTION])
def test_a_bonus_that_is_not_finite_is_left_out_and_counted(broken: str, built: Any) -> None:
    components = built(tiny_run(**{"learner.max_nonfinite_updates": 2}))
    algorithm, replay = components.algorithm, components.replay
    make_updates(components)
    collect(components)
    before = copy.deepcopy(algorithm.bonuses.deviations[broken].state_dict())
    network = algorithm.model.novelty.fixed if broken == NOVELTY else algorithm.model.decoder.mlp
    with torch.no_grad():
        next(network.parameters()).fill_(torch.nan)
    algorithm.ppo.trials.open(replay.store)
    annotations = algorithm.ppo.annotate(replay)
    assert all(np.isfinite(array).all() for each in annotations.values() for array in each.values())
    assert np.isfinite(float(algorithm.model.value_code.metrics()["critic/popart_std"]))
    other = NOVELTY if broken == RECONSTRUCTION else RECONSTRUCTION
    assert algorithm.metrics()[f"bonus/{other}"] > 0 and f"bonus/{broken}" not in algorithm.metrics()
    assert algorithm.bonuses.deviations[broken].state_dict() == before
    assert algorithm.metrics()["optim/nonfinite_updates"] == algorithm.bonuses.nonfinite_bonuses.total == 1
    algorithm.raise_if_diverged()
    algorithm.bonuses.nonfinite.count(torch.tensor(True))  # an update of the predictor between two iterations
    algorithm.ppo.annotate(replay)
    with pytest.raises(UserError, match="consecutive updates"):
        algorithm.raise_if_diverged()


def test_an_update_of_the_predictor_that_is_not_finite_changes_no_weight() -> None:
    of = bonuses(novelty_updates=2, max_nonfinite_updates=2)
    with torch.no_grad():
        next(of.agent.novelty.fixed.parameters()).fill_(torch.inf)
    before = copy.deepcopy(of.agent.novelty.predictor.state_dict())
    of.update(batch_of(some_trials()))
    assert all(torch.equal(each, before[name]) for name, each in of.agent.novelty.predictor.state_dict().items())
    assert of.nonfinite.total == of.nonfinite.consecutive == 2
    with pytest.raises(UserError, match="consecutive updates"):
        of.raise_if_diverged()


def test_bonuses_are_no_part_of_what_acts() -> None:
    of, config = bonuses(), HyperXConfig(agent=AGENT)
    acting = config.acting_state(of.agent)
    assert acting and not any(name.startswith(("novelty", "decoder", "value")) for name in acting)


def test_its_settings_are_those_of_varibad_annealed_over_the_run() -> None:
    recipe, of_varibad = (with_algorithm(load_recipe("rooms"), name) for name in ("hyperx", "varibad"))
    own, other = (config_from_flags(each, [], ["--env-steps", "70000"]) for each in (recipe, of_varibad))
    assert isinstance(own.algorithm, HyperXConfig) and own.algorithm.learner.bonus_anneal_env_steps == 70_000
    assert own.algorithm.learner.lr_decay_env_steps == 70_000
    assert own.algorithm.agent.timestep_encoder == other.algorithm.agent.timestep_encoder
    assert replace(own, algorithm=other.algorithm) == other


def test_its_variant_has_the_settings_of_its_authors() -> None:
    recipe = with_algorithm(load_recipe("rooms"), "hyperx")
    config = config_from_flags(recipe, ["hyperx-rooms"], [])
    agent, learner = config.algorithm.agent, config.algorithm.learner
    assert (agent.trajectory_encoder.state_size, agent.latent_size, agent.acting_gamma) == (128, 10, 0.98)
    assert (learner.novelty_weight, learner.reconstruction_weight, learner.novelty_updates) == (10.0, 1.0, 1)
    assert (learner.kl_weight, learner.vae_updates_per_iteration, learner.entropy_coef) == (0.1, 1, 0.1)
    assert (learner.passes.epochs, learner.passes.minibatch_transitions, learner.clip) == (8, 400, 0.05)
    assert learner.bonus_anneal_env_steps == config.env_steps
    assert config.replay.capacity_trajectories == 100_000
    of_varibad = config_from_flags(recipe, ["varibad-grid-navi"], [])
    assert isinstance(of_varibad.algorithm, HyperXConfig) and of_varibad.algorithm.learner.kl_weight == 0.01
    with pytest.raises(UserError, match="requires --algorithm hyperx, not varibad"):
        config_from_flags(with_algorithm(load_recipe("rooms"), "varibad"), ["hyperx-rooms"], [])
