"""Values by classification, compared with slow loops, and as the value code of a learning agent."""

import math
from dataclasses import replace

import pytest
import torch
from gymnasium import spaces
from tiny_agents import TINY_AGENT, ActionSpace, double_batch, every_action_space, random_windows, tiny_agent
from torch import Tensor

from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.config.serialization import from_json, to_json
from yamame.data.batch import pack
from yamame.errors import UserError
from yamame.nets.heads.classification import Classification, ClassificationConfig
from yamame.nets.heads.critic import ActionInputCritic, CriticConfig

CONFIGS = [
    ClassificationConfig(label="two_hot"),
    ClassificationConfig(label="hl_gauss"),
    ClassificationConfig(num_bins=9, max_abs_value=20.0),
    ClassificationConfig(num_bins=9, max_abs_value=20.0, label="hl_gauss"),
    ClassificationConfig(num_bins=32, max_abs_value=20.0, label="hl_gauss", label_std=2.0),
]
every_config = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.label}-{c.num_bins}-{c.label_std}")


@pytest.fixture(autouse=True)
def float64() -> "object":
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def targets(config: ClassificationConfig) -> Tensor:
    """Targets of every size and sign, some of them centers."""
    limit = config.max_abs_value
    sizes = torch.logspace(-4, math.log10(limit), 30)
    centers = Classification(config, 1).center_Z
    return torch.cat([sizes, -sizes, torch.zeros(1), centers]).clamp(-limit, limit)


@every_config
def test_centers_are_evenly_spaced_in_symlog(config: ClassificationConfig) -> None:
    center_Z = Classification(config, 1).center_Z
    symlog_Z = center_Z.sign() * center_Z.abs().log1p()
    torch.testing.assert_close(symlog_Z.diff(), symlog_Z.diff()[:1].expand(config.num_bins - 1))
    assert center_Z[-1].item() == pytest.approx(config.max_abs_value)
    torch.testing.assert_close(center_Z, -center_Z.flip(0))


