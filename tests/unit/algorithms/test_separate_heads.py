"""Separate heads: what they learn, when they act, and that nothing else depends on them."""

import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

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
    random_trajectory,
    random_windows,
    shake,
    tiny_agent,
)

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.algorithms.amago.separate_heads import SeparateHeads
from yamame.data.batch import ACTING_LOG_PROB, Batch, LossOutput, Predictions, Window, pack
from yamame.data.step import PolicyInput
from yamame.errors import UserError
from yamame.nets.compute import CPU_FLOAT32
from yamame.nets.heads.popart import PopArtConfig

GAMMA = 0.999
SEPARATE = replace(
    TINY_AGENT,
    separate_gamma=GAMMA,
    critic=replace(TINY_AGENT.critic, value_code=PopArtConfig(rescale_critics=True)),
)
WITHOUT = replace(SEPARATE, separate_gamma=0.0)
PART = "separate."
ENVS = 3
step_at = partial(random_step, num_envs=ENVS)


def learner_of(
    config: object = SEPARATE, action_space: ActionSpace = DISCRETE, *, averaged: bool = True, **settings: object
) -> Learner:
    agent = tiny_agent(config, action_space, averaged=averaged)  # type: ignore[arg-type]
    learning = LearnerConfig(
        lr_warmup_updates=1,
        learning_rate=1e-3,
        averaging_rate=0.5 if averaged else 0.0,
        **{"td": TDLoss(trace_decay=0.6), **settings},  # type: ignore[arg-type]
    )
    return Learner(agent, learning, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _every_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yamame.algorithms.amago.learner.UPDATE_INTERVAL", 1)


def batch_of(action_space: ActionSpace = DISCRETE, *, seed: int = 0) -> Batch:
    batch = double_batch(random_windows(seed, (5, 9, 2), action_space), token_multiple=8)
    generator = torch.Generator().manual_seed(seed)
    log_prob_N = -torch.rand(len(batch.reward), generator=generator, dtype=batch.reward.dtype)
    return replace(batch, extras={ACTING_LOG_PROB: log_prob_N})


def heads_of(learner: Learner) -> SeparateHeads:
    assert learner.agent.separate is not None
    return learner.agent.separate


def tensors(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in learner.agent.state_dict().items()}


def changed(before: dict[str, torch.Tensor], learner: Learner) -> set[str]:
    return {name for name, value in tensors(learner).items() if not torch.equal(value, before[name])}


@every_action_space
@pytest.mark.parametrize("num_critics", [1, 2, 4])
def test_all_other_weights_are_the_same_bits_as_without(action_space: ActionSpace, num_critics: int) -> None:
    td = TDLoss(trace_decay=0.6, num_critics_in_target=num_critics)
    learners = [learner_of(config, action_space, td=td) for config in (WITHOUT, SEPARATE)]
    before = tensors(learners[1])
    for seed in range(3):
        for learner in learners:
            learner.update(batch_of(action_space, seed=seed))
    without, with_it = map(tensors, learners)
    assert all(torch.equal(value, with_it[name]) for name, value in without.items())
    assert torch.equal(learners[0].generator.get_state(), learners[1].generator.get_state())
    moved = {name for name in changed(before, learners[1]) if name.startswith(PART)}
    parts = ("actor.", "critic.", "target_actor.", "target_critic.", "averaged_actor.", "value_code.")
    assert all(any(name.startswith(PART + part) for name in moved) for part in parts)


def test_a_late_reward_is_worth_as_much_as_its_gamma_says() -> None:
    """One reward at the end of twelve steps, whatever is done."""
    reward, rng = np.eye(12, dtype=np.float32)[-1], np.random.default_rng(0)
    trajectories = [replace(random_trajectory(rng, 12, ending="terminated"), reward=reward) for _ in range(6)]
    windows = [Window(trajectory=each, start=0, length=12) for each in trajectories]
    batch, trajectory = pack(windows, pad_tokens_to_multiple_of=1), trajectories[0]
    agent = tiny_agent(SEPARATE, dtype=torch.float32)
    config = LearnerConfig(lr_warmup_updates=1, learning_rate=3e-3, tau=0.1)
    learner = Learner(agent, config, generator=torch.Generator().manual_seed(0))
    for _ in range(400):
        learner.update(batch)
    policy_config = AMAGOConfig(agent=SEPARATE)
    found = policy_config.analyze(agent, trajectory)
    assert found.gammas_G == pytest.approx([0.5, 0.9, GAMMA, 0.95])
    assert found.q_TG is not None
    separate, acting = found.q_TG[0, 2:]
    assert separate == pytest.approx(GAMMA**11, abs=0.15)  # 0.97 to 1.05 with five seeds
    assert acting < 0.75  # 0.57


def test_targets_are_means_over_critics() -> None:
    """The agent's are minima, each of which is a deviation lower than the mean here."""
    learner = learner_of()
    learner.update(batch_of())
    for heads in (learner.agent, heads_of(learner)):
        last = heads.target_critic.layers[-1]
        with torch.no_grad():
            last.weight.zero_()
            last.bias.fill_(1.0)
            last.bias[::2] = -1.0
    batch = replace(batch_of(), extras={})
    state_ND = torch.zeros(len(batch.reward), 16, dtype=torch.float64)
    goes_on = batch.loss_mask & ~batch.terminated & ~batch.truncated
    assert learner._separate is not None
    for heads, trainer in (
        (learner.agent, learner._heads),
        (heads_of(learner), learner._separate._learner),
    ):
        code = heads.value_code
        target_NG = trainer.td_target(batch, state_ND, None, learner.generator)
        value_NG = (target_NG - batch.reward[:, None]) / heads.gammas_G
        deviations_NG = ((value_NG - code.mean_G) / code.std_G)[goes_on]
        mean = float(deviations_NG.mean())
        assert mean == pytest.approx(0.0, abs=1e-6) if heads is learner.agent.separate else mean < -0.5


def test_its_policy_acts_if_it_is_chosen() -> None:
    agent, config = tiny_agent(SEPARATE), AMAGOConfig(agent=SEPARATE)
    assert config.num_policies(agent) == 4
    assert agent.separate is not None
    with torch.no_grad():
        agent.actor.mlp.output.weight.zero_()
        agent.separate.actor.mlp.output.weight.zero_()
        agent.actor.mlp.output.bias.copy_(40.0 * torch.tensor([[1, 0, 0], [1, 0, 0], [0, 1, 0]]).flatten())
        agent.separate.actor.mlp.output.bias.copy_(torch.tensor([0.0, 0.0, 40.0]))
    expected = {0: 0, 1: 0, 2: 2, 3: 1, -1: 1, -2: 2, -3: 0, -4: 0}
    for index, action in expected.items():
        chosen = config.with_policy(index)
        policy = chosen.build_policy(agent, num_envs=ENVS, generator=torch.Generator())
        assert policy.act(step_at(0), deterministic=True).tolist() == [action] * ENVS, index
        policy.load_weights(agent, version=1)
        assert policy.act(step_at(0), deterministic=True).tolist() == [action] * ENVS, index
        functional = chosen.functional_policy(agent)
        assert functional.actor.mlp.output.bias.argmax().item() == action, index
        collecting = chosen.build_policy(agent, num_envs=ENVS, generator=torch.Generator(), collects=True)
        assert collecting.act(step_at(0), deterministic=True).tolist() == [1] * ENVS, index
        for shown in (False, True):
            found = chosen.analyze(agent, random_trajectory(np.random.default_rng(0), 4), acting_only=shown)
            assert found.action_distributions.probability_TA is not None
            assert set(found.action_distributions.probability_TA.argmax(1)) == {action}, index


@pytest.mark.parametrize("index", [4, -5])
def test_an_index_beyond_the_gammas_is_refused(index: int) -> None:
    with pytest.raises(UserError, match=f"evaluation_gamma_index is {index}: there are 4 gammas"):
        tiny_agent(replace(SEPARATE, evaluation_gamma_index=index))


@pytest.mark.parametrize("gamma", [1.0, -0.1])
def test_a_gamma_out_of_range_is_refused(gamma: float) -> None:
    with pytest.raises(UserError, match="separate_gamma"):
        replace(SEPARATE, separate_gamma=gamma)


def test_there_is_none_for_a_single_gamma() -> None:
    agent = tiny_agent(replace(SEPARATE, multi_gamma=False))
    assert agent.separate is None and agent.policy_gammas == (0.95,)


@every_action_space
def test_values_while_acting_are_those_of_the_whole_trajectory(action_space: ActionSpace) -> None:
    agent, config = tiny_agent(SEPARATE, action_space, dtype=torch.float32), AMAGOConfig(agent=SEPARATE)
    shake(agent)
    values = config.value_function(agent, num_envs=1)
    assert values.gammas == (0.5, 0.9, GAMMA, 0.95)
    trajectory = random_trajectory(np.random.default_rng(0), 1, action_space)
    found = config.analyze(agent, trajectory).value_TG
    assert found is not None and found.shape == (2, 4)
    start = PolicyInput(
        time=np.zeros(1, np.int64),
        observation={name: leaf[:1] for name, leaf in trajectory.observation.items()},
        previous_action=np.zeros_like(trajectory.action[:1]),
        previous_reward=np.zeros(1, np.float32),
        episode_start=np.ones(1, np.bool_),
    )
    np.testing.assert_allclose(values.step(start)[0], found[0], rtol=1e-4, atol=1e-5)


def test_the_moving_average_of_its_actor_acts() -> None:
    learner = learner_of()
    learner.update(batch_of())
    heads, config = heads_of(learner), AMAGOConfig(agent=SEPARATE).with_policy(2)
    policy = config.build_policy(learner.agent, num_envs=1, generator=torch.Generator())
    assert heads.averaged_actor is not None
    acting = policy.actor.state_dict()
    assert all(torch.equal(acting[name], value) for name, value in heads.averaged_actor.state_dict().items())
    assert any(not torch.equal(acting[name], value) for name, value in heads.actor.state_dict().items())


@pytest.mark.parametrize("averaged", [False, True])
def test_the_weights_that_act_are_enough(averaged: bool) -> None:
    learner, config = learner_of(averaged=averaged), AMAGOConfig(agent=SEPARATE)
    learner.update(batch_of())
    state = config.acting_state(learner.agent)
    other = tiny_agent(SEPARATE, seed=1, averaged=averaged)
    other.load_state_dict(state, strict=False)
    for index in range(4):
        policies = [
            config.with_policy(index).build_policy(agent, num_envs=ENVS, generator=torch.Generator())
            for agent in (learner.agent, other)
        ]
        probabilities = [policy.distribution(step_at(0)).probability_NGA for policy in policies]
        assert torch.equal(*probabilities)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_an_update_that_is_not_finite_changes_nothing_of_it(value: float) -> None:
    learner = learner_of()
    learner.update(batch_of())
    before = tensors(learner)
    batch = batch_of(seed=1)
    learner.update(replace(batch, reward=torch.full_like(batch.reward, value)))
    assert not [name for name in changed(before, learner) if name.startswith(PART)]


def test_a_restored_run_continues_bit_for_bit() -> None:
    learner, other = learner_of(), learner_of()
    learner.update(batch_of())
    other.load_state_dict(copy.deepcopy(learner.state_dict()))
    for seed in range(2):
        learner.update(batch_of(seed=seed))
        other.update(batch_of(seed=seed))
    assert not changed(tensors(learner), other)


def test_weights_of_runs_with_and_without_it_fit_each_other() -> None:
    without, with_it = tiny_agent(WITHOUT, seed=1), tiny_agent(SEPARATE, seed=2)
    own = {name: value.clone() for name, value in with_it.state_dict().items() if name.startswith(PART)}
    with_it.load_state_dict(without.state_dict())
    for name, value in with_it.state_dict().items():
        expected = own[name] if name.startswith(PART) else without.state_dict()[name]
        assert torch.equal(value, expected), name
    without.load_state_dict(with_it.state_dict())


def test_chunks_of_tokens_change_nothing_but_rounding() -> None:
    whole, chunked = learner_of(), learner_of()
    small = Learner(
        chunked.agent,
        chunked.config,
        generator=torch.Generator().manual_seed(0),
        compute=replace(CPU_FLOAT32, chunk_tokens=7),
    )
    for learner in (whole, small):
        learner.update(batch_of())
    expected = tensors(whole)
    for name, value in tensors(small).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=1e-9)


