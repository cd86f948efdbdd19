import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from yamame.nets.heads.distributions import CategoricalPolicy
from yamame.nets.heads.tanh_gaussian import TanhGaussianPolicy


def categorical(*logits: float, clip: tuple[float, float] = (0.001, 0.99)) -> CategoricalPolicy:
    return CategoricalPolicy.from_logits(torch.tensor([[logits]], dtype=torch.float64), clip)


def gaussian(tokens: int = 6, discounts: int = 3, actions: int = 2) -> tuple[Tensor, TanhGaussianPolicy]:
    raw = torch.randn(tokens, discounts, 2 * actions, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    raw.requires_grad_()
    return raw, TanhGaussianPolicy.from_outputs(raw)


def test_probabilities_are_clipped_then_renormalized() -> None:
    probability = categorical(50.0, 0.0, 0.0).probability_NGA[0, 0]
    expected = torch.tensor([0.99, 0.001, 0.001], dtype=torch.float64) / 0.992
    torch.testing.assert_close(probability, expected, rtol=1e-9, atol=0)


def test_within_the_clip_it_is_the_softmax() -> None:
    policy = categorical(0.3, -0.5, 1.0)
    softmax = torch.tensor([0.3, -0.5, 1.0]).double().softmax(0)
    torch.testing.assert_close(policy.probability_NGA[0, 0], softmax, rtol=1e-7, atol=0)


def test_a_saturated_policy_still_learns() -> None:
    """The clip is straight-through, and log-probabilities are the softmax's: no gradient is exactly zero."""
    logits = torch.tensor([[[12.0, 0.0, 0.0]]], dtype=torch.float64, requires_grad=True)
    policy = CategoricalPolicy.from_logits(logits, (0.001, 0.99))
    (of_log_prob,) = torch.autograd.grad(policy.log_prob(torch.tensor([1])).sum(), logits, retain_graph=True)
    softmax = logits.detach().softmax(-1)
    torch.testing.assert_close(of_log_prob, torch.tensor([[[0.0, 1.0, 0.0]]], dtype=torch.float64) - softmax)
    (of_value,) = torch.autograd.grad((policy.probability_NGA * torch.tensor([0.0, 1.0, 0.0])).sum(), logits)
    expected = softmax * (torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64) - softmax[..., 1:2])
    torch.testing.assert_close(of_value, expected)
    assert (of_value[..., 1] > 0).all()


def test_log_prob_is_of_the_softmax_and_entropy_of_what_acts() -> None:
    torch.manual_seed(0)
    logits = 4.0 * torch.randn(5, 3, 4, dtype=torch.float64)
    policy = CategoricalPolicy.from_logits(logits, (0.001, 0.99))
    action_N = torch.tensor([0, 1, 2, 3, 0])
    log_prob_NG, entropy_NG = policy.log_prob(action_N), policy.entropy()
    for n in range(5):
        for g in range(3):
            softmax = torch.distributions.Categorical(logits=logits[n, g])
            acting = torch.distributions.Categorical(probs=policy.probability_NGA[n, g])
            assert log_prob_NG[n, g].item() == pytest.approx(softmax.log_prob(action_N[n]).item(), rel=1e-9)
            assert entropy_NG[n, g].item() == pytest.approx(acting.entropy().item(), rel=1e-9)


def test_categorical_samples_have_the_probabilities() -> None:
    """Different for each discount, which is drawn for by itself."""
    logits = torch.tensor([[0.0, 1.0, 2.0], [50.0, 0.0, 0.0]]).expand(30_000, -1, -1)
    policy = CategoricalPolicy.from_logits(logits, (0.01, 0.9))
    sample_NG = policy.sample(torch.Generator().manual_seed(0))
    frequency = torch.stack([(sample_NG == action).float().mean(0) for action in range(3)], dim=1)
    torch.testing.assert_close(frequency, policy.probability_NGA[0], rtol=0, atol=0.01)


