"""Attention to sinks and to a window, against loops; and trials far longer than those of training."""

import numpy as np
import pytest
import torch
from tiny_agents import double_batch, random_windows, shake
from torch import Tensor

from yamame.errors import UserError
from yamame.nets.positions import PositionEmbedding
from yamame.nets.sequence import windowed
from yamame.nets.sequence.windowed import WindowedTransformer, WindowedTransformerConfig, sink_attention

INPUTS = 5


def encoder_with(
    *, window: int, num_sinks: int, attention_window: int = 1000, num_layers: int = 2
) -> WindowedTransformer:
    torch.manual_seed(0)
    config = WindowedTransformerConfig(
        d_model=8, d_ff=12, num_heads=2, num_layers=num_layers, window=window, num_sinks=num_sinks
    )
    encoder = config.build(input_size=INPUTS, attention_window=attention_window, max_timestep=9).double().eval()
    shake(encoder)
    return encoder


def attention_by_loops(
    query: Tensor, sink_query: Tensor, key: Tensor, value: Tensor, num_sinks: int, window: int
) -> Tensor:
    out = torch.zeros_like(query)
    rows, length, heads, width = query.shape
    for row in range(rows):
        for n in range(length):
            for head in range(heads):
                seen = [m for m in range(n + 1) if m < num_sinks or n - m < window]
                scores = [
                    (sink_query if m < num_sinks else query)[row, n, head] @ key[row, m, head] / width**0.5
                    for m in seen
                ]
                weight = torch.stack(scores).softmax(0)
                out[row, n, head] = weight @ value[row, seen, head]
    return out


@pytest.mark.parametrize("chunk", [3, 5, 128])
@pytest.mark.parametrize(("num_sinks", "window"), [(0, 1), (0, 4), (1, 1), (2, 3), (7, 2), (3, 50)])
@pytest.mark.parametrize("length", [1, 2, 6, 13])
def test_attention_is_that_of_loops(
    chunk: int, num_sinks: int, window: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windowed, "_CHUNK", chunk)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, length, 2, 4, generator=generator, dtype=torch.float64) for _ in range(4)]
    found = sink_attention(*inputs, num_sinks=num_sinks, window=window)
    torch.testing.assert_close(found, attention_by_loops(*inputs, num_sinks, window), rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_state_depends_on_sinks_and_window_alone() -> None:
    """One layer: every timestep in between can change without effect."""
    encoder = encoder_with(window=4, num_sinks=2, num_layers=1)
    batch = double_batch(random_windows(0, [19]))
    x_ND = torch.randn(20, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    last_S = encoder(x_ND, batch)[19]
    matters = []
    for changed in range(20):
        other_ND = x_ND.clone()
        other_ND[changed] += 1.0
        if not torch.equal(encoder(other_ND, batch)[19], last_S):
            matters.append(changed)
    assert matters == [0, 1, 16, 17, 18, 19]


@torch.no_grad()
@pytest.mark.slow
def test_no_distance_is_longer_than_those_of_training() -> None:
    """Inputs with a period: once the window holds them alone, the states have the same period, for ever.

    Without the cap, distances to the sinks would grow, and the states would change with time.
    """
    encoder = encoder_with(window=6, num_sinks=2)
    generator = torch.Generator().manual_seed(0)
    start_SD, period_PD = (torch.randn(n, INPUTS, generator=generator, dtype=torch.float64) for n in (2, 3))
    memory, seen = encoder.initial_state(1), {}
    for time in range(3002):
        x_D = start_SD[time] if time < 2 else period_PD[(time - 2) % 3]
        state_1S = encoder.step(x_D[None], np.array([time]), memory)
        if time in (29, 299, 2999):
            seen[time] = state_1S
    torch.testing.assert_close(seen[299], seen[29], rtol=0, atol=1e-12)
    torch.testing.assert_close(seen[2999], seen[29], rtol=0, atol=1e-9)


@torch.no_grad()
def test_a_sink_that_left_the_window_is_as_far_away_as_the_cache_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_with(window=6, num_sinks=2, num_layers=1)
    turned: list[Tensor] = []

    def recorded(embedding: PositionEmbedding, time_N: Tensor, dtype: torch.dtype) -> Tensor | None:
        turned.append(time_N)
        return rotation(embedding, time_N, dtype)

    rotation = PositionEmbedding.rotation
    monkeypatch.setattr(PositionEmbedding, "rotation", recorded)
    batch = double_batch(random_windows(0, [19]))
    encoder(torch.zeros(20, INPUTS, dtype=torch.float64), batch)
    assert turned[0].tolist() == list(range(20))
    assert turned[1].tolist() == [*range(8), *[7] * 12]


@pytest.mark.parametrize(
    ("context", "window", "num_sinks"), [(1000, 128, 4), (132, 128, 4), (100, 96, 4), (5, 3, 2), (1, 1, 0)]
)
def test_sinks_and_window_fit_into_the_context(context: int, window: int, num_sinks: int) -> None:
    """Otherwise no training window would reach beyond its own sinks."""
    encoder = encoder_with(window=128, num_sinks=4, attention_window=context)
    assert (encoder.window, encoder.num_sinks) == (window, num_sinks)
    assert encoder.initial_state(3).key.shape == (2, 3, 2, window + num_sinks, 4)


@pytest.mark.parametrize("fields", [{"window": 0}, {"num_sinks": -1}, {"d_model": 12, "num_heads": 4}])
def test_impossible_settings_are_refused(fields: dict[str, int]) -> None:
    with pytest.raises(UserError):
        WindowedTransformerConfig(**fields)


@torch.no_grad()
def test_short_windows_are_plain_causal_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a batch with a longer window the same ones are attended to by sinks and window, with the same states."""
    encoder = encoder_with(window=6, num_sinks=2)
    windows = random_windows(0, [4, 7, 7, 11])
    x_ND = torch.randn(33, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with_long_ND = encoder(x_ND, double_batch(windows))
    monkeypatch.setattr(windowed, "sink_attention", None)
    torch.testing.assert_close(encoder(x_ND[:21], double_batch(windows[:3])), with_long_ND[:21], rtol=0, atol=1e-12)
