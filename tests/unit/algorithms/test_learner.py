import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from tiny_agents import (
    DISCRETE,
    TINY_AGENT,
    TINY_TRANSFORMER,
    ActionSpace,
    double_batch,
    every_action_space,
    gradients,
    random_windows,
    tiny_agent,
)
from torch import Tensor, nn

from yamame.algorithms.amago.agent import ACTING_MODULES, AgentConfig
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.losses.filtered_bc import FilteredBCLoss
from yamame.algorithms.amago.losses.policy_gradient import PolicyGradientLoss
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.data.batch import Batch, pack
from yamame.distributed_context import DistributedContext
from yamame.errors import UserError
from yamame.nets.heads.actor import ActorConfig
from yamame.nets.heads.critic import CriticConfig
from yamame.nets.heads.popart import PopArtConfig
from yamame.nets.sequence.feedforward import FeedForwardConfig
from yamame.nets.sequence.gru import GRUConfig

ENCODERS = {"timestep_encoder", "trajectory_encoder"}
NAIVE = replace(
    TINY_AGENT,
    trajectory_encoder=replace(
        TINY_TRANSFORMER, activation="gelu", sigma_reparam=False, normformer=False, head_scaling=False
    ),
    timestep_encoder=replace(TINY_AGENT.timestep_encoder, activation="relu"),
    actor=ActorConfig(hidden_sizes=(16,), activation="relu"),
    critic=CriticConfig(num_critics=2, hidden_sizes=(16,), activation="relu"),
    multi_gamma=False,
)
ABLATIONS = {
    "full": TINY_AGENT,
    "multi_gamma off": replace(TINY_AGENT, multi_gamma=False),
    "popart off": replace(TINY_AGENT, popart=False),
    "feedforward": replace(TINY_AGENT, trajectory_encoder=FeedForwardConfig(d_model=16, num_layers=2)),
    "gru": replace(TINY_AGENT, trajectory_encoder=GRUConfig(d_model=16, num_layers=2)),
    "naive": NAIVE,
}


def learner_of(action_space: ActionSpace = DISCRETE, agent_config: AgentConfig = TINY_AGENT, **changes: Any) -> Learner:
    config = LearnerConfig(**({"lr_warmup_updates": 1, "learning_rate": 1e-3} | changes))
    return Learner(tiny_agent(agent_config, action_space), config, generator=torch.Generator().manual_seed(0))


def batch_of(action_space: ActionSpace = DISCRETE, seed: int = 0) -> Batch:
    return double_batch(random_windows(seed, (5, 9, 2), action_space), token_multiple=8)


def snapshot(learner: Learner) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in learner.agent.state_dict().items()}


def changed(before: dict[str, Tensor], learner: Learner) -> set[str]:
    return {name for name, value in learner.agent.state_dict().items() if not torch.equal(before[name], value)}


def learned_parts(learner: Learner) -> set[str]:
    """Children of the agent that the last update's gradient reached."""
    return {name.split(".")[0] for name, gradient in gradients(learner.agent).items() if gradient.any()}


@every_action_space
@pytest.mark.parametrize(
    ("td", "policy_gradient", "imitation", "parts"),
    [
        (0.0, 1.0, 0.0, {*ENCODERS, "actor"}),
        (1.0, 0.0, 0.0, {*ENCODERS, "critic"}),
        (0.0, 0.0, 1.0, {*ENCODERS, "actor"}),
    ],
    ids=["policy gradient", "td", "filtered_bc"],
)
def test_each_loss_has_gradients_in_its_modules_only(
    action_space: ActionSpace, td: float, policy_gradient: float, imitation: float, parts: set[str]
) -> None:
    """Above all: critics get exactly zero from the policy's losses, and slow heads from none."""
    learner = learner_of(
        action_space,
        td=TDLoss(weight=td),
        policy_gradient=PolicyGradientLoss(weight=policy_gradient),
        filtered_bc=FilteredBCLoss(weight=imitation),
    )
    learner.update(batch_of(action_space))
    assert learned_parts(learner) == parts
    assert all(learner.agent.get_parameter(name).grad is None for name in snapshot(learner) if _is_slow(name))


