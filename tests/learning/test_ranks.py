"""Several processes that learn together make the updates that one makes with the batches of all of them."""

from dataclasses import replace

import pytest
import torch
from learning_in_ranks import Outcome, Updates, exchanges, in_processes, made
from tiny_agents import CONTINUOUS, DISCRETE, every_action_space

from yamame.learning.losses.filtered_imitation import FilteredImitationLoss
from yamame.ops.ranks import ALONE, Ranks

ALL_IMITATED = Updates()
ALL_IMITATED = replace(
    ALL_IMITATED, learner=replace(ALL_IMITATED.learner, imitation=FilteredImitationLoss(threshold=-1e9))
)
"""Whether an advantage is just above the threshold hangs on the last bit of a float32, and with it the next gradient."""


def assert_alike(one: Outcome, other: Outcome, *, tolerance: float) -> None:
    assert one.state.keys() == other.state.keys() and len(one.state) > 100
    for name, value in one.state.items():
        torch.testing.assert_close(other.state[name], value, rtol=tolerance, atol=tolerance, msg=name)
    for measured, of_other in zip(one.metrics, other.metrics, strict=True):
        assert of_other == pytest.approx(measured, rel=100 * tolerance, abs=100 * tolerance)


def assert_same_bits(outcomes: list[Outcome]) -> None:
    first, *others = outcomes
    for other in others:
        assert all(torch.equal(value, other.state[name]) for name, value in first.state.items())
        assert other.metrics == first.metrics


@pytest.mark.slow
@pytest.mark.parametrize("action_space", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_two_with_half_a_batch_each_are_one_with_the_whole(
    action_space: object, dtype: torch.dtype, tolerance: float
) -> None:
    """Weights, their slow copies, moments of the optimizer, PopArt, input statistics, and what is measured."""
    work = replace(ALL_IMITATED, action_space=action_space, dtype=dtype)
    outcomes = in_processes(made, work)
    assert_same_bits(outcomes)
    assert_alike(made(work), outcomes[0], tolerance=tolerance)


class MeansOfMeans(Ranks):
    """What a plain average over processes would be, whatever the tokens of each."""

    def sum_(self, *tensors: torch.Tensor) -> None:
        for tensor in tensors:
            tensor.mul_(1.0)


@pytest.mark.slow
def test_the_thresholded_imitation_is_summed_as_well() -> None:
    work = Updates(dtype=torch.float64)
    assert_alike(made(work), in_processes(made, work)[0], tolerance=1e-10)


@pytest.mark.slow
def test_a_batch_that_is_not_finite_on_one_changes_nothing_on_both() -> None:
    work = Updates(dtype=torch.float64, updates=3, nan_at=1)
    outcomes = in_processes(made, work)
    assert_same_bits([replace(outcome, metrics=[]) for outcome in outcomes])
    assert [outcome.skipped for outcome in outcomes] == [1, 1]
    assert all(value.isfinite().all() for value in outcomes[0].state.values())
