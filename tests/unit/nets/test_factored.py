import itertools

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical

from yamame.nets.heads.distributions import (
    CategoricalPolicy,
    DiscreteComponents,
    FactoredPolicy,
    SampledCategoricalPolicy,
)

SIZES = (3, 1, 4, 2)
CLIP = (0.001, 0.99)
N, G, A, C = 6, 2, sum(SIZES), len(SIZES)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gumbel(*shape: int) -> Tensor:
    clocks = torch.empty(shape, dtype=torch.float64)
    return -clocks.exponential_(generator=torch.Generator().manual_seed(2)).log()


def random_mask(sizes: tuple[int, ...] = SIZES, tokens: int = N) -> Tensor:
    mask = random(tokens, sum(sizes), seed=9) > 0
    for part in mask.split(sizes, dim=1):
        part[torch.arange(tokens), torch.arange(tokens) % part.shape[1]] = True
    return mask


def policy_of(logits: Tensor, mask: Tensor | None = None, sizes: tuple[int, ...] = SIZES) -> FactoredPolicy:
    return FactoredPolicy.from_logits(logits, DiscreteComponents(sizes), CLIP, mask)


def allowed_indices(mask: Tensor | None, n: int, sizes: tuple[int, ...] = SIZES) -> list[Tensor]:
    row = torch.ones(sum(sizes), dtype=torch.bool) if mask is None else mask[n]
    return [part.nonzero()[:, 0] for part in row.split(sizes)]


def test_rows_and_side_by_side_are_inverses() -> None:
    components, x = DiscreteComponents(SIZES), random(N, G, A)
    rows = components.pad(x)
    assert rows.shape == (N * C, G, max(SIZES))
    torch.testing.assert_close(components.unpad(rows), x, rtol=0, atol=0)
    torch.testing.assert_close(rows[2 * C + 2, 1, :4], x[2, 1, 4:8], rtol=0, atol=0)


@pytest.mark.parametrize("masked", [False, True])
def test_log_prob_and_entropy_are_sums_over_components(masked: bool) -> None:
    """Against torch.distributions over the allowed choices alone, clipped by hand where the policy acts."""
    logits, mask = 3.0 * random(N, G, A), random_mask() if masked else None
    policy = policy_of(logits, mask)
    action_NC = torch.stack([torch.stack([allowed[-1] for allowed in allowed_indices(mask, n)]) for n in range(N)])
    log_prob, entropy = policy.log_prob(action_NC), policy.entropy()
    assert log_prob.shape == entropy.shape == (N, G)
    for n, g in itertools.product(range(N), range(G)):
        parts = zip(logits[n, g].split(SIZES), allowed_indices(mask, n), strict=True)
        each = [Categorical(logits=part[allowed]) for part, allowed in parts]
        torch.testing.assert_close(log_prob[n, g], sum(one.logits[-1] for one in each))
        clipped = [Categorical(probs=one.probs.clamp(*CLIP)) for one in each]
        torch.testing.assert_close(entropy[n, g], sum(one.entropy() for one in clipped))


def test_samples_and_modes_are_allowed_and_as_likely_as_promised() -> None:
    logits, mask = random(N, G, A), random_mask()
    policy = policy_of(logits.repeat_interleave(4000, 0), mask.repeat_interleave(4000, 0))
    sample = policy.sample(torch.Generator().manual_seed(1)).view(N, 4000, G, C)
    mode = policy_of(logits, mask).mode()
    assert mode.shape == (N, G, C)
    for n, g, c in itertools.product(range(N), range(G), range(C)):
        allowed = allowed_indices(mask, n)[c]
        part = logits[n, g].split(SIZES)[c]
        expected = torch.zeros(SIZES[c], dtype=torch.float64)
        expected[allowed] = part[allowed].softmax(0).clamp(*CLIP)
        expected = expected / expected.sum()
        frequency = torch.bincount(sample[n, :, g, c], minlength=SIZES[c]) / 4000
        assert (frequency[expected == 0] == 0).all()
        torch.testing.assert_close(frequency.double(), expected, rtol=0, atol=0.04)
        assert mode[n, g, c] == expected.argmax()


