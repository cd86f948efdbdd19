"""The three losses on numbers made by hand: two tokens, two critics, two discounts."""

import math
from typing import Any

import pytest
import torch
from tiny_agents import double_batch, random_windows
from torch import Tensor

from yamame.algorithms.amago.learner import LearnerConfig
from yamame.algorithms.amago.losses.filtered_bc import FilteredBCLoss
from yamame.algorithms.amago.losses.policy_gradient import PolicyGradientLoss
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.data.batch import Predictions
from yamame.errors import UserError

BATCH = double_batch(random_windows(0, (1,)))
"""One transition, so two tokens, of which the first is valid."""


def predictions(**changes: Any) -> Predictions:
    fields: dict[str, Tensor] = {
        "log_prob_NG": torch.tensor([[-1.0, -2.0], [-3.0, -4.0]]),
        "entropy_NG": torch.tensor([[0.1, 0.2], [0.3, 0.4]]),
        "q_data_NKG": torch.tensor([[[1.0, 2.0], [3.0, 5.0]], [[0.0, 1.0], [2.0, 2.0]]]),
        "q_policy_NKG": torch.tensor([[[2.0, 1.0], [0.5, 4.0]], [[-1.0, 0.0], [-2.0, 9.0]]]),
        "td_target_NG": torch.tensor([[0.0, 10.0], [1.0, -1.0]]),
        "q_scale_G": torch.tensor([2.0, 3.0]),
        "q_shift_G": torch.tensor([-1.0, 0.5]),
    }
    fields |= changes
    error_NKG = fields["q_scale_G"] * fields["q_data_NKG"] + fields["q_shift_G"] - fields["td_target_NG"][:, None]
    return Predictions(td_loss_NKG=error_NKG.square(), **fields)


def test_td_loss_is_the_squared_error_of_normalized_values() -> None:
    """Token 0: critics say 2*1-1, 3*2+.5 and 2*3-1, 3*5+.5 for targets 0 and 10: (1 + 3.5^2 + 25 + 5.5^2) / 4."""
    output = TDLoss()(BATCH, predictions())
    assert output.per_token.tolist() == [pytest.approx(68.5 / 4), pytest.approx((4 + 20.25 + 4 + 56.25) / 4)]
    assert output.metrics["critic/td_error_abs"].item() == pytest.approx((3.5 + 5.5) / 2)
    assert output.metrics["critic/q_normalized"].item() == pytest.approx((6.5 + 15.5) / 2)
    assert output.metrics["critic/q_ensemble_std"].item() == pytest.approx(4.5)


def test_policy_gradient_takes_the_minimum_over_all_critics() -> None:
    """Token 0: -((2 * 0.5 - 1) + (3 * 1 + 0.5)) / 2; token 1: -((2 * -2 - 1) + (3 * 0 + 0.5)) / 2."""
    output = PolicyGradientLoss()(BATCH, predictions())
    assert output.per_token.tolist() == [pytest.approx(-1.75), pytest.approx(2.25)]
    assert output.metrics["actor/entropy"].item() == pytest.approx(0.2)


def test_policy_gradient_pulls_on_the_least_critic_only() -> None:
    q_policy = predictions().q_policy_NKG.clone().requires_grad_()
    PolicyGradientLoss()(BATCH, predictions(q_policy_NKG=q_policy)).per_token[0].backward()
    assert q_policy.grad is not None
    assert q_policy.grad[0].tolist() == [[0.0, -1.5], [-1.0, 0.0]]


def test_the_gradient_of_the_minimum_survives_other_rounding_in_the_backward_pass() -> None:
    """Compiled code computes the critics' values again in the backward pass, with other rounding than before."""
    q_policy = predictions().q_policy_NKG.clone().requires_grad_()
    round_otherwise = torch.autograd.graph.saved_tensors_hooks(
        lambda saved: saved, lambda saved: saved * (1 + 1e-6) if saved.shape == q_policy.shape else saved
    )
    with round_otherwise:
        loss = PolicyGradientLoss()(BATCH, predictions(q_policy_NKG=q_policy)).per_token[0]
    loss.backward()
    assert q_policy.grad is not None
    assert q_policy.grad[0].tolist() == [[0.0, -1.5], [-1.0, 0.0]]


def test_policy_gradient_can_use_the_mean_of_the_critics() -> None:
    """Token 0: -((2 * 1.25 - 1) + (3 * 2.5 + 0.5)) / 2; token 1: -((2 * -1.5 - 1) + (3 * 4.5 + 0.5)) / 2."""
    q_policy = predictions().q_policy_NKG.clone().requires_grad_()
    output = PolicyGradientLoss(critic_reduction="mean")(BATCH, predictions(q_policy_NKG=q_policy))
    assert output.per_token.tolist() == [pytest.approx(-4.75), pytest.approx(-5.0)]
    output.per_token[0].backward()
    assert q_policy.grad is not None
    assert q_policy.grad[0].tolist() == [[-0.5, -0.75], [-0.5, -0.75]]


def test_the_entropy_bonus_is_in_normalized_values() -> None:
    """Token 0: 1.75 + 0.5 (0.1 + 0.2) / 2; and a nat of either discount is worth half of the weight."""
    entropy = predictions().entropy_NG.clone().requires_grad_()
    output = PolicyGradientLoss(entropy_coef=0.5)(BATCH, predictions(entropy_NG=entropy))
    assert output.per_token.tolist() == [pytest.approx(-1.825), pytest.approx(2.075)]
    output.per_token.sum().backward()
    assert entropy.grad is not None and entropy.grad.unique().tolist() == [-0.25]
    with pytest.raises(UserError, match="entropy_coef"):
        PolicyGradientLoss(entropy_coef=-0.1)


