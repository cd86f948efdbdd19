"""What is forbidden is never done: not by the policy, nor by exploration, nor at random. A breach raises."""

import numpy as np
import pytest
import torch
from action_environments import SPACES, forbidding
from collecting import collect_trials
from tiny_agents import TINY_AGENT

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.collect.collector import Collector
from yamame.collect.exploration import EpsilonGreedy, ExplorationConfig, Explorer, NoExploration
from yamame.data.actions import ACTION_MASK_KEY, num_choices, sample_uniform_actions, split_mask, strip_action_mask
from yamame.data.batch import Batch, Window, pack
from yamame.data.codec import decode, encode
from yamame.data.step import PolicyInput
from yamame.data.trajectory import Trajectory
from yamame.envs.base import TrialVectorEnv
from yamame.envs.env_fn import EnvFnConfig

pytestmark = pytest.mark.slow

ROWS, HORIZON = 8, 9
WHERE = {"discrete": "info", "several": "leaf", "bits": "nested"}
every_kind = pytest.mark.parametrize("kind", SPACES)


def trials_of(kind: str, *, attempts: int | None = 2) -> TrialVectorEnv:
    key = "legal" if WHERE[kind] == "leaf" else ACTION_MASK_KEY
    factory = forbidding(kind, WHERE[kind])
    return EnvFnConfig(env_fn=factory, horizon=HORIZON, attempts=attempts, num_workers=0, action_mask_key=key).build(
        ROWS, 2
    )


def agent_of(trials: TrialVectorEnv) -> Agent:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        agent = Agent(
            TINY_AGENT,
            observation_space=strip_action_mask(trials.observation_space, "legal"),
            action_space=trials.action_space,
            context_length=HORIZON,
            horizon=HORIZON,
        )
        with torch.no_grad():
            agent.actor.mlp.output.bias.normal_(std=4.0)  # strong opinions, many of them forbidden
    return agent


def collected(
    kind: str, exploration: ExplorationConfig, steps: int, *, deterministic: bool = False
) -> list[Trajectory]:
    trials = trials_of(kind)
    policy = NetworkPolicy(agent_of(trials), num_envs=ROWS, generator=torch.Generator().manual_seed(1))
    explorer = Explorer(exploration, trials.action_space, ROWS, np.random.default_rng(3))
    collector = Collector(trials, "masked", explorer)
    return list(collect_trials(collector, policy, steps, deterministic=deterministic))


@every_kind
@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_no_masked_action_in_thousands_of_steps(kind: str, level: float) -> None:
    finished = collected(kind, EpsilonGreedy(initial_eps=level, final_eps=level), 2000)
    sizes = num_choices(SPACES[kind])
    assert sum(len(trajectory) for trajectory in finished) > 1500
    for trajectory in finished:
        mask = trajectory.observation[ACTION_MASK_KEY]
        assert mask.shape == (len(trajectory) + 1, sum(sizes)) and mask.dtype == np.bool_
        assert trajectory.action.dtype == np.int64
        assert trajectory.action.shape == (len(trajectory), *(() if kind == "discrete" else (len(sizes),)))
        columns = trajectory.action.reshape(len(trajectory), -1).T
        for choice, allowed in zip(columns, split_mask(mask[:-1], sizes), strict=True):
            assert np.take_along_axis(allowed, choice[:, None], axis=1).all()


@every_kind
def test_deterministic_actions_are_allowed(kind: str) -> None:
    assert collected(kind, NoExploration(), 800, deterministic=True)


@every_kind
def test_exploration_is_uniform_over_allowed_actions(kind: str) -> None:
    sizes, rows = num_choices(SPACES[kind]), 30_000
    mask = np.random.default_rng(0).random((1, sum(sizes))) < 0.5
    for part in split_mask(mask, sizes):
        part[0, -1] = True
    uniform = np.random.default_rng(1).random((rows, len(sizes)))
    chosen = sample_uniform_actions(uniform, sizes, mask.repeat(rows, axis=0))
    for column, part in zip(chosen.T, split_mask(mask, sizes), strict=True):
        frequency = np.bincount(column, minlength=part.shape[1]) / rows
        np.testing.assert_allclose(frequency, part[0] / part.sum(), atol=0.02)
    np.testing.assert_array_equal(
        sample_uniform_actions(uniform, sizes, None),
        sample_uniform_actions(uniform, sizes, np.ones_like(mask).repeat(rows, axis=0)),
    )


