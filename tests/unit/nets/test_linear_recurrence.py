"""The scan of the linear recurrence against a loop, and what its hidden units remember at the start of training."""

import numpy as np
import pytest
import torch
from tiny_agents import double_batch, random_windows
from torch import Tensor, nn
from torch.nn import functional

from yamame.data.batch import pack
from yamame.nets.blocks import power_iteration, sigma_layers
from yamame.nets.sequence.linear_recurrence import LinearRecurrenceConfig, linear_scan

LENGTHS = [1, 2, 7, 8, 15, 16, 17, 63, 64, 65, 130, 600]
"""Around one chunk, two chunks, and chunks of chunks."""


def random_scan(length: int, width: int = 3) -> tuple[Tensor, Tensor]:
    """Factors in [0, 1], some of them exactly 0 and 1, and numbers to add."""
    generator = torch.Generator().manual_seed(length)
    factor = torch.rand(length, width, generator=generator, dtype=torch.float64)
    factor[torch.rand(length, generator=generator) < 0.1] = 0.0
    factor[torch.rand(length, generator=generator) < 0.2] = 1.0
    added = torch.randn(length, width, generator=generator, dtype=torch.float64)
    return factor.requires_grad_(), added.requires_grad_()


def loop(factor: Tensor, added: Tensor) -> Tensor:
    state, states = torch.zeros_like(added[0]), []
    for n in range(len(added)):
        state = factor[n] * state + added[n]
        states.append(state)
    return torch.stack(states)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_scan_is_the_loop_with_its_gradients(length: int) -> None:
    factor, added = random_scan(length)
    direction = torch.randn(length, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found, expected = linear_scan(factor, added), loop(factor, added)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad((states * direction).sum(), (factor, added)) for states in (found, expected)]
    for ours, reference in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, reference, rtol=0, atol=1e-12)


def test_gradcheck() -> None:
    assert torch.autograd.gradcheck(linear_scan, random_scan(21))


def test_the_arguments_stay_as_they_were() -> None:
    factor, added = random_scan(100)
    before = factor.detach().clone(), added.detach().clone()
    linear_scan(factor, added).sum().backward()
    assert torch.equal(factor.detach(), before[0]) and torch.equal(added.detach(), before[1])


@torch.no_grad()
def test_half_precision_projections_keep_float32_hidden_states() -> None:
    torch.manual_seed(0)
    encoder = LinearRecurrenceConfig(d_model=8, d_ff=8, num_layers=2).build(
        input_size=4, attention_window=9, max_timestep=8
    )
    batch = double_batch(random_windows(0, [9, 9]))
    x_ND = torch.randn(len(batch.reward), 4)
    with torch.autocast("cpu", torch.bfloat16):
        states_NS = encoder(x_ND, batch)
        memory = encoder.initial_state(1)
        for time in range(9):
            state_ES = encoder.step(x_ND[time : time + 1], np.array([time]), memory)
    assert memory.hidden.dtype == torch.float32
    torch.testing.assert_close(state_ES.float(), states_NS[8:9].float(), rtol=0, atol=0.05)
    torch.testing.assert_close(states_NS.float(), encoder(x_ND, batch), rtol=0, atol=0.2)


def test_hidden_units_forget_over_one_timestep_to_the_longest_memory() -> None:
    config = LinearRecurrenceConfig(d_model=16, d_ff=8, num_layers=1)
    block = config.build(input_size=4, attention_window=1000, max_timestep=999).recurrence.blocks[0]
    keep_ND, _, _ = block.project(torch.zeros(1, 16))
    timescale_D = 1.0 / (1.0 - keep_ND[0])
    torch.testing.assert_close(timescale_D[[0, -1]], torch.tensor([2.0, 1001.0]), rtol=1e-3, atol=0)
    assert (timescale_D.diff() > 0).all()


@torch.no_grad()
def test_memory_has_the_same_size_at_every_timestep() -> None:
    config = LinearRecurrenceConfig(d_model=16, d_ff=8, num_layers=3)
    encoder = config.build(input_size=4, attention_window=5, max_timestep=9)
    memory = encoder.initial_state(2)
    for time in range(50):
        encoder.step(torch.zeros(2, 4), np.full(2, time), memory)
        assert memory.hidden.shape == (3, 2, 16)


@pytest.mark.slow
@pytest.mark.thorough
def test_a_bit_shown_once_is_recalled_100_timesteps_later() -> None:
    """A window's first input has the bit, the others are noise, and only the last state is trained."""
    torch.manual_seed(0)
    config = LinearRecurrenceConfig(d_model=64, d_ff=256, num_layers=2)
    encoder = config.build(input_size=64, attention_window=100, max_timestep=99)
    embed = nn.Sequential(nn.Linear(4, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LayerNorm(64))
    network = nn.ModuleList([embed, encoder, nn.Linear(64, 1)])
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    batch = pack(random_windows(0, [99] * 24))
    correct = []
    for _ in range(200):
        bit_B = torch.randint(2, (24,)) * 2.0 - 1.0
        x_BLD = 0.1 * torch.randn(24, 100, 4)
        x_BLD[:, :, :2] = 0.0
        x_BLD[:, 0, 0], x_BLD[:, -1, 1] = bit_B, 1.0
        x_ND = functional.pad(x_BLD.flatten(0, 1), (0, 0, 0, len(batch.reward) - 2400))
        states_BLS = encoder(embed(x_ND), batch)[:2400].unflatten(0, (24, 100))
        guess_B = network[2](states_BLS[:, -1])[:, 0]
        optimizer.zero_grad()
        functional.softplus(-guess_B * bit_B).mean().backward()
        optimizer.step()
        power_iteration(sigma_layers(encoder))
        correct.append((guess_B * bit_B > 0).float().mean().item())
    assert np.mean(correct[-20:]) > 0.98