def _is_slow(name: str) -> bool:
    return name.startswith("target_") and name.endswith(("weight", "bias"))


@every_action_space
def test_an_update_moves_everything_and_slow_heads_by_their_share(action_space: ActionSpace) -> None:
    learner = learner_of(action_space, tau=0.1)
    learner.update(batch_of(action_space))
    before = snapshot(learner)
    learner.update(batch_of(action_space))
    after = learner.agent.state_dict()
    parameters = {name for name, _ in learner.agent.named_parameters()}
    assert not parameters - changed(before, learner)
    slow = [name for name in parameters if name.startswith("target_")]
    for name in slow:
        expected = 0.9 * before[name] + 0.1 * after[name.removeprefix("target_")]
        torch.testing.assert_close(after[name], expected, rtol=0, atol=1e-14)


def test_an_update_observes_its_inputs_and_iterates_once() -> None:
    """Input statistics are those of the real tokens; singular vectors follow the weights of the last update."""
    learner, batch = learner_of(), batch_of()
    features_NF = learner.agent.features(batch)[batch.token_mask]
    learner.update(batch)
    assert learner.agent.timestep_encoder.normalizer.count == 1
    torch.testing.assert_close(learner.agent.timestep_encoder.normalizer.mean, features_NF.mean(0))
    layer = learner.agent.trajectory_encoder.blocks[0].feedforward_in
    expected = torch.nn.functional.normalize(layer.weight.detach() @ layer.right, dim=0)
    learner.update(batch)
    torch.testing.assert_close(layer.left, expected)


@every_action_space
def test_the_loss_falls_on_a_batch_that_stays(action_space: ActionSpace) -> None:
    learner = learner_of(action_space, learning_rate=3e-3)
    losses = [learner.update(batch_of(action_space))["loss/td"].item() for _ in range(25)]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


@pytest.mark.parametrize("name", ABLATIONS)
@every_action_space
def test_every_ablation_learns(name: str, action_space: ActionSpace) -> None:
    learner = learner_of(action_space, ABLATIONS[name])
    before = snapshot(learner)
    for _ in range(2):
        metrics = learner.update(batch_of(action_space))
    assert all(value.isfinite() for value in metrics.values())
    still = {n for n, p in learner.agent.named_parameters() if p.requires_grad} - changed(before, learner)
    assert not still
    assert bool({n for n in changed(before, learner) if n.startswith("value_code.")}) == (name != "popart off")


def test_the_learning_rate_warms_up_then_stays() -> None:
    learner = learner_of(lr_warmup_updates=4, learning_rate=0.8, weight_decay=0.0)
    rates = []
    for _ in range(6):
        learner.update(batch_of())
        rates.append(learner.optimizer.lr.item())
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])


def test_warm_up_scales_the_very_first_step() -> None:
    """AdamW's first step is the learning rate times the gradient's sign, whatever the gradient."""
    learner = learner_of(lr_warmup_updates=10, learning_rate=1e-3, weight_decay=0.0)
    before = snapshot(learner)
    learner.update(batch_of())
    bias = "critic.layers.2.bias"
    step = (learner.agent.state_dict()[bias] - before[bias]).abs()
    torch.testing.assert_close(step, torch.full_like(step, 1e-4), rtol=1e-3, atol=0)


def test_weight_decay_shrinks_parameters() -> None:
    with_decay, without = learner_of(weight_decay=0.5), learner_of(weight_decay=0.0)
    before = snapshot(with_decay)
    for learner in (with_decay, without):
        learner.update(batch_of())
    for name, parameter in with_decay.agent.named_parameters():
        if parameter.requires_grad:
            expected = without.agent.get_parameter(name) - 1e-3 * 0.5 * before[name]
            torch.testing.assert_close(parameter, expected, rtol=0, atol=1e-10)


def test_wide_layers_of_the_timestep_encoder_alone_have_smaller_steps() -> None:
    learner = learner_of(wide_layer_inputs=4)
    scales = dict(zip(learner.optimizer.parameters, learner.optimizer.lr_scales, strict=True))
    agent = learner.agent
    first = agent.timestep_encoder.mlp.hidden[0]
    assert isinstance(first, nn.Linear)
    assert scales[first.weight] == 4 / first.in_features < 1
    assert scales[first.bias] == 1
    assert all(scales[each] == 1 for each in [*agent.trajectory_encoder.parameters(), *agent.actor.parameters()])


