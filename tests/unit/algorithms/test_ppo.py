"""PPO against slow loops, what its updates see of the trials, and that acting equals learning."""

import copy
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from action_environments import LegalMoves, ReachPoint, RepeatPair, RepeatParts
from tiny import TINY_NETWORK

from yamame.algorithms.on_policy import NewTrials, PassesConfig
from yamame.algorithms.ppo.advantages import RunningMoments, generalized_advantages
from yamame.algorithms.ppo.config import PPOConfig
from yamame.algorithms.ppo.learner import ADVANTAGE, LOG_PROB, PPO, VALUE, VALUE_TARGET
from yamame.algorithms.ppo.losses import policy_loss, value_loss
from yamame.data.batch import ACTING_LOG_PROB
from yamame.envs.env_fn import env_config
from yamame.errors import UserError
from yamame.recipes import config_from_overrides, load_recipe, own_recipe, with_algorithm
from yamame.run_config import RunConfig
from yamame.training.components import TrainingComponents, build_components

NETWORK = {name: value for name, value in TINY_NETWORK.items() if "critic" not in name}
TINY: dict[str, Any] = {
    **NETWORK,
    "agent.value.hidden_sizes": (8,),
    "env_steps": 640,
    "num_envs": 4,
    "env_steps_per_iteration": 64,
    "learner.passes.minibatch_transitions": 16,
    "eval": {"trials": 4, "final_trials": 4, "num_envs": 4, "interval_env_steps": 0},
}


def tiny_ppo(**changes: Any) -> RunConfig:
    recipe = with_algorithm(load_recipe("passive-tmaze"), "ppo")
    return config_from_overrides(recipe, [], {"env.horizon": 6, **TINY, **changes})


def own_ppo(env: type[gymnasium.Env[Any, Any]], **changes: Any) -> RunConfig:
    recipe = with_algorithm(own_recipe(env_config(env, horizon=None, attempts=1)), "ppo")
    return config_from_overrides(recipe, [], {"env.num_workers": 0, **TINY, **changes})


@pytest.fixture
def built(tmp_path: Path) -> Iterator[Any]:
    """Builds the parts of a run, with the trials of `env_steps` steps in the store."""
    opened: list[TrainingComponents] = []

    def build(config: RunConfig, env_steps: int = 96) -> TrainingComponents:
        components = build_components(config, tmp_path / str(len(opened)), restarts=0)
        opened.append(components)
        collect(components, env_steps)
        return components

    yield build
    for each in opened:
        each.close()


def collect(components: TrainingComponents, env_steps: int) -> None:
    components.experience.load_weights(components.algorithm.model, version=components.algorithm.num_updates)
    trials, _ = components.experience.collect(env_steps // 4, lambda: False)
    components.replay.store.extend(trials)


def test_advantages_against_a_slow_double_loop() -> None:
    rng, gamma, decay = np.random.default_rng(0), 0.9, 0.7
    for terminal_at in (None, 5, 8):
        reward, value, terminal = rng.normal(size=9), rng.normal(size=10), np.zeros(9, np.bool_)
        if terminal_at is not None:
            terminal[terminal_at] = True
        found = generalized_advantages(
            reward_T=reward, terminal_T=terminal, value=value, gamma=gamma, trace_decay=decay
        )
        for start in range(9):
            expected, weight = 0.0, 1.0
            for time in range(start, 9):
                following = 0.0 if terminal[time] else value[time + 1]
                expected += weight * (reward[time] + gamma * following - value[time])
                weight *= gamma * decay
                if terminal[time]:
                    break
            assert found[start] == pytest.approx(expected, abs=1e-12)


def test_with_lambda_1_they_are_returns_minus_values() -> None:
    reward, value = np.array([1.0, 2.0, 3.0]), np.array([0.5, -1.0, 4.0, 100.0])
    found = generalized_advantages(
        reward_T=reward, terminal_T=np.array([False, False, True]), value=value, gamma=0.5, trace_decay=1.0
    )
    np.testing.assert_allclose(found, [1 + 1 + 0.75 - 0.5, 2 + 1.5 + 1.0, 3 - 4.0], atol=1e-12)


def test_running_deviation_of_equal_weights_is_that_of_all_numbers() -> None:
    numbers = np.random.default_rng(0).normal(3.0, 2.0, (4, 50))
    running = RunningMoments(1e-9)
    for batch in numbers:
        running.update(batch)
    assert running.std == pytest.approx(numbers.std(), rel=1e-6)
    recent = RunningMoments(0.5)
    for scale in (10.0, *[1.0] * 20):
        recent.update(scale * numbers[0])
    assert recent.std == pytest.approx(numbers[0].std(), rel=1e-3)


def test_policy_loss_against_a_slow_loop_and_its_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    log_ratio, advantage = torch.randn(2, 64, dtype=torch.float64, generator=generator)
    weight = torch.rand(64, dtype=torch.float64, generator=generator)
    log_ratio.requires_grad_()
    found = policy_loss(log_ratio, advantage, weight, 0.2)
    found.sum().backward()
    for index in range(64):
        ratio, gain = math.exp(log_ratio.detach()[index]), float(advantage[index])
        clipped = min(max(ratio, 0.8), 1.2)
        assert float(found.detach()[index]) == pytest.approx(-float(weight[index]) * min(ratio * gain, clipped * gain))
        is_limited = (gain > 0 and ratio > 1.2) or (gain < 0 and ratio < 0.8)
        slope = 0.0 if is_limited else -float(weight[index]) * ratio * gain
        assert float(log_ratio.grad[index]) == pytest.approx(slope)


def test_value_loss_squared_huber_and_clipped() -> None:
    value, target, before = (torch.tensor([each], dtype=torch.float64) for each in (3.0, 0.0, 2.5))
    losses = {
        (kind, clip): float(value_loss(value, target, before, kind=kind, clip=clip))
        for kind in ("squared", "huber")
        for clip in (None, 0.1)
    }
    assert losses == {("squared", None): 4.5, ("huber", None): 2.5, ("squared", 0.1): 4.5, ("huber", 0.1): 2.5}
    moved = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)  # closer to the target than allowed
    loss = value_loss(moved, target, before, kind="squared", clip=0.1)
    assert float(loss.detach()) == pytest.approx(0.5 * 2.4**2)
    loss.backward()
    assert float(moved.grad) == 0.0