@pytest.mark.parametrize("masked", [False, True])
def test_the_vector_of_a_sample_is_one_hot_allowed_and_as_likely_as_the_sample(masked: bool) -> None:
    logits, mask, many = random(N, G, A), random_mask() if masked else None, 4000
    policy = policy_of(logits.repeat_interleave(many, 0), None if mask is None else mask.repeat_interleave(many, 0))
    vector = policy.action_vector(gumbel(N * many, G, A))
    for part in vector.split(SIZES, dim=2):
        torch.testing.assert_close(part.sum(2), torch.ones(N * many, G, dtype=torch.float64))
        torch.testing.assert_close(part.amax(2), torch.ones(N * many, G, dtype=torch.float64))
    frequency = vector.view(N, many, G, A).mean(1)
    expected = policy_of(logits, mask).components.unpad(policy_of(logits, mask).categorical.probability_NGA)
    torch.testing.assert_close(frequency, expected, rtol=0, atol=0.04)
    if mask is not None:
        assert (frequency.movedim(1, 0)[:, ~mask] == 0).all()


@pytest.mark.parametrize("masked", [False, True])
def test_the_gradient_is_that_of_the_expectation_over_all_joint_actions(masked: bool) -> None:
    """Enumerated, for two critics that are not additive; the logits are such that the clip counts."""
    sizes, many = (3, 2), 160_000
    mask = random_mask(sizes, 1) if masked else None
    weight, hidden = random(8, 5, seed=3), random(8, 2, seed=4)
    logits = (2.0 * random(1, 1, 5, seed=5)).requires_grad_()
    components, clip = DiscreteComponents(sizes), (0.1, 0.8)

    def value(vector_NGA: Tensor) -> Tensor:
        return (torch.tanh(vector_NGA @ weight.T) @ hidden).movedim(2, 1)

    exact = torch.zeros(2, dtype=torch.float64)
    allowed = torch.ones(5, dtype=torch.bool) if mask is None else mask[0]
    first, second = (part.softmax(0) for part in logits[0, 0].masked_fill(~allowed, -torch.inf).split(sizes))
    for i, j in itertools.product(range(3), range(2)):
        vector = torch.eye(5, dtype=torch.float64)[[i, 3 + j]].sum(0)
        exact = exact + first[i] * second[j] * value(vector[None, None])[0, :, 0]
    repeated = None if mask is None else mask.repeat(many, 1)
    policy = FactoredPolicy.from_logits(logits.expand(many, 1, 5), components, clip, repeated)
    noise = gumbel(many, 1, 5)
    estimate = policy.expected_value(value, noise)
    torch.testing.assert_close(estimate, value(policy.action_vector(noise)))
    for critic in range(2):
        (target,) = torch.autograd.grad(exact[critic], logits, retain_graph=True)
        (found,) = torch.autograd.grad(estimate[:, critic].mean(), logits, retain_graph=True)
        assert target.abs().max() > 0.05
        torch.testing.assert_close(found, target, rtol=0, atol=0.01)


