"""The reference that our learner's speed is compared with does the same update."""

import copy
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from tiny_agents import shake
from tiny_size import TINY, tiny_size_agent, tiny_size_batch

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss

LEARNER = LearnerConfig(td=TDLoss(num_critics_in_target=4), learning_rate=1e-3, lr_warmup_updates=1, tau=0.1)


@pytest.fixture(scope="module")
def naive() -> ModuleType:
    path = Path(__file__).parents[3] / "benchmarks" / "naive_update.py"
    spec = importlib.util.spec_from_file_location("naive_update", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["naive_update"] = module
    spec.loader.exec_module(module)
    return module


def shaken_agent() -> Agent:
    agent = tiny_size_agent()
    shake(agent, scale=0.1)
    return agent


@pytest.mark.parametrize("lengths", [(12, 12, 12), (12, 3, 7)], ids=["full", "ragged"])
def test_losses_and_gradient_norm_are_ours_update_after_update(naive: ModuleType, lengths: tuple[int, ...]) -> None:
    agent = shaken_agent()
    batch = tiny_size_batch(lengths, token_multiple=16)
    reference = naive.NaiveLearner(agent, LEARNER, generator=torch.Generator())
    rows = naive.PaddedBatch.of(batch, TINY.actions)
    ours = Learner(agent, LEARNER, generator=torch.Generator())
    for _ in range(5):
        expected, measured = reference.update(rows), ours.update(batch)
        for name, value in expected.items():
            assert float(measured[name]) == pytest.approx(float(value), rel=1e-5, abs=1e-5), name


def test_weights_and_slow_copies_move_as_ours(naive: ModuleType) -> None:
    agent = shaken_agent()
    batch = tiny_size_batch((12, 5))
    reference = naive.NaiveLearner(agent, LEARNER, generator=torch.Generator())
    before = copy.deepcopy(reference.slow)
    ours = Learner(agent, LEARNER, generator=torch.Generator())
    reference.update(naive.PaddedBatch.of(batch, TINY.actions))
    ours.update(batch)
    moved = naive.NaiveLearner(agent, LEARNER, generator=torch.Generator())
    for one, other in ((reference.network, moved.network), (reference.slow, moved.slow)):
        for name, parameter in one.named_parameters():
            # the first step of Adam is the sign of the gradient: where that is zero but for rounding, it may differ
            same = torch.isclose(parameter, other.get_parameter(name), rtol=1e-4, atol=2e-5)
            assert same.float().mean() > 0.98, name
    assert not torch.equal(before.actor[0].weight, reference.slow.actor[0].weight)


def test_the_subset_of_critics_is_as_random_as_ours(naive: ModuleType) -> None:
    config = replace(LEARNER, td=TDLoss(num_critics_in_target=2))
    agent = shaken_agent()
    batch = tiny_size_batch((12, 12))
    reference = naive.NaiveLearner(agent, config, generator=torch.Generator().manual_seed(1))
    ours = Learner(agent, config, generator=torch.Generator().manual_seed(1))
    expected, measured = reference.update(naive.PaddedBatch.of(batch, TINY.actions)), ours.update(batch)
    assert float(measured["loss/td"]) == pytest.approx(float(expected["loss/td"]), rel=1e-5)