@pytest.mark.parametrize(
    ("env", "changes"),
    [
        (RepeatPair, {}),
        (RepeatParts, {}),
        (ReachPoint, {}),
        (ReachPoint, {"agent.initial_std": 3.0}),  # a third of the actions is at the bounds
        (LegalMoves, {}),
    ],
)
def test_log_probabilities_of_learning_are_those_of_acting(env: Any, changes: dict[str, Any], built: Any) -> None:
    components = built(own_ppo(env, **changes))
    algorithm = components.algorithm
    assert isinstance(algorithm, PPO)
    algorithm.trials.open(components.replay.store)
    with torch.no_grad():
        log_probs, values = algorithm._predict_trials(components.replay)
    assert len(log_probs) == len(components.replay.store) > 8
    for trial, log_prob in log_probs.items():
        acting = components.replay.store.get(trial).extras[ACTING_LOG_PROB]
        np.testing.assert_allclose(log_prob, acting, atol=2e-5)
        assert len(values[trial]) == len(log_prob) + 1


def test_the_first_minibatch_has_ratio_1_and_later_ones_have_not(built: Any) -> None:
    components = built(tiny_ppo())
    algorithm, replay = components.algorithm, components.replay
    due = algorithm.updates_due(replay)
    first, *others = [algorithm.update(batch) for batch in algorithm.batches(replay, due)]
    assert due == algorithm.num_updates > 8
    assert float(first["actor/kl"]) < 1e-9 and float(first["actor/clip_fraction"]) == 0.0
    assert float(others[-1]["actor/kl"]) > 1e-7
    assert algorithm.updates_due(replay) == 0 and not algorithm.trials.is_open
    assert algorithm.trials.transitions == sum(len(replay.store.get(each)) for each in replay.store.ids())


def test_annotations_are_those_of_a_slow_loop(built: Any) -> None:
    components = built(tiny_ppo(**{"learner.min_advantage_scale": 0.0}))
    algorithm, store = components.algorithm, components.replay.store
    algorithm.trials.open(store)
    for _ in range(2):  # in the first iteration values are 0
        annotations = algorithm.annotate(components.replay)
    advantages = []
    for trial, found in annotations.items():
        reward, value = store.get(trial).reward.astype(float), found[VALUE].astype(float)
        expected = 0.0
        for time in reversed(range(len(reward))):
            after = value[time + 1] if time + 1 < len(reward) else 0.0  # the time limit ends the trial
            delta = reward[time] + algorithm.agent.gamma * after - value[time]
            expected = delta + algorithm.agent.gamma * algorithm.config.trace_decay * expected
            assert found[VALUE_TARGET][time] == pytest.approx(expected + value[time], abs=1e-5)
            advantages.append((expected, float(found[ADVANTAGE][time])))
    raw, normalized = np.array(advantages).T
    np.testing.assert_allclose(normalized, (raw - raw.mean()) / raw.std(), atol=1e-4)
    assert set(annotations[0]) == {LOG_PROB, VALUE, ADVANTAGE, VALUE_TARGET}