def test_modes_are_the_most_likely_actions() -> None:
    assert categorical(0.0, 2.0, 1.0).mode().item() == 1
    raw, policy = gaussian()
    torch.testing.assert_close(policy.mode(), raw[..., :2].tanh())


def test_log_std_is_within_its_bounds() -> None:
    raw = torch.tensor([[[0.0, -100.0], [0.0, 100.0], [0.0, 0.0]]])
    torch.testing.assert_close(
        TanhGaussianPolicy.from_outputs(raw).log_std_NGA[0, :, 0], torch.tensor([-5.0, 2.0, -1.5])
    )


def test_tanh_gaussian_log_prob_is_that_of_torch() -> None:
    _, policy = gaussian()
    normal = Normal(policy.mean_NGA, policy.log_std_NGA.exp())
    reference = TransformedDistribution(normal, [TanhTransform()])  # type: ignore[no-untyped-call]
    action_NA = torch.rand(6, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 1.9 - 0.95
    expected_NG = reference.log_prob(action_NA[:, None].expand(-1, 3, -1)).sum(-1)
    torch.testing.assert_close(policy.log_prob(action_NA), expected_NG, rtol=1e-9, atol=1e-9)


def test_tanh_gaussian_entropy_is_the_expectation_of_its_estimate() -> None:
    """Against minus the mean log-density of samples by torch; a wide one is nearly two-valued, and worth little."""
    raw = torch.tensor([[[0.3, -1.0, 0.0, 0.4]], [[0.0, 0.0, 9.0, 9.0]]], dtype=torch.float64)
    policy = TanhGaussianPolicy.from_outputs(raw.repeat_interleave(100_000, 0))
    noise_NGA = torch.randn(200_000, 1, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    estimate = policy.entropy(noise_NGA).view(2, -1).mean(1)
    normal = Normal(policy.mean_NGA, policy.log_std_NGA.exp())
    reference = TransformedDistribution(normal, [TanhTransform(cache_size=1)])  # type: ignore[no-untyped-call]
    torch.manual_seed(0)
    expected = -reference.log_prob(reference.sample()).sum(-1).view(2, -1).mean(1)
    torch.testing.assert_close(estimate, expected, rtol=0, atol=0.05)
    assert estimate[1] < estimate[0] < 2 * math.log(2.0)


def test_entropy_pulls_a_saturated_policy_back() -> None:
    raw = torch.tensor([[[3.0, 0.0]]], dtype=torch.float64, requires_grad=True)
    TanhGaussianPolicy.from_outputs(raw).entropy(torch.zeros(1, 1, 1, dtype=torch.float64)).sum().backward()
    assert raw.grad is not None and raw.grad[0, 0, 0] < -1.9


def test_actions_at_the_border_count_as_0_99() -> None:
    _, policy = gaussian()
    at_border = policy.log_prob(torch.full((6, 2), 1.0).double())
    torch.testing.assert_close(at_border, policy.log_prob(torch.full((6, 2), 0.99).double()))
    assert at_border.isfinite().all()


def test_tanh_gaussian_samples_are_distributed_and_inside() -> None:
    raw = torch.tensor([[[0.3, 0.0]]], dtype=torch.float64).expand(20_000, -1, -1)
    policy = TanhGaussianPolicy.from_outputs(raw)
    sample = policy.sample(torch.Generator().manual_seed(0)).flatten()
    assert sample.abs().max() < 1.0
    assert sample.atanh().mean().item() == pytest.approx(0.3, abs=0.01)
    assert sample.atanh().std().item() == pytest.approx(math.exp(-1.5), rel=0.03)


def test_samples_carry_gradients_to_mean_and_std() -> None:
    raw, policy = gaussian()
    policy.sample(torch.Generator().manual_seed(0)).sum().backward()
    assert raw.grad is not None and (raw.grad != 0).all()
