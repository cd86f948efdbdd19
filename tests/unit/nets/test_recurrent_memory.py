"""What the memory of the recurrent memory Transformer carries over segments, and what acting with it costs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_agents import double_batch, random_windows, shake
from torch import Tensor, nn
from torch.nn import functional

from yamame.data.batch import pack
from yamame.errors import UserError
from yamame.nets.blocks import power_iteration, sigma_layers
from yamame.nets.sequence.recurrent_memory import RecurrentMemoryConfig, RecurrentMemoryTransformer, SummaryTokens

INPUTS = 5
TINY = RecurrentMemoryConfig(d_model=8, d_ff=12, num_heads=2, num_layers=2, segment_length=4, num_summaries=3)


def encoder_with(config: RecurrentMemoryConfig = TINY, *, attention_window: int = 1000) -> RecurrentMemoryTransformer:
    torch.manual_seed(0)
    encoder = config.build(input_size=INPUTS, attention_window=attention_window, max_timestep=9).double().eval()
    shake(encoder)
    return encoder


def random_inputs(length: int) -> Tensor:
    return torch.randn(length, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def influences(encoder: RecurrentMemoryTransformer, length: int, timestep: int) -> list[int]:
    """The timesteps whose states change with the input of one."""
    batch = double_batch(random_windows(0, [length - 1]))
    x_ND = random_inputs(length)
    other_ND = x_ND.clone()
    other_ND[timestep] += 1.0
    changed_N = (encoder(x_ND, batch) != encoder(other_ND, batch)).any(dim=1)
    return torch.nonzero(changed_N)[:, 0].tolist()


@torch.no_grad()
def test_only_the_memory_crosses_the_end_of_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_with()
    assert influences(encoder, 18, 1) == list(range(1, 18))
    monkeypatch.setattr(SummaryTokens, "rewrite", lambda _, memory_BMD, output_BMD: memory_BMD)
    assert influences(encoder, 18, 1) == [1, 2, 3]
    assert influences(encoder, 18, 5) == [5, 6, 7]


@torch.no_grad()
def test_a_rewritten_memory_that_keeps_nothing_is_the_outputs_of_the_summary_tokens() -> None:
    """With a bias of the gate that keeps everything, the first memory stays, and no segment sees an earlier one."""
    encoder = encoder_with()
    assert influences(encoder, 10, 1) == list(range(1, 10))
    encoder.summaries.keep.bias.fill_(1e3)
    assert influences(encoder, 10, 1) == [1, 2, 3]
    memory_1MD, output_1MD = torch.randn(2, 1, 3, 8, dtype=torch.float64)
    assert torch.equal(encoder.summaries.rewrite(memory_1MD, output_1MD), memory_1MD)
    encoder.summaries.keep.bias.fill_(-1e3)
    torch.testing.assert_close(
        encoder.summaries.rewrite(memory_1MD, output_1MD), encoder.summaries.norm(output_1MD), rtol=0, atol=1e-12
    )


def test_gradients_reach_the_first_timestep_from_100_timesteps_later() -> None:
    encoder = encoder_with(replace(TINY, segment_length=32))
    x_ND = random_inputs(101).requires_grad_()
    encoder(x_ND, double_batch(random_windows(0, [100])))[100].sum().backward()
    assert x_ND.grad is not None
    size_N = x_ND.grad.abs().sum(dim=1)
    assert (size_N > 0).all() and size_N[0] > 1e-6 * size_N[99]


@torch.no_grad()
@pytest.mark.parametrize("segment_length", [1, 2, 4])
def test_acting_repeats_timesteps_at_the_ends_of_segments(segment_length: int) -> None:
    """Whatever a timestep's first versions were, its last one counts; environments are at different times."""
    encoder = encoder_with(replace(TINY, segment_length=segment_length))
    x_ND = random_inputs(20)
    expected_ND = encoder(x_ND, double_batch(random_windows(0, [19])))
    memory = encoder.initial_state(2)
    generator = torch.Generator().manual_seed(1)
    for now in range(23):
        time_E = np.array([min(now, 19), max(0, now - 3)])
        for _ in range(2):
            encoder.step(torch.randn(2, INPUTS, dtype=torch.float64, generator=generator), time_E, memory)
        state_ES = encoder.step(x_ND[time_E], time_E, memory)
        torch.testing.assert_close(state_ES, expected_ND[time_E], rtol=0, atol=1e-9)