def test_the_floor_of_the_scale_of_advantages_is_of_spreads_within_iterations(built: Any) -> None:
    components = built(tiny_ppo(**{"learner.min_advantage_scale": 3.0}))
    algorithm, store = components.algorithm, components.replay.store
    algorithm.trials.open(store)
    rng, variances, advantages = np.random.default_rng(0), [], []
    # the mean return moves by far more than the returns of an iteration differ
    for mean, spread in ((500.0, 1.0), (0.5, 0.1), (0.0, 0.1)):
        rewards = {trial: rng.normal(mean, spread, len(store.get(trial))) for trial in store.ids()}
        algorithm.training_rewards = lambda *_, rewards=rewards: rewards
        found = algorithm.annotate(components.replay)
        variances.append(np.concatenate([each[VALUE_TARGET] for each in found.values()]).var())
        advantages.append(np.concatenate([each[ADVANTAGE] for each in found.values()]))
    weight = 0.99 ** np.arange(3)[::-1]
    floor = 3.0 * math.sqrt(float(weight @ variances) / weight.sum())
    raw = np.concatenate(
        [generalized_advantages_of(algorithm, store.get(trial), rewards[trial], each) for trial, each in found.items()]
    )
    assert raw.std() < floor
    np.testing.assert_allclose(advantages[-1], (raw - raw.mean()) / floor, rtol=1e-4, atol=1e-5)


def generalized_advantages_of(algorithm: Any, trial: Any, rewards: np.ndarray, found: Any) -> np.ndarray:
    return generalized_advantages(
        reward_T=rewards,
        terminal_T=trial.terminated | trial.truncated,
        value=np.append(found[VALUE], 0.0),
        gamma=algorithm.agent.gamma,
        trace_decay=algorithm.config.trace_decay,
    )


@pytest.mark.parametrize("first_reward", [0, 1])
def test_values_are_compared_with_those_of_the_first_statistics(first_reward: int, built: Any) -> None:
    components = built(tiny_ppo())
    algorithm, store = components.algorithm, components.replay.store
    algorithm.trials.open(store)
    for iteration in range(3):
        size = float(iteration >= first_reward) * 100.0
        rewards = {trial: size * np.arange(len(store.get(trial))) for trial in store.ids()}
        algorithm.training_rewards = lambda *_, rewards=rewards: rewards
        found = algorithm.annotate(components.replay)
        with torch.no_grad():
            _, now = algorithm._predict_trials(components.replay)
        for trial, each in found.items():
            np.testing.assert_allclose(each[VALUE], now[trial][:-1], rtol=1e-4, atol=1e-3)
            assert each[VALUE].any() == (size > 0)


def test_every_pass_has_every_window_once_in_another_order(built: Any) -> None:
    components = built(tiny_ppo())
    trials = NewTrials(PassesConfig(epochs=3, minibatch_transitions=16), context_length=4, seed=1)
    trials.open(components.replay.store)
    passes = [trials.minibatches(epoch) for epoch in range(3)]
    for parts in passes:
        assert sorted(window for part in parts for window in part) == sorted(trials.windows)
        sizes = [sum(window.length for window in part) for part in parts]
        assert max(sizes) - min(sizes) <= 4
    assert passes[0] != passes[1] != passes[2] and passes[0] == trials.minibatches(0)
    lengths = {trial: len(components.replay.store.get(trial)) for trial in components.replay.store.ids()}
    covered = {trial: sum(w.length for w in trials.windows if w.trajectory_id == trial) for trial in lengths}
    assert covered == lengths and {window.start % 4 for window in trials.windows} == {0}


def test_it_goes_on_between_two_updates_to_the_bit(built: Any) -> None:
    one, other = built(tiny_ppo()), built(tiny_ppo())
    batches = one.algorithm.batches(one.replay, one.algorithm.updates_due(one.replay))
    for _ in range(3):
        one.algorithm.update(next(batches))
    other.algorithm.load_state_dict(copy.deepcopy(one.algorithm.state_dict()))
    due = other.algorithm.updates_due(other.replay)
    assert due == one.algorithm.updates_due(one.replay) > 0
    for batch in batches:
        one.algorithm.update(batch)
    for batch in other.algorithm.batches(other.replay, due):
        other.algorithm.update(batch)
    same = zip(one.algorithm.model.state_dict().values(), other.algorithm.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)
    assert one.algorithm.trials.state_dict() == other.algorithm.trials.state_dict()


def test_the_next_iteration_has_the_next_trials_alone(built: Any) -> None:
    components = built(tiny_ppo())
    algorithm, store = components.algorithm, components.replay.store
    for batch in algorithm.batches(components.replay, algorithm.updates_due(components.replay)):
        algorithm.update(batch)
    before = store.total_appended
    collect(components, 48)
    algorithm.trials.open(store)
    assert {window.trajectory_id for window in algorithm.trials.windows} == set(range(before, store.total_appended))


