"""The policy of novelty: its reward, when it learns and acts, and that nothing else depends on it."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tiny_agents import (
    CONTINUOUS,
    DISCRETE,
    TINY_AGENT,
    ActionSpace,
    double_batch,
    every_action_space,
    random_step,
    random_windows,
    tiny_agent,
)

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.collecting_policy import CollectingPolicy
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.novelty import MAX_LEAF_NUMBERS, NoveltyPolicy, NoveltyPolicyConfig
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.data.batch import Batch, pack
from yamame.data.goals import INSTRUCTION_KEY
from yamame.errors import UserError

OF_COORDINATES = (f"{INSTRUCTION_KEY}=instruction_coordinates",)
NOVELTY = NoveltyPolicyConfig(trial_fraction=0.5, num_updates=100, hidden_sizes=(16, 16))
QUICK = replace(NOVELTY, hidden_sizes=(64, 64), learning_rate=3e-3)
ENVS = 4
step_at = partial(random_step, num_envs=ENVS)


def batch_of(action_space: ActionSpace = DISCRETE, *, reward: float | None = None, seed: int = 0) -> Batch:
    batch = double_batch(random_windows(seed, (5, 9, 2), action_space), token_multiple=8)
    return batch if reward is None else replace(batch, reward=torch.full_like(batch.reward, reward))


def batch_of_windows(lengths: tuple[int, ...], action_space: ActionSpace = DISCRETE) -> Batch:
    """A batch of trajectories 0, 1, ..."""
    windows = [replace(each, trajectory_id=i) for i, each in enumerate(random_windows(0, lengths, action_space))]
    return double_batch(windows, token_multiple=8)


def learner_of(action_space: ActionSpace = DISCRETE, novelty: NoveltyPolicyConfig | None = NOVELTY) -> Learner:
    config = LearnerConfig(lr_warmup_updates=1, learning_rate=1e-3)
    agent = tiny_agent(action_space=action_space, novelty=novelty)
    return Learner(agent, config, generator=torch.Generator().manual_seed(0))


def novelty_of(learner: Learner) -> NoveltyPolicy:
    assert learner.agent.novelty is not None
    return learner.agent.novelty


def inputs_of(agent: Agent, batch: Batch) -> torch.Tensor:
    assert agent.novelty is not None
    normalized = agent.timestep_encoder.normalized(agent.features(batch))
    return agent.novelty.inputs(normalized, agent.novelty.leaf_numbers(batch.observation))


def state_of(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in learner.agent.state_dict().items()}


def train_novelty(learner: Learner, batch: Batch) -> None:
    """Update the policy of novelty alone."""
    assert learner._novelty is not None
    learner._novelty.update(batch)


def novelty_in(learner: Learner, batch: Batch) -> torch.Tensor:
    policy = novelty_of(learner)
    with torch.no_grad():
        observation_NO = policy.observed(inputs_of(learner.agent, batch))
        flips_NCF = policy.predicted_flips(observation_NO, policy.prior(observation_NO), batch.action)
    return flips_NCF.square().mean(dim=2).sqrt().mean(dim=1)


@pytest.mark.parametrize("action_space", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_novelty_is_one_over_the_root_of_the_visits(action_space: ActionSpace) -> None:
    """Windows of 64 trajectories: one place is that of all but one first transition, another that of the last one."""
    learner = learner_of(action_space, QUICK)
    lengths = (2,) * 64
    batch = batch_of_windows(lengths, action_space)
    rare = batch.trajectory_ids == 63
    place = torch.where(rare, 1.0, -1.0).to(batch.reward.dtype)
    observation = {"vector": place[:, None].expand(-1, 3), "cell": torch.zeros_like(batch.observation["cell"])}
    batch = replace(batch, observation=observation, action=torch.zeros_like(batch.action))
    for _ in range(150):
        train_novelty(learner, batch)
    novelty = novelty_in(learner, batch)
    visits = 2 if action_space == DISCRETE else 3  # of observations, the last one of a window counts, too
    assert novelty[rare & batch.loss_mask].mean() == pytest.approx(visits**-0.5, abs=0.15)
    assert novelty[~rare & batch.loss_mask].mean() == pytest.approx((63 * visits) ** -0.5, abs=0.05)


def test_choices_have_visits_of_their_own() -> None:
    """In two places, most trajectories take action 0, a few action 1, and none action 2."""
    learner = learner_of(novelty=QUICK)
    batch = batch_of_windows((1,) * 80)
    place = (batch.trajectory_ids % 2 * 2.0 - 1.0).to(batch.reward.dtype)
    observation = {"vector": place[:, None].expand(-1, 3), "cell": torch.zeros_like(batch.observation["cell"])}
    batch = replace(batch, observation=observation, action=(batch.trajectory_ids < 4).long())
    for _ in range(150):
        train_novelty(learner, batch)
    often, rare, never = (
        novelty_in(learner, replace(batch, action=torch.full_like(batch.action, choice)))[batch.loss_mask].mean()
        for choice in range(3)
    )
    assert often == pytest.approx(38**-0.5, abs=0.06)
    assert rare == pytest.approx(2**-0.5, abs=0.15)
    assert never > rare - 0.1


def test_novelty_falls_with_visits_and_not_with_updates() -> None:
    """A random network's error falls with each update; visits are the same however often they are sampled."""
    learner = learner_of(novelty=QUICK)
    batch = batch_of_windows((1, 1))
    for _ in range(80):
        train_novelty(learner, batch)
    before = novelty_in(learner, batch)[batch.loss_mask].mean()
    for _ in range(150):
        train_novelty(learner, batch)
    assert novelty_in(learner, batch)[batch.loss_mask].mean() > 0.8 * before > 0.5


