"""The learner with separate networks: what its two steps move, and its result."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from yamame.errors import ConfigFieldError
from yamame.tools.bench.options import pack_windows, run_config
from yamame.tools.bench.separate_networks import TAU, SeparateNetworksBench, SeparateNetworksLearner
from yamame.tools.figures import throughput

TINY: dict[str, Any] = {"size": "tmaze", "context": 6, "batch": 2, "repeats": 1, "warmup": 1, "dtype": "float32"}


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def moved(before: dict[str, Tensor], module: nn.Module) -> set[str]:
    """The parts of a module that changed."""
    return {name.partition(".")[0] for name, value in weights(module).items() if not torch.equal(value, before[name])}


@pytest.fixture
def learner() -> SeparateNetworksLearner:
    return SeparateNetworksBench(**TINY).make_learner()


def batch() -> Any:
    options = SeparateNetworksBench(**TINY).as_shared()
    return pack_windows(options, run_config(options, options.network.task(options.context)).replay)


def test_each_loss_moves_its_own_networks(learner: SeparateNetworksLearner) -> None:
    actor, critic = weights(learner.actor), weights(learner.critic)
    targets = copy.deepcopy((learner.target_actor, learner.target_critic))
    td_loss, actor_loss = learner.update(batch())
    assert torch.isfinite(td_loss) and torch.isfinite(actor_loss)
    encoders = {"timestep_encoder", "trajectory_encoder"}
    assert moved(actor, learner.actor) == encoders | {"actor"}
    assert moved(critic, learner.critic) == encoders | {"critic"}
    for target, before, online in zip(
        (learner.target_actor, learner.target_critic), targets, (learner.actor, learner.critic), strict=True
    ):
        for name, value in weights(target).items():
            old, new = weights(before)[name], weights(online)[name]
            assert torch.allclose(value, old + TAU * (new - old), atol=1e-7)


def test_the_td_loss_falls_on_a_batch_that_stays(learner: SeparateNetworksLearner) -> None:
    data = batch()
    first, *_, last = [float(learner.update(data)[0]) for _ in range(60)]
    assert last < 0.5 * first


def test_networks_share_nothing(learner: SeparateNetworksLearner) -> None:
    ids = [{id(parameter) for parameter in each.parameters()} for each in (learner.actor, learner.critic)]
    assert not ids[0] & ids[1]
    assert learner.critic.config.critic.num_critics == 2
    assert len(learner.critic.gammas_G) == 1


@pytest.mark.slow
@pytest.mark.thorough
def test_it_is_a_line_of_the_throughput_figure() -> None:
    options = throughput.Options(
        encoders=("gru", "separate-gru"), context_lengths=(4, 8), size="tmaze", batch=2, repeats=1
    )
    lines = throughput.series(throughput.measure(options))
    names = {label.removesuffix(", compiled").removesuffix(", not compiled"): label for label in lines}
    assert {name: sorted(lines[label]) for name, label in names.items()} == {
        "GRU": [4, 8],
        "GRU, separate networks": [4, 8],
    }
    for results in lines.values():
        assert all(each[0]["updates_per_second"] > 0 for each in results.values())
    with pytest.raises(ConfigFieldError, match="'lstm' is unknown"):
        throughput.Options(encoders=("lstm",))