def test_gradients_are_clipped_to_a_global_norm() -> None:
    free, clipped = learner_of(max_grad_norm=1e9), learner_of(max_grad_norm=1e-3)
    norms = [learner.update(batch_of())["optim/grad_norm"].item() for learner in (free, clipped)]
    assert norms[0] == pytest.approx(norms[1]) and norms[0] > 1e-2, "the norm that is logged is that before the clip"
    expected, actual = gradients(free.agent), gradients(clipped.agent)
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient * (1e-3 / norms[0]), rtol=1e-4, atol=1e-15)


@every_action_space
def test_critics_are_rescaled_when_the_deviation_grows(action_space: ActionSpace) -> None:
    def train(*, rescale_critics: bool) -> Learner:
        code = PopArtConfig(rescale_critics=rescale_critics, beta=0.5, initial_square=100.0)
        agent = replace(TINY_AGENT, critic=replace(TINY_AGENT.critic, value_code=code))
        learner = learner_of(action_space, agent)
        batch = batch_of(action_space)
        batch = replace(batch, reward=1e4 * batch.reward)
        for _ in range(5):
            learner.update(batch)
        return learner

    separate, rescaled = train(rescale_critics=False), train(rescale_critics=True)
    assert separate.agent.value_code.scale_G.max() < 0.1
    assert (rescaled.agent.value_code.scale_G.log2().mean()).abs() <= 0.5
    last = [learner.agent.critic.layers[-1].weight.abs().mean() for learner in (separate, rescaled)]
    assert last[1] < last[0] / 5, "the scale is in the weights"
    poisoned_weight = rescaled.agent.critic.layers[-1].weight.clone()
    rescaled.update(poisoned(float("nan"), action_space))
    assert torch.equal(rescaled.agent.critic.layers[-1].weight, poisoned_weight)


def poisoned(value: float, action_space: ActionSpace = DISCRETE) -> Batch:
    batch = batch_of(action_space)
    return replace(batch, reward=torch.full_like(batch.reward, value))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e200])
def test_an_update_that_is_not_finite_changes_nothing_and_is_counted(value: float) -> None:
    learner = learner_of()
    learner.update(batch_of())
    before, moments = snapshot(learner), copy.deepcopy(learner.optimizer.state_dict()["state"])
    learner.update(poisoned(value))
    of_data = {name for name in changed(before, learner) if not name.endswith((".left", ".right"))}
    assert not of_data, "parameters, slow heads and statistics stay"
    for index, state in learner.optimizer.state_dict()["state"].items():
        assert all(torch.equal(moments[index][key], state[key]) for key in state)
    assert (learner.num_nonfinite, learner.consecutive_nonfinite, learner.num_updates) == (1, 1, 2)
    metrics = learner.update(batch_of())
    assert all(number.isfinite() for number in metrics.values()), "one bad batch leaves no trace"
    assert (learner.num_nonfinite, learner.consecutive_nonfinite, learner.num_updates) == (1, 0, 3)


def test_observations_that_are_not_finite_leave_no_trace() -> None:
    learner = learner_of()
    batch = batch_of()
    vector = torch.full_like(batch.observation["vector"], torch.nan)
    learner.update(replace(batch, observation={**batch.observation, "vector": vector}))
    assert learner.num_nonfinite == 1
    assert learner.update(batch_of())["loss/td"].isfinite()


def test_too_many_bad_updates_in_a_row_end_the_run() -> None:
    learner = learner_of(max_nonfinite_updates=3)
    for bad in (True, True, False, True, True):
        learner.update(poisoned(float("nan")) if bad else batch_of())
        learner.raise_if_diverged()
    learner.update(poisoned(float("nan")))
    with pytest.raises(UserError, match=r"3 consecutive updates.*the reward has numbers of inf"):
        learner.raise_if_diverged()