def test_what_is_not_observed_has_no_novelty() -> None:
    """Reset flag, previous reward, time and previous action are inputs of the policy alone."""
    learner, batch = learner_of(), batch_of()
    others = replace(
        batch,
        previous_reward=batch.previous_reward + 1,
        time=batch.time + 3,
        previous_action=(batch.previous_action + 1) % 3,
        episode_start=~batch.episode_start,
    )
    torch.testing.assert_close(novelty_in(learner, batch), novelty_in(learner, others), rtol=0, atol=0)
    assert not torch.equal(inputs_of(learner.agent, batch), inputs_of(learner.agent, others))


def test_the_policy_prefers_the_action_that_leads_to_what_is_new() -> None:
    """Action 2 leads to a new observation every time, the others to one that was seen in every batch."""
    learner = learner_of(novelty=replace(NOVELTY, hidden_sizes=(64, 64), entropy_coef=0.03))
    rng = np.random.default_rng(0)
    for index in range(300):
        batch = batch_of()
        action = torch.from_numpy(rng.integers(3, size=len(batch.action)))
        arrived_by = action.roll(1)
        surprise = torch.from_numpy(rng.uniform(-1, 1, (len(action), 3)))
        vector = torch.where((arrived_by == 2)[:, None], surprise, torch.full_like(surprise, 0.5))
        observation = {"vector": vector, "cell": torch.zeros_like(batch.observation["cell"])}
        batch = replace(
            batch,
            action=action,
            previous_action=arrived_by,
            observation=observation,
            trajectory_ids=batch.segment_ids + 10 * index,
        )
        train_novelty(learner, batch)
    probability = novelty_of(learner).actor(inputs_of(learner.agent, batch)).probability_NGA
    assert probability[batch.loss_mask, 0].mean(0)[2] > 0.6


def test_it_learns_and_acts_while_no_reward_is_positive() -> None:
    for reward, learns in ((0.0, True), (-1.0, True), (1.0, False), (1e-6, False)):
        learner = learner_of()
        before = state_of(learner)
        learner.update(batch_of(reward=reward))
        changed = {name for name, value in learner.agent.state_dict().items() if not torch.equal(before[name], value)}
        assert any(name.startswith("novelty.actor") for name in changed) == learns
        assert bool(novelty_of(learner).acts) == learns


def test_it_stops_when_rewards_become_frequent_and_starts_when_they_get_rare_again() -> None:
    learner = learner_of(novelty=replace(NOVELTY, num_updates=10_000))
    assert learner._novelty is not None
    acts = []
    for reward, batches in ((0.0, 10), (1.0, 10), (0.0, 400)):
        for _ in range(batches):
            learner._novelty.is_due(batch_of(reward=reward), 1)
        acts.append(bool(novelty_of(learner).acts))
    assert acts == [True, False, True]


