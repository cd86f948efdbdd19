"""Maxima over the window: what they are, and what they do not depend on."""

import pytest
import torch
from tiny_agents import double_batch, random_windows
from torch import Tensor

from yamame.errors import UserError
from yamame.nets.running_max import FeatureRing, RunningMax
from yamame.nets.sequence.transformer import TransformerConfig

INPUTS, FEATURES, STATES = 4, 6, 5


def built(slots: int) -> RunningMax:
    torch.manual_seed(0)
    return RunningMax(input_size=INPUTS, num_features=FEATURES, state_size=STATES, slots=slots).double()


def random_timesteps(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, INPUTS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@torch.no_grad()
@pytest.mark.parametrize("slots", [1, 3, 6, 100])
@pytest.mark.parametrize("lengths", [[5, 2, 7], [6, 6], [1]])
def test_maxima_are_those_of_the_last_timesteps_of_the_same_window(slots: int, lengths: list[int]) -> None:
    module, batch = built(slots), double_batch(random_windows(0, lengths), token_multiple=8)
    x_ND = random_timesteps(len(batch.loss_mask))
    features_NK, expected = module.features(x_ND), []
    for segment in range(len(lengths)):
        (token,) = torch.nonzero(batch.segment_ids == segment, as_tuple=True)
        expected += [features_NK[token[max(0, i + 1 - slots) : i + 1]].amax(0) for i in range(len(token))]
    found = module(x_ND, batch)[batch.segment_ids < len(lengths)]
    torch.testing.assert_close(found, module.output(torch.stack(expected)), rtol=0, atol=1e-12)


@torch.no_grad()
def test_they_do_not_depend_on_the_order_of_what_was_before() -> None:
    module, batch = built(20), double_batch(random_windows(0, [9]))
    x_ND = random_timesteps(10)
    shuffled = x_ND[[3, 7, 0, 2, 8, 1, 5, 4, 6, 9]]
    torch.testing.assert_close(module(x_ND, batch)[9], module(shuffled, batch)[9], rtol=0, atol=0)
    assert not torch.allclose(module(x_ND, batch)[4], module(shuffled, batch)[4])


def test_only_the_largest_gets_a_gradient() -> None:
    module, batch = built(20), double_batch(random_windows(0, [9]))
    x_ND = random_timesteps(10).requires_grad_()
    module.features.weight.data[1:] = 0.0  # one feature that varies
    module(x_ND, batch)[9].sum().backward()
    assert x_ND.grad is not None
    largest = int(module.features(x_ND)[:, 0].argmax())
    assert torch.nonzero(x_ND.grad.abs().sum(1)).flatten().tolist() == [largest]


@torch.no_grad()
def test_a_ring_is_resumed() -> None:
    module = built(4)
    x_EDs = [random_timesteps(2, seed) for seed in range(9)]
    rings = [FeatureRing(module.empty_ring(2, x_EDs[0])) for _ in range(2)]
    for time, x_ED in enumerate(x_EDs):
        if time == 6:
            rings[1] = FeatureRing(module.empty_ring(2, x_ED))
            rings[1].load_state_dict(rings[0].state_dict())
        time_E = torch.full((2,), time)
        one, other = (module.step(x_ED, time_E, ring, used=time + 1) for ring in rings)
        assert torch.equal(one, other)
        features_EK = torch.stack([module.features(each) for each in x_EDs[max(0, time - 3) : time + 1]]).amax(0)
        torch.testing.assert_close(one, module.output(features_EK), rtol=0, atol=1e-12)


def test_a_negative_number_of_features_is_refused() -> None:
    with pytest.raises(UserError, match="num_running_maxima"):
        TransformerConfig(num_running_maxima=-1)


@pytest.mark.parametrize("num_running_maxima", [0, 64])
def test_which_symbols_were_named_is_learned_soon(num_running_maxima: int) -> None:
    """At the last of 24 steps, for each of 32 symbols, whether it was named."""
    torch.manual_seed(0)
    config = TransformerConfig(d_model=32, num_layers=1, num_heads=2, d_ff=64, num_running_maxima=num_running_maxima)
    encoder = config.build(input_size=32, attention_window=25, max_timestep=25)
    head = torch.nn.Linear(32, 32)
    optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=3e-3)
    batch = double_batch(random_windows(0, [23] * 16))
    right = []
    for update in range(400):
        symbols = torch.randint(32, (16, 24))
        named = torch.zeros(16, 32).scatter(1, symbols, 1.0)
        x_ND = torch.nn.functional.one_hot(symbols.flatten(), 32).float()
        logits = head(encoder(x_ND, batch).view(16, 24, -1)[:, -1])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, named)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update >= 350:
            right.append(((logits > 0) == (named > 0)).float().mean().item())
    assert (sum(right) / len(right) > 0.95) == bool(num_running_maxima), sum(right) / len(right)