def test_the_leaf_with_huge_numbers_is_named_and_the_learning_rate_without_one() -> None:
    learner = learner_of(max_nonfinite_updates=1)
    next(iter(learner.agent.parameters())).data.fill_(torch.inf)
    batch = batch_of()
    huge = {**batch.observation, "vector": torch.full_like(batch.observation["vector"], 3e38)}
    for observation, reason in (
        (huge, r"observation 'vector' has numbers of 3e\+38: scale or replace them$"),
        (batch.observation, r"lower --learner\.learning-rate$"),
    ):
        learner.update(replace(batch, observation=observation))
        with pytest.raises(UserError, match=f"non-finite loss or gradient; {reason}"):
            learner.raise_if_diverged()


@every_action_space
def test_a_restored_learner_continues_bit_for_bit(action_space: ActionSpace) -> None:
    learner = learner_of(action_space, lr_warmup_updates=5)
    for seed in range(3):
        learner.update(batch_of(action_space, seed))
    state = copy.deepcopy(learner.state_dict())
    restored = learner_of(action_space, lr_warmup_updates=5)
    restored.update(batch_of(action_space, 9))
    restored.load_state_dict(state)
    for seed in range(3, 6):
        expected, actual = (one.update(batch_of(action_space, seed)) for one in (learner, restored))
        assert all(torch.equal(expected[name], actual[name]) for name in expected)
    assert not changed(snapshot(learner), restored)
    assert restored.num_updates == learner.num_updates == 6


@pytest.mark.parametrize("reward_scale", [1.0, 50.0])
def test_values_logged_are_in_units_of_reward(reward_scale: float) -> None:
    """Slow critics that say 0 everywhere make a target of the reward alone."""
    learner = learner_of(agent_config=replace(TINY_AGENT, popart=False), td=TDLoss(reward_scale=reward_scale))
    for parameter in learner.agent.target_critic.parameters():
        torch.nn.init.zeros_(parameter)
    batch = batch_of()
    expected = batch.reward[batch.loss_mask].mean().item()
    assert learner.update(batch)["critic/td_target_mean"].item() == pytest.approx(expected)


def test_values_by_discount_are_popart_s_in_units_of_reward() -> None:
    discounts = tuple(1 - 0.5**power for power in range(1, 12))
    learner = learner_of(agent_config=replace(TINY_AGENT, gammas=discounts), td=TDLoss(reward_scale=4.0))
    for seed in range(3):
        learner.update(batch_of(seed=seed))
    popart, all_gammas = learner.agent.value_code, learner.agent.gammas_G.tolist()
    values = learner.metrics()
    shown = [float(key.rpartition("_")[2]) for key in values if key.startswith("critic/td_target_mean_gamma_")]
    assert len(shown) == 6 and len(values) == 1 + 2 * 6 + 3  # three gradient norms
    assert shown[0] == 0.5 and shown[-1] == pytest.approx(all_gammas[-1], rel=1e-5)
    for discount in shown:
        at = min(range(len(all_gammas)), key=lambda index: abs(all_gammas[index] - discount))
        mean, std = popart.mean_G[at].item() / 4, popart.std_G[at].item() / 4
        assert values[f"critic/td_target_mean_gamma_{discount:g}"] == pytest.approx(mean) and mean
        assert values[f"critic/popart_std_gamma_{discount:g}"] == pytest.approx(std)
    without = learner_of(agent_config=replace(TINY_AGENT, popart=False))
    assert without.metrics() == {"optim/nonfinite_updates": 0.0}


def test_learning_rate_warms_up_and_decays() -> None:
    config = LearnerConfig(learning_rate=1.0, lr_warmup_updates=4, lr_decay_updates=100)
    assert config.lr_at(1) == pytest.approx(0.25 * 0.991)
    assert config.lr_at(50) == pytest.approx(0.55)
    assert config.lr_at(100) == config.lr_at(1000) == pytest.approx(0.1)
    assert LearnerConfig(learning_rate=1.0, lr_warmup_updates=4).lr_at(1000) == 1.0