@dataclass(frozen=True)
class OfAllGammas:
    """A loss that does not work for another number of gammas."""

    name: ClassVar[str] = "of_all_gammas"
    weight: float = 1.0

    def __call__(self, batch: Batch, predictions: Predictions) -> LossOutput:
        factor_G = torch.tensor([1.0, 2.0, 3.0], dtype=predictions.entropy_NG.dtype)
        assert predictions.entropy_NG.shape[1] == len(factor_G)
        return LossOutput(per_token=(factor_G * predictions.entropy_NG).mean(1), metrics={})


def test_losses_of_the_user_are_those_of_the_agent_alone() -> None:
    learner = learner_of(extra_losses=(OfAllGammas(),))
    assert "loss/of_all_gammas" in learner.update(batch_of())


def test_its_metrics_are_of_its_gamma() -> None:
    learner = learner_of()
    metrics = learner.update(batch_of())
    assert torch.isfinite(metrics["loss/separate_gamma"])
    values = learner.metrics()
    assert values[f"critic/popart_std_gamma_{GAMMA}"] == pytest.approx(float(heads_of(learner).value_code.std_G[0]))
    assert values["critic/popart_std_gamma_0.95"] == pytest.approx(float(learner.agent.value_code.std_G[-1]))


def test_it_learns_in_every_eighth_update(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    learner = learner_of()
    for update in range(1, 17):
        before = tensors(learner)
        metrics = learner.update(batch_of(seed=update))
        moved = [name for name in changed(before, learner) if name.startswith(PART)]
        assert bool(moved) == ("loss/separate_gamma" in metrics) == (update % 8 == 0)


def test_it_has_no_weight_decay() -> None:
    without, decayed = (learner_of(weight_decay=weight_decay) for weight_decay in (0.0, 100.0))
    before = tensors(without)
    for learner in (without, decayed):
        learner.update(batch_of())
    values = tensors(decayed)
    differs = {name for name, value in tensors(without).items() if not torch.equal(value, values[name])}
    assert any(name.startswith("actor.") for name in differs)
    assert any(name.startswith(PART) for name in changed(before, decayed))
    assert not any(name.startswith(PART) for name in differs)


def test_frozen_encoders_do_not_keep_it_from_learning() -> None:
    learner = learner_of(frozen=("timestep_encoder", "trajectory_encoder"))
    before = tensors(learner)
    learner.update(batch_of())
    moved = changed(before, learner)
    assert any(name.startswith(f"{PART}actor.") for name in moved)
    assert not any(name.startswith("trajectory_encoder.") for name in moved)