def test_windows_of_padding_count_for_nothing() -> None:
    learners = [learner_of(), learner_of()]
    for learner, multiple in zip(learners, (1, 16), strict=True):
        assert learner._novelty is not None
        batch = pack(random_windows(0, (5, 9), DISCRETE), pad_windows_to_multiple_of=multiple)
        learner._novelty.is_due(batch, 1)
    (one, padded) = (learner.metrics()["bonus/rewarded_fraction"] for learner in learners)
    assert padded == one > 0.0


def test_the_last_observation_of_a_trial_becomes_familiar_where_actions_are_continuous() -> None:
    """Its novelty is the reward of the last action: without visits, ending trials would stay worth most."""
    learner = learner_of(CONTINUOUS, QUICK)
    batch = batch_of_windows((2,) * 64, CONTINUOUS)
    last = batch.token_mask & ~batch.loss_mask
    place = torch.where(last, 1.0, -1.0).to(batch.reward.dtype)
    observation = {"vector": place[:, None].expand(-1, 3), "cell": torch.zeros_like(batch.observation["cell"])}
    batch = replace(batch, observation=observation)
    for _ in range(150):
        train_novelty(learner, batch)
    assert novelty_in(learner, batch)[last].mean() == pytest.approx(64**-0.5, abs=0.05)


def test_it_ends_after_its_updates() -> None:
    learner = learner_of(novelty=replace(NOVELTY, num_updates=2))
    for expected in (True, True, False):
        learner.update(batch_of(reward=0.0))
        assert bool(novelty_of(learner).acts) == expected
    before = state_of(learner)
    metrics = learner.update(batch_of(reward=0.0))
    for name, value in learner.agent.state_dict().items():
        if name.startswith("novelty."):
            assert torch.equal(before[name], value), name
    assert "bonus/mean_novelty" not in metrics


@every_action_space
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_the_agent_does_not_depend_on_it(action_space: ActionSpace, reward: float) -> None:
    """With one batch, since what it draws from the random stream changes later updates."""
    alone, beside = learner_of(action_space, None), learner_of(action_space)
    for learner in (alone, beside):
        learner.update(batch_of(action_space, reward=reward))
    for name, value in alone.agent.state_dict().items():
        assert torch.equal(value, beside.agent.state_dict()[name]), name


@every_action_space
def test_runs_whose_rewards_are_frequent_are_those_without_it(action_space: ActionSpace) -> None:
    alone, beside = learner_of(action_space, None), learner_of(action_space)
    for learner in (alone, beside):
        for seed in range(5):
            learner.update(batch_of(action_space, reward=1.0, seed=seed))
    for name, value in alone.agent.state_dict().items():
        assert torch.equal(value, beside.agent.state_dict()[name]), name


@every_action_space
def test_continues_exactly(action_space: ActionSpace) -> None:
    whole, first = learner_of(action_space), learner_of(action_space)
    for seed in range(3):
        whole.update(batch_of(action_space, reward=0.0, seed=seed))
        first.update(batch_of(action_space, reward=0.0, seed=seed))
    second = learner_of(action_space)
    second.load_state_dict(first.state_dict())
    for seed in range(3, 6):
        for learner in (whole, second):
            learner.update(batch_of(action_space, reward=0.0, seed=seed))
    assert novelty_of(second).mean_novelty > 0
    for name, value in whole.agent.state_dict().items():
        assert torch.equal(value, second.agent.state_dict()[name]), name


def test_checkpoints_of_another_novelty_load() -> None:
    """In earlier versions it was the error of a predictor, of other sizes. Policy and critics continue."""
    first, second = learner_of(), learner_of()
    first.update(batch_of(reward=0.0))
    state = first.state_dict()
    state["model"] = {name: value for name, value in state["model"].items() if "counter" not in name}
    state["model"] |= {"novelty.predictor.output.weight": torch.zeros(3), "novelty.mean_error": torch.ones(())}
    earlier = state["novelty_optimizer"]
    earlier.pop("counts_visits")
    earlier["optimizer"] = {}
    second.load_state_dict(state)
    for name in ("novelty.actor.mlp.output.weight", "novelty.critic.layers.0.weight"):
        assert torch.equal(second.agent.state_dict()[name], first.agent.state_dict()[name])
    second.update(batch_of(reward=0.0))
    assert bool(novelty_of(second).acts)