@pytest.mark.parametrize("name", ["full", "gru", "feedforward"])
def test_half_precision_keeps_float32_states_and_norms(name: str) -> None:
    agent = tiny_agent(ABLATIONS[name], dtype=torch.float32)
    batch = pack(random_windows(0, (5, 9)))
    norm_inputs: list[torch.dtype] = []
    assert isinstance(agent.trajectory_encoder.norm, nn.LayerNorm)
    agent.trajectory_encoder.norm.register_forward_pre_hook(lambda _, inputs: norm_inputs.append(inputs[0].dtype))
    with torch.autocast("cpu", torch.bfloat16):
        state_ND = agent.encode(agent.features(batch), batch)
    assert state_ND.dtype == torch.float32 and norm_inputs == [torch.float32]


def test_states_of_any_module_are_float32() -> None:
    """The number of transitions is a sum in the states' type: bfloat16 has no 301."""
    agent = tiny_agent(dtype=torch.float32)
    half = agent.trajectory_encoder.forward
    agent.trajectory_encoder.forward = lambda x, batch: half(x, batch).bfloat16()  # type: ignore[method-assign]
    batch = pack(random_windows(0, (5, 9)))
    assert agent.encode(agent.features(batch), batch).dtype == torch.float32


@pytest.mark.parametrize(("weight", "pessimistic"), [(1.0, True), (0.0, False)])
def test_targets_are_pessimistic_only_if_the_actor_maximizes_values(
    weight: float, pessimistic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []
    td_target = TDLoss.td_target

    def spy(*args: Any, **kwargs: Any) -> Tensor:
        found.append(kwargs["pessimistic"])
        return td_target(*args, **kwargs)

    monkeypatch.setattr(TDLoss, "td_target", spy)
    config = LearnerConfig(policy_gradient=PolicyGradientLoss(weight=weight))
    Learner(tiny_agent(), config, generator=torch.Generator()).update(batch_of())
    assert set(found) == {pessimistic}


def gradient_norms(learner: Learner) -> dict[str, float]:
    prefix = "optim/grad_norm_"
    return {key.removeprefix(prefix): value for key, value in learner.metrics().items() if key.startswith(prefix)}


@every_action_space
def test_gradient_norms_are_those_of_each_weighted_loss(action_space: ActionSpace) -> None:
    """They are measured after the first update, which sets statistics, and here changes no weight."""
    still: dict[str, Any] = {"learning_rate": 1e-30, "tau": 1e-30}
    learner, batch = learner_of(action_space, **still), batch_of(action_space)
    learner.update(batch)
    norms = gradient_norms(learner)
    learner.optimizer.zero_grad()
    agent, loss = learner.agent, FilteredBCLoss(weight=0.1)
    state_ND = agent.encode(agent.features(batch), batch)
    noise = agent.actor.sample_noise(state_ND.detach(), torch.Generator())
    predictions = agent.predict(state_ND, batch, state_ND.new_zeros(len(state_ND), len(agent.gammas_G)), noise)
    mean = (loss(batch, predictions).per_token * batch.loss_mask).sum() / batch.loss_mask.sum()
    (0.1 * mean).backward()
    expected = float(nn.utils.get_total_norm(learner.optimizer.grads))
    assert set(norms) == {"td", "policy_gradient", "filtered_bc"}
    assert min(norms.values()) > 0
    if action_space is DISCRETE:  # where the advantage has no noise
        assert norms["filtered_bc"] == pytest.approx(expected, rel=1e-6)

    tripled = learner_of(action_space, td=TDLoss(weight=30.0), filtered_bc=FilteredBCLoss(weight=0.0), **still)
    tripled.update(batch)
    assert gradient_norms(tripled) == {
        "td": pytest.approx(3 * norms["td"], rel=1e-6),
        "policy_gradient": pytest.approx(norms["policy_gradient"], rel=1e-6),
    }
    chunked = learner_of(action_space, **still)
    chunked.compute = replace(chunked.compute, chunk_tokens=5)
    chunked.update(batch)
    assert gradient_norms(chunked) == pytest.approx(norms, rel=1e-6)


@every_action_space
def test_measuring_gradient_norms_changes_no_bit(action_space: ActionSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = learner_of(action_space)
    measured.update(batch_of(action_space))
    assert gradient_norms(measured)
    monkeypatch.setattr(Learner, "_measure_gradient_norms", lambda *_: {})
    other = learner_of(action_space)
    other.update(batch_of(action_space))
    assert not gradient_norms(other)
    assert all(map(torch.equal, snapshot(measured).values(), snapshot(other).values()))
    assert torch.equal(measured.generator.get_state(), other.generator.get_state())


def averaging_learner() -> Learner:
    config = LearnerConfig(lr_warmup_updates=1, learning_rate=1e-3, averaging_rate=0.25)
    return Learner(tiny_agent(averaged=True), config, generator=torch.Generator().manual_seed(0))


def test_the_average_follows_the_weights_and_nothing_else_changes() -> None:
    plain, learner = learner_of(), averaging_learner()
    expected = {
        name: value.clone() for name, value in learner.agent.named_parameters() if name.startswith(ACTING_MODULES)
    }
    for seed in range(3):
        plain.update(batch_of(seed=seed))
        learner.update(batch_of(seed=seed))
        for name, value in expected.items():
            value.lerp_(learner.agent.get_parameter(name), 0.25)
    for name, value in plain.agent.state_dict().items():
        assert torch.equal(value, learner.agent.state_dict()[name])
    for name, value in expected.items():
        torch.testing.assert_close(learner.agent.get_parameter(f"averaged.{name}"), value)
        assert not torch.equal(value, learner.agent.get_parameter(name))
    for name, value in learner.agent.named_buffers():
        if name.startswith(ACTING_MODULES):
            assert torch.equal(learner.agent.get_buffer(f"averaged.{name}"), value)


def test_an_update_that_is_not_finite_does_not_move_the_average() -> None:
    learner = averaging_learner()
    learner.update(batch_of())
    before = snapshot(learner)
    learner.update(poisoned(torch.nan))
    assert changed(before, learner).isdisjoint(dict(learner.agent.named_parameters()))


def test_the_policy_acts_with_the_average_here_and_in_other_processes() -> None:
    learner = averaging_learner()
    for seed in range(3):
        learner.update(batch_of(seed=seed))
    policy = AMAGOConfig().build_policy(learner.agent, num_envs=1, generator=torch.Generator(), collects=True)
    averaged = learner.agent.acting_module("actor").for_gamma(-1).state_dict()
    present = learner.agent.actor.for_gamma(-1).state_dict()
    acting = policy.actor.state_dict()
    assert all(torch.equal(acting[name], value) for name, value in averaged.items())
    assert any(not torch.equal(acting[name], value) for name, value in present.items())
    sent = AMAGOConfig().acting_state(learner.agent)
    assert set(sent) == {name for name in learner.agent.state_dict() if name.startswith("averaged.")}


def test_a_restored_average_continues_bit_for_bit() -> None:
    learner, other = averaging_learner(), averaging_learner()
    learner.update(batch_of())
    other.load_state_dict(copy.deepcopy(learner.state_dict()))
    for seed in range(2):
        learner.update(batch_of(seed=seed))
        other.update(batch_of(seed=seed))
    assert changed(snapshot(learner), other) == set()


def test_an_averaging_rate_needs_averages() -> None:
    with pytest.raises(UserError, match="averaged=True"):
        learner_of(averaging_rate=0.25)


def test_one_all_reduce_carries_all_gradients_and_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it come three of a few numbers, on which gradients depend: of the inputs, of the values, the count."""
    sizes: list[int] = []
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda flat, group: sizes.append(flat.numel()))
    monkeypatch.setattr(DistributedContext, "broadcast_", lambda *_: None)
    learner = Learner(tiny_agent(), LearnerConfig(), generator=torch.Generator(), distributed=DistributedContext(0, 2))
    metrics = learner.update(batch_of())
    *statistics, gradients_and_metrics = sizes
    num_features, num_gammas = learner.agent.timestep_encoder.num_features, len(learner.agent.gammas_G)
    assert statistics == [1 + 2 * num_features, 2 * num_gammas + 1, 1]
    num_weights = sum(gradient.numel() for gradient in learner.optimizer.grads)
    assert num_weights <= gradients_and_metrics - 2 <= num_weights + len(metrics)