def test_imitation_compares_the_means_of_the_critics() -> None:
    """Token 0: means 2, 3.5 of the data against 1.25, 2.5 of the policy: both imitated. Token 1: only 1 > -1.5."""
    output = FilteredBCLoss()(BATCH, predictions())
    assert output.per_token.tolist() == [pytest.approx((1 + 2) / 2), pytest.approx(3 / 2)]
    assert output.metrics["actor/filtered_bc_fraction"].item() == 1.0


def test_filtered_bc_uses_raw_critic_outputs() -> None:
    flipped = predictions(q_scale_G=torch.tensor([-2.0, -3.0]), q_shift_G=torch.tensor([9.0, 9.0]))
    assert torch.equal(FilteredBCLoss()(BATCH, flipped).per_token, FilteredBCLoss()(BATCH, predictions()).per_token)


@pytest.mark.parametrize(("threshold", "expected"), [(0.74, 1.5), (0.76, 1.0), (1.01, 0.0)])
def test_advantages_below_the_threshold_are_not_imitated(threshold: float, expected: float) -> None:
    """Token 0 has advantages 0.75 and 1."""
    output = FilteredBCLoss(advantage_threshold=threshold)(BATCH, predictions())
    assert output.per_token[0].item() == pytest.approx(expected)


def test_an_advantage_equal_to_the_threshold_is_not_imitated() -> None:
    same = predictions(q_policy_NKG=predictions().q_data_NKG)
    assert FilteredBCLoss(advantage_threshold=0.0)(BATCH, same).per_token.tolist() == [0.0, 0.0]
    assert FilteredBCLoss(advantage_threshold=-1e-3)(BATCH, same).per_token.tolist() == [1.5, 3.5]


def test_log_probabilities_are_clamped() -> None:
    extreme = predictions(log_prob_NG=torch.tensor([[-1e9, 1e9], [0.0, 0.0]]))
    assert FilteredBCLoss()(BATCH, extreme).per_token[0].item() == 0.0
    extreme = predictions(log_prob_NG=torch.tensor([[-1e9, -5.0], [0.0, 0.0]]))
    assert FilteredBCLoss(log_prob_clip=20.0)(BATCH, extreme).per_token[0].item() == 12.5


def test_imitation_sends_no_gradient_through_the_advantage() -> None:
    tensors = {
        name: getattr(predictions(), name).clone().requires_grad_()
        for name in ("log_prob_NG", "q_data_NKG", "q_policy_NKG")
    }
    FilteredBCLoss()(BATCH, predictions(**tensors)).per_token.sum().backward()
    assert tensors["log_prob_NG"].grad is not None and tensors["log_prob_NG"].grad[0].tolist() == [-0.5, -0.5]
    assert tensors["q_data_NKG"].grad is None and tensors["q_policy_NKG"].grad is None


def test_default_weights_are_the_papers() -> None:
    assert (TDLoss().weight, PolicyGradientLoss().weight, FilteredBCLoss().weight) == (10.0, 1.0, 0.1)


def test_the_exponential_filter_weighs_actions_by_their_advantages() -> None:
    """Advantages: 0.75, 1 and 2.5, -3, with log-probabilities -1, -2 and -3, -4."""
    output = FilteredBCLoss(filter="exponential", beta=2.0)(BATCH, predictions())
    e = math.exp
    assert output.per_token.tolist() == [
        pytest.approx((e(1.5) + 2.0 * e(2.0)) / 2),
        pytest.approx((3.0 * 20.0 + 4.0 * e(-6.0)) / 2),
    ]
    assert output.metrics["actor/filtered_bc_fraction"].item() == 1.0
    highest = FilteredBCLoss(filter="exponential", max_filter_weight=1.0)(BATCH, predictions())
    assert highest.per_token[0].item() == 1.5
    huge = predictions(q_data_NKG=1e30 * predictions().q_data_NKG)
    assert FilteredBCLoss(filter="exponential")(BATCH, huge).per_token.isfinite().all()


def test_the_exponential_filter_sends_no_gradient_through_the_advantage() -> None:
    q_data = predictions().q_data_NKG.clone().requires_grad_()
    log_prob = predictions().log_prob_NG.clone().requires_grad_()
    loss = FilteredBCLoss(filter="exponential")(BATCH, predictions(q_data_NKG=q_data, log_prob_NG=log_prob))
    loss.per_token.sum().backward()
    assert q_data.grad is None and log_prob.grad is not None and (log_prob.grad < 0.0).all()


def test_invalid_filters_and_what_imitates_all() -> None:
    for field in ("beta", "max_filter_weight"):
        with pytest.raises(UserError, match=field):
            FilteredBCLoss(**{field: 0.0})
    assert FilteredBCLoss(advantage_threshold=-1e9).imitates_all
    assert not FilteredBCLoss().imitates_all
    assert not FilteredBCLoss(advantage_threshold=-1e9, filter="exponential").imitates_all


def test_targets_are_minima_unless_they_are_to_be_means_or_the_actor_only_imitates() -> None:
    assert LearnerConfig().is_pessimistic
    assert not LearnerConfig(td=TDLoss(critic_reduction="mean")).is_pessimistic
    assert not LearnerConfig(policy_gradient=PolicyGradientLoss(weight=0.0)).is_pessimistic
