"""An update on windows packed together is the token-weighted mean of updates on each alone."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tiny_agents import (
    CONTINUOUS,
    DISCRETE,
    TINY_AGENT,
    ActionSpace,
    double_batch,
    gradients,
    random_windows,
    shake,
    tiny_agent,
)
from torch import Tensor

from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.data.batch import Batch, Window
from yamame.nets.blocks import power_iteration, sigma_layers
from yamame.nets.heads.actor import Actor

LOSSES = ("loss/td", "loss/policy_gradient", "loss/filtered_bc")
action_spaces = pytest.mark.parametrize("action_space", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])


@pytest.fixture(autouse=True)
def nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Continuous policies choose their mode; the subset of critics is all of them."""
    drawn = Actor.sample_noise

    def none(actor: Actor, state_ND: Tensor, generator: torch.Generator) -> Tensor | None:
        noise = drawn(actor, state_ND, generator)
        return None if noise is None else torch.zeros_like(noise)

    monkeypatch.setattr(Actor, "sample_noise", none)


def still_learner(action_space: ActionSpace) -> Learner:
    """Gradients, but no step: parameters, slow heads and statistics stay where they are."""
    agent = tiny_agent(TINY_AGENT, action_space)
    shake(agent)
    for _ in range(300):
        power_iteration(sigma_layers(agent))
    agent.value_code.update = lambda *_: None  # type: ignore[method-assign]
    agent.timestep_encoder.normalizer.update = lambda *_: None  # type: ignore[method-assign]
    config = LearnerConfig(
        td=TDLoss(num_critics_in_target=4, n_step=2),
        learning_rate=1e-30,
        weight_decay=0.0,
        tau=1e-30,
        max_grad_norm=1e12,
    )
    return Learner(agent, config, generator=torch.Generator().manual_seed(0))


def measured(learner: Learner, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    metrics = learner.update(batch)
    return torch.stack([metrics[name] for name in LOSSES]), gradients(learner.agent)


def one_by_one(learner: Learner, windows: list[Window]) -> tuple[Tensor, dict[str, Tensor]]:
    total = sum(window.length for window in windows)
    losses = torch.zeros(len(LOSSES), dtype=torch.float64)
    summed: dict[str, Tensor] = {}
    for window in windows:
        fraction = window.length / total
        loss, gradient = measured(learner, double_batch([window]))
        losses = losses + fraction * loss
        summed = {name: summed.get(name, 0.0) + fraction * value for name, value in gradient.items()}
    return losses, summed


def assert_same(actual: tuple[Tensor, dict[str, Tensor]], expected: tuple[Tensor, dict[str, Tensor]]) -> None:
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-10, atol=1e-10)
    for name, gradient in expected[1].items():
        torch.testing.assert_close(actual[1][name], gradient, rtol=1e-7, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


@action_spaces
@settings(max_examples=5, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    lengths=st.lists(st.integers(1, 12), min_size=2, max_size=4),
    token_multiple=st.sampled_from([1, 8, 64]),
    row_multiple=st.sampled_from([1, 8]),
)
def test_packed_is_one_by_one(
    action_space: ActionSpace, lengths: list[int], token_multiple: int, row_multiple: int
) -> None:
    learner, windows = still_learner(action_space), random_windows(1, lengths, action_space)
    batch = double_batch(windows, token_multiple=token_multiple, row_multiple=row_multiple)
    assert_same(measured(learner, batch), one_by_one(learner, windows))


@action_spaces
def test_padding_changes_nothing(action_space: ActionSpace) -> None:
    """(3, 5, 7) transitions in 24 tokens are as many as three rows of the longest have slots."""
    learner, windows = still_learner(action_space), random_windows(2, (3, 5, 7), action_space)
    expected = measured(learner, double_batch(windows))
    for token_multiple, row_multiple in ((8, 1), (64, 1), (1, 16), (64, 16)):
        batch = double_batch(windows, token_multiple=token_multiple, row_multiple=row_multiple)
        assert_same(measured(learner, batch), expected)


def test_the_learner_stands_still() -> None:
    """The comparison above means something only while nothing moves."""
    learner = still_learner(DISCRETE)
    batch = double_batch(random_windows(3, (4, 6)))
    first, second = measured(learner, batch), measured(learner, batch)
    assert_same(first, second)
    assert all(gradient.isfinite().all() for gradient in first[1].values()) and (first[0] != 0).all()