def test_components_are_explored_each_by_itself() -> None:
    rows, level = 40_000, 0.4
    explorer = Explorer(EpsilonGreedy(initial_eps=level), SPACES["several"], rows, np.random.default_rng(0))
    action = np.zeros((rows, 4), np.int64)
    executed = explorer.add_noise(action, np.zeros(rows, np.int64), 10, 0)
    changed = executed != action
    np.testing.assert_allclose(changed.mean(axis=0), level * (1 - 1 / np.array([3, 2, 4, 1])), atol=0.01)
    assert abs(np.corrcoef(changed[:, 0], changed[:, 2])[0, 1]) < 0.02


@every_kind
def test_stored_trajectories_and_batches_keep_actions_and_masks(kind: str) -> None:
    finished = collected(kind, EpsilonGreedy(), 100)
    for trajectory in finished:
        again = decode(encode(trajectory))
        for one, other in [
            (again.action, trajectory.action),
            (again.observation[ACTION_MASK_KEY], trajectory.observation[ACTION_MASK_KEY]),
        ]:
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
    batch = pack(
        [Window(trajectory=trajectory, start=1, length=2) for trajectory in finished[:3]], pad_tokens_to_multiple_of=16
    )
    assert batch.action.dtype == torch.int64 and batch.action_mask is not None
    for index, trajectory in enumerate(finished[:3]):
        np.testing.assert_array_equal(batch.action[3 * index], trajectory.action[1])
        np.testing.assert_array_equal(batch.previous_action[3 * index], trajectory.action[0])
        np.testing.assert_array_equal(batch.action_mask[3 * index + 2], trajectory.observation[ACTION_MASK_KEY][3])
    assert batch.action_mask[9:].all() and not batch.action_mask[:9].all()
    assert torch.equal(batch.slice_tokens(slice(4, 16)).action_mask, batch.action_mask[4:])


@every_kind
def test_the_policy_that_acts_is_the_one_that_is_trained(kind: str) -> None:
    """Step by step through the cache, and over whole trials at once: the same masked probabilities."""
    trials = trials_of(kind)
    agent = agent_of(trials).double()
    finished = [each for each in collected(kind, EpsilonGreedy(), 300) if len(each) == HORIZON][:ROWS]
    whole = pack([Window(trajectory=each, start=0, length=len(each)) for each in finished], pad_tokens_to_multiple_of=1)
    whole = whole.apply(lambda value: value.double() if value.is_floating_point() else value)
    with torch.no_grad():
        trained = agent.actor(agent.encode(agent.features(whole), whole), whole.action_mask)
    policy = NetworkPolicy(agent, num_envs=len(finished), generator=torch.Generator())
    for time in range(HORIZON):
        acting = policy.distribution(timestep(finished, time))
        for name in ("probability_NGA", "log_softmax_NGA"):
            one = getattr(getattr(trained, "categorical", trained), name)
            components = len(one) // len(whole.reward)
            expected = one.unflatten(0, (-1, components)).unflatten(0, (len(finished), HORIZON + 1))[:, time, :, -1:]
            actual = getattr(getattr(acting, "categorical", acting), name).unflatten(0, (-1, components))
            torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8)
            assert actual.isfinite().all() == (name == "probability_NGA")


def timestep(finished: list[Trajectory], time: int) -> PolicyInput:
    before = max(0, time - 1)
    return PolicyInput(
        time=np.full(len(finished), time),
        observation={
            name: np.stack([each.observation[name][time] for each in finished]) for name in finished[0].observation
        },
        previous_action=np.stack([each.action[before] for each in finished]),
        previous_reward=np.stack([each.reward[before] for each in finished]),
        episode_start=np.stack([each.episode_start[time] for each in finished]),
    )


@every_kind
def test_predictions_of_masked_batches_are_finite_where_they_count(kind: str) -> None:
    finished = collected(kind, EpsilonGreedy(), 200)
    agent, batch = agent_of(trials_of(kind)), whole_batch(finished)
    state = agent.encode(agent.features(batch), batch)
    noise = agent.actor.sample_noise(state, torch.Generator().manual_seed(0))
    target = agent.target_values(state.detach(), batch.action_mask, noise).q_policy_NKG
    predicted = agent.predict(state, batch, target.amin(1), noise)
    assert target.isfinite().all() and predicted.q_policy_NKG.isfinite().all() and predicted.entropy_NG.isfinite().all()
    assert predicted.log_prob_NG[batch.loss_mask].isfinite().all()
    (predicted.log_prob_NG[batch.loss_mask].sum() + predicted.q_policy_NKG.sum()).backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in agent.parameters())


def whole_batch(finished: list[Trajectory]) -> Batch:
    return pack([Window(trajectory=each, start=0, length=len(each)) for each in finished], pad_tokens_to_multiple_of=32)