@every_config
def test_the_mean_of_a_label_is_its_target(config: ClassificationConfig) -> None:
    code, target = Classification(config, 1), targets(config)
    label = code.label(target)
    assert (label >= 0.0).all()
    torch.testing.assert_close(label.sum(-1), torch.ones_like(target), rtol=0, atol=1e-12)
    torch.testing.assert_close(code.mean(label), target, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(code.decode(label.clamp(min=1e-300).log() - code.prior_Z), target, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("config", [each for each in CONFIGS if each.label == "two_hot"])
def test_two_hot_labels_are_those_of_a_loop(config: ClassificationConfig) -> None:
    code, target = Classification(config, 1), targets(config)
    center = code.center_Z.tolist()
    for value, label in zip(target.tolist(), code.label(target), strict=True):
        expected = [0.0] * config.num_bins
        for z in range(config.num_bins - 1):
            if center[z] <= value <= center[z + 1]:
                expected = [0.0] * config.num_bins
                expected[z + 1] = (value - center[z]) / (center[z + 1] - center[z])
                expected[z] = 1.0 - expected[z + 1]
        torch.testing.assert_close(label, torch.tensor(expected), rtol=0, atol=1e-9)


def test_bells_are_normal_distributions_cut_into_bins() -> None:
    """Near the center of the range, against a loop over bins; the shift to the mean of the target is small."""
    code = Classification(ClassificationConfig(label="hl_gauss"), 1)
    symlog_Z = code.center_Z.sign() * code.center_Z.abs().log1p()
    width = float(symlog_Z[1] - symlog_Z[0])
    for row in (20, 64, 100):
        expected = []
        for z in range(128):
            low, high = (
                (float(symlog_Z[z] - symlog_Z[row]) / width + side) / 0.75 / math.sqrt(2) for side in (-0.5, 0.5)
            )
            expected.append(0.5 * (math.erf(high) - math.erf(low)))
        label = code.label(code.center_Z[row])
        assert (label - torch.tensor(expected)).abs().max() < 0.04
        assert label.argmax() == row and int((label > 1e-3).sum()) == 5


@every_config
def test_values_out_of_range_are_clamped_and_counted(config: ClassificationConfig) -> None:
    code, limit = Classification(config, 2), config.max_abs_value
    beyond = torch.tensor([1.5 * limit, -3.0 * limit])
    torch.testing.assert_close(code.label(beyond), code.label(torch.tensor([limit, -limit])), rtol=0, atol=1e-9)
    torch.testing.assert_close(code.mean(code.label(beyond)), torch.tensor([limit, -limit]))
    target_NG = torch.tensor([[0.0, 0.0], [0.0, 2.0 * limit], [0.0, -2.0 * limit], [0.0, torch.nan]])
    code.update(target_NG, torch.tensor([True, True, False, False]))
    assert {name: value.item() for name, value in code.unitless_metrics().items()} == {
        "critic/td_target_clamped_fraction": 0.5
    }


@every_config
def test_the_loss_is_the_cross_entropy_and_its_gradient_the_difference(config: ClassificationConfig) -> None:
    code = Classification(config, 2)
    generator = torch.Generator().manual_seed(0)
    output = torch.randn(3, 4, 2, config.num_bins, generator=generator, requires_grad=True)
    target_NG = 5.0 * torch.randn(3, 2, generator=generator)
    loss_NKG = code.loss(output, target_NG)
    for n in range(3):
        for k in range(4):
            for g in range(2):
                probability = (output[n, k, g] + code.prior_Z).softmax(0)
                expected = -sum(
                    label * math.log(p)
                    for label, p in zip(code.label(target_NG[n, g]).tolist(), probability.tolist(), strict=True)
                )
                assert loss_NKG[n, k, g].item() == pytest.approx(expected)
    (gradient,) = torch.autograd.grad(loss_NKG.sum(), output)
    expected_gradient = (output + code.prior_Z).softmax(-1) - code.label(target_NG)[:, None]
    torch.testing.assert_close(gradient, expected_gradient.detach(), rtol=0, atol=1e-12)


@every_config
def test_the_least_loss_is_at_the_mean_of_several_targets(config: ClassificationConfig) -> None:
    """One output for targets 0 and 10: descent ends at 5, not at the mean of their symlogs, 2.3."""
    code = Classification(config, 1)
    output = torch.zeros(1, 1, 1, config.num_bins, requires_grad=True)
    optimizer = torch.optim.Adam([output], lr=0.1)
    for _ in range(400):
        optimizer.zero_grad()
        (code.loss(output, torch.tensor([[0.0]])) + code.loss(output, torch.tensor([[10.0]]))).sum().backward()
        optimizer.step()
    assert code.decode(output).item() == pytest.approx(5.0, rel=0.02)


def test_values_start_near_0_however_far_the_bins_reach() -> None:
    code = Classification(ClassificationConfig(), 1)
    output = 0.3 * torch.randn(1000, 128, generator=torch.Generator().manual_seed(0))
    assert code.decode(output).abs().max() < 0.5
    assert code.decode(torch.zeros(128)).item() == pytest.approx(0.0, abs=1e-9)


def test_nothing_of_it_is_learned_or_saved_and_all_values_have_one_scale() -> None:
    code = Classification(ClassificationConfig(label="hl_gauss"), 2)
    assert not list(code.parameters()) and set(code.state_dict()) == {"scale_G", "shift_G"}
    x_NG = torch.randn(5, 2)
    assert torch.equal(code.normalize(x_NG), x_NG) and torch.equal(code.denormalize(x_NG[:, None])[:, 0], x_NG)


def test_invalid_fields() -> None:
    for field, value in (("num_bins", 1), ("max_abs_value", 0.0), ("label_std", 0.0)):
        with pytest.raises(UserError, match=field):
            ClassificationConfig(**{field: value})  # type: ignore[arg-type]


@every_action_space
@pytest.mark.parametrize("label", ["two_hot", "hl_gauss"])
@pytest.mark.slow
def test_critics_learn_with_it_from_samples(action_space: ActionSpace, label: str) -> None:
    torch.set_default_dtype(torch.float32)
    code = ClassificationConfig(num_bins=32, max_abs_value=50.0, label=label)  # type: ignore[arg-type]
    config = replace(
        TINY_AGENT, critic=CriticConfig(hidden_sizes=(16, 16), value_code=code), num_policy_samples=3, popart=False
    )
    assert from_json(type(config), to_json(config)) == config
    agent = tiny_agent(config, action_space, dtype=torch.float32)
    assert isinstance(agent.critic, ActionInputCritic) and agent.critic.layers[-1].weight.shape[2] == 32
    td = TDLoss(reward_scale=4.0, critic_reduction="mean", num_critics_in_target=4)
    learner_config = LearnerConfig(td=td, learning_rate=3e-3, lr_warmup_updates=1, weight_decay=0.0)
    learner = Learner(agent, learner_config, generator=torch.Generator().manual_seed(0))
    batch = pack(random_windows(0, [12] * 4, action_space), pad_tokens_to_multiple_of=8)
    metrics = [learner.update(batch) for _ in range(200)]
    errors, losses = ([each[name].item() for each in metrics] for name in ("critic/td_error_abs", "loss/td"))
    assert sum(errors[-5:]) < 0.6 * sum(errors[:5])
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    assert learner.num_nonfinite == 0 and metrics[-1]["critic/td_target_clamped_fraction"] == 0.0


@every_action_space
def test_a_resumed_learner_makes_the_same_updates(action_space: ActionSpace) -> None:
    torch.set_default_dtype(torch.float32)
    config = replace(TINY_AGENT, critic=CriticConfig(hidden_sizes=(16,), value_code=CONFIGS[3]), num_policy_samples=3)
    batch = pack(random_windows(0, [6] * 3, action_space), pad_tokens_to_multiple_of=8)

    def learner(seed: int) -> Learner:
        agent = tiny_agent(config, action_space, dtype=torch.float32)
        return Learner(agent, LearnerConfig(), generator=torch.Generator().manual_seed(seed))

    first, second = learner(0), learner(1)
    for _ in range(3):
        first.update(batch)
    second.load_state_dict(first.state_dict())
    for _ in range(3):
        one, other = first.update(batch), second.update(batch)
        assert {name: value.item() for name, value in one.items()} == {n: v.item() for n, v in other.items()}


def test_the_value_of_the_policy_is_the_mean_of_its_samples() -> None:
    torch.set_default_dtype(torch.float32)
    for action_space in (spaces.Discrete(3), spaces.MultiDiscrete([3, 2]), spaces.Box(-1.0, 1.0, (2,))):
        agent = tiny_agent(replace(TINY_AGENT, num_policy_samples=3), action_space)
        batch = double_batch(random_windows(0, [5] * 2, action_space))
        state_ND = torch.randn(len(batch.reward), agent.config.trajectory_encoder.state_size, dtype=torch.float64)
        noise = agent.policy_noise(state_ND, torch.Generator().manual_seed(0))
        assert noise is not None
        target_NG = torch.zeros(len(state_ND), 3, dtype=torch.float64)
        found = agent.predict(state_ND, batch, target_NG, noise).q_policy_NKG
        policy = agent.actor(state_ND, None)
        values = [
            agent.critic.policy_q(state_ND, policy, part.contiguous(), agent.value_code) for part in noise.chunk(3, -1)
        ]
        assert not torch.equal(values[0], values[1])
        torch.testing.assert_close(found, torch.stack(values).mean(0))
        single = agent.target_values(state_ND, None, agent.target_actor.sample_noise(state_ND, torch.Generator()))
        assert single.q_policy_NKG.shape == found.shape
        found.sum().backward()
        assert all(each.grad is not None and each.grad.any() for each in agent.actor.parameters())
        assert all(each.grad is None for each in agent.critic.parameters())


def test_data_and_samples_of_a_choice_are_one_hot_vectors() -> None:
    torch.set_default_dtype(torch.float32)
    critic = CriticConfig(hidden_sizes=(8,)).build(
        input_size=4, action_space=spaces.Discrete(3), gammas_G=torch.tensor([0.5, 0.9]), samples=True
    )
    assert isinstance(critic, ActionInputCritic)
    state_ND, choice_NG1 = torch.randn(5, 4), torch.tensor([[[0], [2]], [[1], [1]], [[2], [0]], [[0], [0]], [[1], [2]]])
    one_hot = torch.eye(3)[choice_NG1.squeeze(-1)]
    assert torch.equal(critic(state_ND, choice_NG1), critic(state_ND, one_hot))
