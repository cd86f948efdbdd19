"""Several processes that learn together make the updates that one makes with the batches of all of them."""

import multiprocessing
import sys
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.pool import Pool

import pytest
import torch
from learning_in_ranks import Outcome, Updates, exchanged, in_processes, left_alone, listening, made
from tiny_agents import CONTINUOUS, DISCRETE, ActionSpace

from yamame.algorithms.amago.losses.filtered_bc import FilteredBCLoss
from yamame.distributed_context import SINGLE_PROCESS

pytestmark = pytest.mark.slow

WORK = Updates(dtype=torch.float64)
ALL_IMITATED = replace(WORK.learner, filtered_bc=FilteredBCLoss(advantage_threshold=-1e9))
"""Whether an advantage is above the threshold may hang on the last bit of a float32, and with it all that follows."""


@pytest.fixture(scope="module")
def processes() -> Iterator[Pool]:
    """Three processes, which import PyTorch once for all tests."""
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        yield pool


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


@pytest.mark.parametrize("action_space", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-10)])
def test_two_with_half_a_batch_each_are_one_with_the_whole(
    action_space: ActionSpace, dtype: torch.dtype, tolerance: float, processes: Pool
) -> None:
    """Weights, their slow copies, moments of the optimizer, PopArt, input statistics, and what is measured."""
    learner = ALL_IMITATED if dtype is torch.float32 else WORK.learner
    work = replace(WORK, action_space=action_space, dtype=dtype, learner=learner)
    outcomes = in_processes(processes, made, work)
    assert_same_bits(outcomes)
    assert_alike(made(work), outcomes[0], tolerance=tolerance)


@pytest.mark.skipif(sys.platform != "linux", reason="lists sockets in /proc")
def test_they_listen_on_the_loopback_interface_alone(processes: Pool) -> None:
    addresses = [address for of_rank in in_processes(processes, listening, world=3) for address in of_rank]
    assert addresses and set(addresses) == {"0100007F"}


def test_a_mean_of_means_differs(processes: Pool) -> None:
    work = replace(WORK, updates=1)
    wrong = in_processes(processes, made, replace(work, means_of_means=True))
    assert_same_bits(wrong)
    with pytest.raises(AssertionError, match="exp_avg"):
        assert_alike(made(work), wrong[0], tolerance=1e-3)


def test_a_batch_that_is_not_finite_on_one_changes_nothing_on_any(processes: Pool) -> None:
    outcomes = in_processes(processes, made, replace(WORK, updates=3, nan_at=1))
    assert_same_bits([replace(outcome, metrics=[]) for outcome in outcomes])
    assert [outcome.skipped for outcome in outcomes] == [1, 1]
    assert all(value.isfinite().all() for value in outcomes[0].state.values())
    untouched = made(replace(WORK, updates=3, nan_at=1))
    torch.testing.assert_close(outcomes[0].state["actor.mlp.output.weight"], untouched.state["actor.mlp.output.weight"])


def test_collective_operations_of_three_ranks(processes: Pool) -> None:
    expected = {"max": 3, "any": True, "none": False, "first": {"rank": 0}}
    assert in_processes(processes, exchanged, world=3) == [
        {**expected, "gathered": [0, 1, 2], "tensors": [[6.0], [3.0, 3.0]]},
        {**expected, "gathered": [1], "tensors": [[6.0], [3.0, 3.0]]},
        {**expected, "gathered": [2], "tensors": [[6.0], [3.0, 3.0]]},
    ]
    alone = {"max": 1, "any": False, "none": False, "first": {"rank": 0}, "gathered": [0]}
    assert exchanged(SINGLE_PROCESS) == {**alone, "tensors": [[1.0], [0.0, 0.0]]}


def test_a_failure_of_one_rank_ends_all(processes: Pool) -> None:
    assert in_processes(processes, left_alone) == ["PeerLostError", "failed"]