def test_a_batch_that_is_not_finite_changes_nothing() -> None:
    learner = learner_of()
    learner.update(batch_of(reward=0.0))
    before = state_of(learner)
    batch = batch_of(reward=0.0)
    vector = batch.observation["vector"].clone()
    vector[0] = torch.nan
    learner.update(replace(batch, observation={**batch.observation, "vector": vector}))
    for name, value in learner.agent.state_dict().items():
        if name.startswith("novelty."):
            assert torch.equal(before[name], value), name


def policies(agent: Agent, config: NoveltyPolicyConfig = NOVELTY) -> list[NetworkPolicy]:
    """One that collects, in which novelty acts if there is one, and one that evaluates."""
    if agent.novelty is not None:
        agent.novelty.acts.fill_(value=True)
    algorithm = AMAGOConfig(agent=TINY_AGENT, novelty=config)
    return [
        algorithm.build_policy(agent, num_envs=ENVS, generator=torch.Generator().manual_seed(0), collects=collects)
        for collects in (True, False)
    ]


@every_action_space
def test_it_acts_in_its_trials_and_the_agent_in_the_others(action_space: ActionSpace) -> None:
    agent = tiny_agent(action_space=action_space, novelty=NOVELTY)
    collecting, evaluating = policies(agent)
    assert type(evaluating) is NetworkPolicy and isinstance(collecting, CollectingPolicy)
    for trial in range(2):
        in_turn = np.array([1, 3]) - trial
        for time in range(3):
            step = step_at(time, action_space)
            mixed, own = (policy.act(step, deterministic=True) for policy in (collecting, evaluating))
            others = np.setdiff1d(np.arange(ENVS), in_turn)
            np.testing.assert_allclose(mixed[others], own[others], rtol=1e-6)
            np.testing.assert_array_equal(np.flatnonzero(collecting.explores_E), in_turn)
            if isinstance(action_space, spaces.Box):
                assert not np.isclose(mixed[in_turn], own[in_turn]).all(axis=1).any()
    assert agent.novelty is not None
    agent.novelty.acts.fill_(value=False)
    collecting.load_weights(agent, version=1)
    assert not collecting.explores_E.any()
    step = step_at(0, action_space)
    mixed, own = (policy.act(step, deterministic=True) for policy in (collecting, evaluating))
    np.testing.assert_allclose(mixed, own, rtol=1e-6)


def test_the_recorded_log_probability_is_that_of_the_policy_that_acted() -> None:
    agent = tiny_agent(novelty=NOVELTY)
    agent.novelty.acts.fill_(value=True)  # type: ignore[union-attr]
    collecting = CollectingPolicy(
        agent,
        novelty_fraction=0.5,
        separate_fraction=0.0,
        num_envs=ENVS,
        generator=torch.Generator().manual_seed(0),
        records_log_prob=True,
    )
    step = step_at(0, DISCRETE)
    action = collecting.act(step)
    probability = collecting.last_parameters().probability_EA
    assert probability is not None
    recorded = collecting.extras(action, np.zeros(ENVS), np.zeros(ENVS, np.bool_))["acting_log_prob"]
    np.testing.assert_allclose(recorded, np.log(probability[np.arange(ENVS), action]), rtol=1e-5)


@pytest.mark.parametrize("action_space", [DISCRETE, spaces.MultiDiscrete([3, 2])], ids=["discrete", "several"])
def test_it_never_takes_a_masked_action(action_space: ActionSpace) -> None:
    agent = tiny_agent(action_space=action_space, novelty=NOVELTY)
    collecting, _ = policies(agent)
    size = 3 if action_space == DISCRETE else 5
    mask = np.zeros((ENVS, size), np.bool_)
    mask[:, [1, *([4] if size == 5 else [])]] = True
    for time in range(20):
        action = np.asarray(collecting.act(step_at(time, action_space, mask))).reshape(ENVS, -1)
        assert (action == 1).all()


