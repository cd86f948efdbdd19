"""The gradient of replicator dynamics."""

import pytest
import torch
from torch import Tensor

from yamame.nets.heads.distributions import CategoricalPolicy
from yamame.nets.heads.replicator import replicator_expectation

CLIP = (0.001, 0.99)
MASK = torch.tensor([[[True, False, True, True]]])


def policy_of(logits: Tensor, mask: Tensor | None = None, *, replicator: bool = True) -> CategoricalPolicy:
    return CategoricalPolicy.from_logits(logits[None, None], CLIP, mask, replicator=replicator)


def gradient_of(logits: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    logits = logits.clone().requires_grad_()
    replicator_expectation(values[None, None, None], policy_of(logits, mask)).sum().backward()
    assert logits.grad is not None
    return logits.grad


@pytest.mark.parametrize("mask", [None, MASK], ids=["all allowed", "masked"])
def test_the_value_is_the_expectation(mask: Tensor | None) -> None:
    logits, values = torch.tensor([0.3, -1.0, 2.0, 0.1]).double(), torch.tensor([1.0, 2.0, -3.0, 0.5]).double()
    policy = policy_of(logits, mask)
    expected = (policy.probability_NGA * values).sum()
    assert replicator_expectation(values[None, None, None], policy).item() == pytest.approx(expected.item())


def test_logits_move_by_the_value_less_the_mean_whatever_the_probabilities() -> None:
    values = torch.tensor([1.0, -2.0, 0.5, 4.0]).double()
    expected = (values - values.mean()) / 4
    for logits in (torch.zeros(4), torch.tensor([4.0, 0.0, -2.0, 0.5])):
        torch.testing.assert_close(gradient_of(logits.double(), values), expected)


def test_forbidden_actions_neither_move_nor_count() -> None:
    values = torch.tensor([1.0, 1e6, 0.0, 2.0]).double()
    expected = torch.tensor([0.0, 0.0, -1.0, 1.0]).double() / 3
    torch.testing.assert_close(gradient_of(torch.zeros(4).double(), values, MASK), expected)


def test_probabilities_close_to_0_or_1_move_back_only() -> None:
    logits = torch.tensor([13.0, 0.0, -1.0]).double()
    certain = gradient_of(logits, torch.tensor([1.0, 0.0, 0.0]).double())
    assert (certain == 0).all()
    wrong = gradient_of(logits, torch.tensor([0.0, 1.0, 0.0]).double())
    assert wrong[0] < -0.2 and wrong[1] > 0.2 and abs(wrong[2]) < 1e-3


def test_a_policy_leaves_what_proves_to_be_bad_sooner_than_by_the_softmax() -> None:
    """The action of probability 0.999 is worse than the other one by 0.1."""
    values, steps = torch.tensor([0.0, 0.1]), list[int]()
    for replicator in (True, False):
        logits = torch.tensor([7.0, 0.0], requires_grad=True)
        optimizer = torch.optim.SGD([logits], lr=1.0)
        steps.append(0)
        while (policy := policy_of(logits, replicator=replicator)).probability_NGA[0, 0, 1] < 0.5:
            steps[-1] += 1
            plain = (policy.probability_NGA * values).sum()
            objective = replicator_expectation(values[None, None, None], policy).sum() if replicator else plain
            optimizer.zero_grad()
            (-objective).backward()
            optimizer.step()
    assert steps[0] < 200 < 5_000 < steps[1]