@torch.no_grad()
def test_memory_and_work_are_the_same_at_every_timestep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summary tokens are computed once in a segment, and only for the environments whose segment ends."""
    encoder = encoder_with()
    memory = encoder.initial_state(2)
    summarized: list[tuple[int, int]] = []
    rewrite = SummaryTokens.rewrite

    def recorded(summaries: SummaryTokens, memory_BMD: Tensor, output_BMD: Tensor) -> Tensor:
        summarized.append((time, len(output_BMD)))
        return rewrite(summaries, memory_BMD, output_BMD)

    monkeypatch.setattr(SummaryTokens, "rewrite", recorded)
    for time in range(50):
        encoder.step(torch.zeros(2, INPUTS, dtype=torch.float64), np.array([time, time + 1]), memory)
        assert memory.cache.key.shape == memory.cache.value.shape == (2, 2, 2, 3 + 4, 4)
        assert memory.memory.shape == (2, 2, 3, 8)
    assert summarized == [(time, 1) for time in range(50) if time % 4 in (2, 3)]


@torch.no_grad()
def test_no_position_is_later_than_those_of_a_segment() -> None:
    """With a memory that keeps everything, equal segments have equal states, for ever."""
    encoder = encoder_with()
    encoder.summaries.keep.bias.fill_(1e3)
    x_4D, memory = random_inputs(4), encoder.initial_state(1)
    states = [encoder.step(x_4D[[time % 4]], np.array([time]), memory) for time in range(403)]
    torch.testing.assert_close(torch.cat(states[400:403]), torch.cat(states[:3]), rtol=0, atol=1e-12)


@torch.no_grad()
def test_half_precision_projections_keep_a_float32_memory() -> None:
    torch.manual_seed(0)
    encoder = TINY.build(input_size=INPUTS, attention_window=20, max_timestep=9)
    x_ND, batch = random_inputs(9).float(), double_batch(random_windows(0, [8]))
    with torch.autocast("cpu", torch.bfloat16):
        states_NS = encoder(x_ND, batch)
        memory = encoder.initial_state(1)
        for time in range(9):
            state_ES = encoder.step(x_ND[[time]], np.array([time]), memory)
    assert memory.memory.dtype == torch.float32
    torch.testing.assert_close(state_ES.float(), states_NS[8:].float(), rtol=0, atol=0.1)
    torch.testing.assert_close(states_NS.float(), encoder(x_ND, batch), rtol=0, atol=0.2)


@pytest.mark.parametrize(("context", "segment_length"), [(1000, 32), (64, 32), (63, 31), (5, 2), (1, 1)])
def test_two_segments_fit_into_the_context(context: int, segment_length: int) -> None:
    """Otherwise no training window would rewrite the memory."""
    encoder = encoder_with(replace(TINY, segment_length=32), attention_window=context)
    assert encoder.segment_length == segment_length
    assert encoder.initial_state(3).cache.key.shape == (2, 3, 2, 3 + segment_length, 4)


@pytest.mark.parametrize(
    "fields",
    [{"segment_length": 0}, {"num_summaries": 0}, {"d_model": 12, "num_heads": 8}, {"d_model": 9, "num_heads": 3}],
)
def test_impossible_settings_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(UserError):
        RecurrentMemoryConfig(**fields)


@pytest.mark.slow
def test_a_bit_shown_once_is_recalled_100_timesteps_later() -> None:
    """Three segments after the one that has the bit, and only the last state is trained."""
    torch.manual_seed(1)
    config = RecurrentMemoryConfig(d_model=32, d_ff=128, num_layers=1, num_heads=4)
    encoder = config.build(input_size=32, attention_window=100, max_timestep=99)
    embed = nn.Sequential(nn.Linear(4, 32), nn.LeakyReLU(), nn.Linear(32, 32), nn.LayerNorm(32))
    network = nn.ModuleList([embed, encoder, nn.Linear(32, 1)])
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    batch = pack(random_windows(0, [99] * 16))
    correct: list[float] = []
    while len(correct) < 20 or np.mean(correct[-20:]) < 0.98:
        assert len(correct) < 200, f"{np.mean(correct[-20:]):.0%} of the last 20 batches"
        bit_B = torch.randint(2, (16,)) * 2.0 - 1.0
        x_BLD = 0.1 * torch.randn(16, 100, 4)
        x_BLD[:, :, :2] = 0.0
        x_BLD[:, 0, 0], x_BLD[:, -1, 1] = bit_B, 1.0
        x_ND = functional.pad(x_BLD.flatten(0, 1), (0, 0, 0, len(batch.reward) - 1600))
        states_BLS = encoder(embed(x_ND), batch)[:1600].unflatten(0, (16, 100))
        guess_B = network[2](states_BLS[:, -1])[:, 0]
        optimizer.zero_grad()
        functional.softplus(-guess_B * bit_B).mean().backward()
        optimizer.step()
        power_iteration(sigma_layers(encoder))
        correct.append((guess_B * bit_B > 0).float().mean().item())