def test_the_weights_of_a_policy_follow_those_of_the_agent() -> None:
    learner = learner_of(CONTINUOUS)
    collecting, _ = policies(learner.agent)
    step = step_at(0, CONTINUOUS)
    before = collecting.act(step, deterministic=True)[1::2]
    for seed in range(5):
        learner.update(batch_of(CONTINUOUS, reward=0.0, seed=seed))
    collecting.load_weights(learner.agent, version=5)
    collecting.reset()
    step = replace(step, time=np.full(ENVS, 1))  # the same trials
    assert not np.allclose(before, collecting.act(step, deterministic=True)[1::2])


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 255, (20, 20, 3), np.uint8),
        spaces.Dict({"image": spaces.Box(0, 255, (12, 12, 3), np.uint8), "place": spaces.Box(-1, 1, (2,), np.float32)}),
        spaces.Dict({"word": spaces.Text(5), "place": spaces.Box(-1, 1, (2,), np.float32)}),
    ],
    ids=["image", "image and numbers", "text"],
)
def test_every_kind_of_observation_has_novelty(space: spaces.Space) -> None:
    from observation_agents import AGENT, collected
    from sampled_observations import LENGTH, SampledObservations

    from yamame.data.batch import Window, pack

    torch.manual_seed(0)
    action_space = SampledObservations.action_space
    agent = Agent(
        AGENT, observation_space=space, action_space=action_space, context_length=LENGTH, horizon=LENGTH,
        novelty=NOVELTY,
    )  # fmt: skip
    trajectories = collected(agent, space, trials=4)
    batch = pack([Window(trajectory=each, start=0, length=len(each)) for each in trajectories])
    learner = Learner(agent, LearnerConfig(), generator=torch.Generator().manual_seed(0))
    novelties = []
    for _ in range(40):
        assert learner._novelty is not None
        novelties.append(float(learner._novelty.update(batch)["bonus/mean_novelty"]))
    assert all(0 < each < 2 for each in novelties) and len(set(novelties)) == len(novelties)
    assert agent.novelty is not None
    numbers = agent.novelty.leaf_numbers(batch.observation)
    assert numbers is not None and numbers.shape[1] <= MAX_LEAF_NUMBERS


def test_weights_of_runs_with_and_without_it_fit_each_other() -> None:
    without, with_it = tiny_agent(seed=1), tiny_agent(seed=2, novelty=NOVELTY)
    own = {name: value.clone() for name, value in with_it.state_dict().items() if name.startswith("novelty.")}
    with_it.load_state_dict(without.state_dict())
    for name, value in with_it.state_dict().items():
        expected = own[name] if name.startswith("novelty.") else without.state_dict()[name]
        assert torch.equal(value, expected), name
    without.load_state_dict(with_it.state_dict())


def test_it_is_no_part_of_the_weights_that_act_but_of_those_that_collect() -> None:
    agent, config = tiny_agent(novelty=NOVELTY), AMAGOConfig(agent=TINY_AGENT, novelty=NOVELTY)
    assert not [name for name in config.acting_state(agent) if name.startswith("novelty.")]
    collecting = config.collecting_state(agent)
    assert set(config.acting_state(agent)) < set(collecting)
    assert {name for name in collecting if name.startswith("novelty.")} == {
        f"novelty.{name}"
        for name in agent.novelty.state_dict()  # type: ignore[union-attr]
    }


@pytest.mark.parametrize("others", [{}, {"here": spaces.Box(0.0, 20.0, (2,))}], ids=["alone", "beside numbers"])
def test_an_instruction_has_no_novelty(others: dict[str, spaces.Space]) -> None:
    instruction = spaces.Box(0.0, 20.0, (3, 2), np.float32)
    agent = Agent(
        replace(TINY_AGENT, timestep_encoder=replace(TINY_AGENT.timestep_encoder, encoder_overrides=OF_COORDINATES)),
        observation_space=spaces.Dict({INSTRUCTION_KEY: instruction, **others}),
        action_space=DISCRETE,
        context_length=4,
        horizon=4,
        novelty=NOVELTY,
    )
    assert (agent.novelty is None) == (not others)


def test_a_fraction_without_updates_is_refused() -> None:
    """It would explore nothing, in recipes whose settings have no policy of novelty."""
    with pytest.raises(UserError, match="num_updates"):
        NoveltyPolicyConfig(trial_fraction=0.25)
    NoveltyPolicyConfig(trial_fraction=0.0, num_updates=10)  # how it is turned off