@pytest.mark.parametrize("embedded", [False, True])
def test_the_gradient_of_the_minimum_over_critics_is_that_of_its_expectation(embedded: bool) -> None:
    """Critics that disagree about actions whose minima are the same, or in the order of the larger one."""
    many, value_AK = 40_000, torch.tensor([[0.0, 9.0], [5.0, 1.0], [9.0, 0.0]], dtype=torch.float64)
    logits = torch.tensor([0.5, 0.0, 0.3], dtype=torch.float64, requires_grad=True)
    expected = (logits.softmax(0) * value_AK.amin(1)).sum()
    (target,) = torch.autograd.grad(expected, logits)
    if embedded:
        policy: FactoredPolicy | SampledCategoricalPolicy = SampledCategoricalPolicy.from_logits(
            logits.expand(many, 1, 3), CLIP, None
        )
        noise = torch.rand(many, 1, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        estimate = policy.expected_value(lambda choice_NG1: value_AK[choice_NG1[..., 0]].movedim(2, 1), noise)
    else:
        policy = FactoredPolicy.from_logits(logits.expand(many, 1, 3), DiscreteComponents((3,)), CLIP, None)
        estimate = policy.expected_value(lambda vector: (vector @ value_AK).movedim(2, 1), gumbel(many, 1, 3))
    minimum = estimate.min(dim=1).values.mean()
    (found,) = torch.autograd.grad(minimum, logits)
    assert minimum.item() == pytest.approx(expected.item(), abs=0.01)
    torch.testing.assert_close(found, target, rtol=0, atol=0.02)


def test_a_clip_that_ties_two_choices_leaves_the_mode() -> None:
    policy = CategoricalPolicy.from_logits(torch.tensor([[[0.41, 0.55, 0.04]]]).log(), (0.001, 0.4))
    assert policy.mode().item() == 1


@pytest.mark.parametrize("masked", [False, True])
def test_one_component_is_the_categorical(masked: bool) -> None:
    logits = 4.0 * random(N, G, 5)
    mask = random_mask((5,)) if masked else None
    one = CategoricalPolicy.from_logits(logits, CLIP, None if mask is None else mask[:, None])
    several = policy_of(logits, mask, (5,))
    action = torch.arange(N) % 5
    torch.testing.assert_close(several.log_prob(action[:, None]), one.log_prob(action))
    torch.testing.assert_close(several.entropy(), one.entropy())
    torch.testing.assert_close(several.categorical.probability_NGA, one.probability_NGA)
    assert torch.equal(several.mode()[..., 0], one.mode())


def test_forbidden_choices_have_no_probability_and_get_no_gradient_and_no_nan() -> None:
    logits, mask = (50.0 * random(N, G, A)).requires_grad_(), random_mask()
    policy = policy_of(logits, mask)
    probability = policy.components.unpad(policy.categorical.probability_NGA)
    assert (probability.movedim(1, 0)[:, ~mask] == 0).all()
    # at least the clip, but for what dividing by a sum of at most 1 + 3 * 0.001 takes off
    assert (probability.movedim(1, 0)[:, mask] > 0.00099).all()
    action_NC = policy.mode()[:, 0]
    value = policy.expected_value(lambda vector: (vector * random(N, G, A)).sum(2)[:, None], gumbel(N, G, A))
    (gradient,) = torch.autograd.grad(policy.log_prob(action_NC).sum() + policy.entropy().sum() + value.sum(), logits)
    assert gradient.isfinite().all()
    assert not gradient.movedim(1, 0)[:, ~mask].any() and gradient.any()


def test_the_clip_leaves_certainty_to_a_single_allowed_choice() -> None:
    mask = torch.tensor([[False, True, False]])
    policy = CategoricalPolicy.from_logits(torch.tensor([[[9.0, -9.0, 0.0]]]), CLIP, mask[:, None])
    assert policy.probability_NGA.tolist() == [[[0.0, 1.0, 0.0]]]
    assert policy.entropy().item() == 0.0 and policy.log_prob(torch.tensor([1])).item() == 0.0
    assert policy.log_prob(torch.tensor([0])).item() == -torch.inf
    assert policy.sample(torch.Generator()).item() == policy.mode().item() == 1


def test_a_mask_that_allows_all_is_no_mask() -> None:
    logits = random(N, G, 5).requires_grad_()
    masked = CategoricalPolicy.from_logits(logits, CLIP, torch.ones(N, 1, 5, dtype=torch.bool))
    plain = CategoricalPolicy.from_logits(logits, CLIP)
    action = torch.arange(N) % 5
    for one, other in [
        (masked.probability_NGA, plain.probability_NGA),
        (masked.log_prob(action), plain.log_prob(action)),
        (masked.entropy(), plain.entropy()),
    ]:
        assert torch.equal(one, other)