def test_an_iteration_waits_for_some_trials(built: Any) -> None:
    components = built(tiny_ppo(**{"learner.passes.min_trials": 6}), 28)
    algorithm, store = components.algorithm, components.replay.store
    assert len(store) == 4 and algorithm.updates_due(components.replay) == 0
    collect(components, 28)
    assert len(store) == 8 and algorithm.updates_due(components.replay) > 0
    algorithm.trials.open(store)
    assert {window.trajectory_id for window in algorithm.trials.windows} == set(range(8))


def test_a_far_policy_ends_the_updates_of_its_iteration(built: Any) -> None:
    components = built(tiny_ppo(**{"learner.target_kl": 1e-12, "learner.learning_rate": 0.1}))
    algorithm = components.algorithm
    metrics = [
        algorithm.update(batch)
        for batch in algorithm.batches(components.replay, algorithm.updates_due(components.replay))
    ]
    assert metrics[0] and not metrics[-1] and sum(map(bool, metrics)) <= 3
    assert not algorithm.trials.is_open and algorithm.trials.iterations == 1


def test_values_are_unchanged_when_their_statistics_move(built: Any) -> None:
    agent = built(tiny_ppo(), 0).algorithm.agent
    agent.update_value_statistics(torch.tensor([3.0, 5.0]))
    state = torch.randn(7, 8)
    before = agent.value_of(agent.normalized_value(state)).detach()
    agent.update_value_statistics(torch.tensor([300.0, -500.0]))
    torch.testing.assert_close(agent.value_of(agent.normalized_value(state)).detach(), before, atol=1e-3, rtol=1e-4)
    assert float(agent.value_code.std_G) > 10.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"updates_per_env_step": 0.1}, "updates_per_env_step must be 0"),
        ({"updates_anneal_env_steps": 100}, "updates_anneal_env_steps must be 0"),
        ({"offline.data": ("runs/other",)}, "offline.data must be empty"),
        ({"num_learners": 2}, "num_learners must be 1"),
        ({"replay.relabel.mode": "all"}, "replay.relabel.mode must be none"),
    ],
)
def test_what_needs_other_data_is_refused_in_a_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        tiny_ppo(**changes)


def test_its_settings_keep_the_task_and_the_networks_of_the_recipe() -> None:
    own, config = load_recipe("passive-tmaze"), with_algorithm(load_recipe("passive-tmaze"), "ppo")
    recipe, ppo = own.make_config(own.env), config.make_config(own.env)
    assert isinstance(ppo.algorithm, PPOConfig)
    assert ppo.algorithm.agent.trajectory_encoder == recipe.algorithm.agent.trajectory_encoder
    assert ppo.algorithm.agent.actor.hidden_sizes == recipe.algorithm.agent.actor.hidden_sizes
    assert (ppo.env, ppo.env_steps, ppo.context_length, ppo.eval) == (
        recipe.env,
        recipe.env_steps,
        recipe.context_length,
        replace(recipe.eval, choose_policy=True),
    )
    trial = ppo.num_envs * ppo.env.max_trial_steps
    assert ppo.env_steps_per_iteration % trial == 0 or ppo.env_steps_per_iteration < trial


def test_the_learning_rate_decays_over_the_steps_learned_from() -> None:
    config = replace(PPOConfig().learner, learning_rate=1.0, lr_decay_env_steps=10)
    assert [round(config.lr_at(each), 3) for each in (0, 5, 10, 20)] == [1.0, 0.55, 0.1, 0.1]


def test_the_entropy_bonus_falls_to_0_over_the_steps_learned_from(built: Any) -> None:
    config = replace(PPOConfig().learner, entropy_coef=1.0, entropy_decay_env_steps=10)
    assert [config.entropy_coef_at(each) for each in (0, 5, 10, 20)] == [1.0, 0.5, 0.0, 0.0]
    assert replace(config, entropy_decay_env_steps=0).entropy_coef_at(20) == 1.0
    recipe = with_algorithm(load_recipe("passive-tmaze"), "ppo")
    run = recipe.make_config(recipe.env)
    assert isinstance(run.algorithm, PPOConfig) and run.algorithm.learner.entropy_decay_env_steps == run.env_steps

    def trained(transitions: int, **changes: Any) -> list[torch.Tensor]:
        changes = {f"learner.{name}": value for name, value in {"lr_decay_env_steps": 0, **changes}.items()}
        components = built(tiny_ppo(**changes))
        components.algorithm.trials.transitions = transitions
        components.algorithm.update(next(components.algorithm.batches(components.replay, 1)))
        return [each.detach() for each in components.algorithm.model.parameters()]

    def equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
        return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))

    none = trained(0, entropy_coef=0.0)
    assert equal(trained(50, entropy_coef=1.0, entropy_decay_env_steps=50), none)
    assert not equal(trained(0, entropy_coef=1.0, entropy_decay_env_steps=50), none)
