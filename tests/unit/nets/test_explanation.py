"""Where tokens looked: weights that are weights, causal, and those by which the layer's own output comes about."""

import numpy as np
import pytest
import torch
from tiny_agents import double_batch, random_windows, shake
from torch import Tensor

from yamame.nets import introspection as explanation
from yamame.nets.attention import attend
from yamame.nets.introspection import PROBE_POINTS, SupportsExplain, attend_with_weights
from yamame.nets.sequence.feedforward import FeedForwardConfig
from yamame.nets.sequence.gru import GRUConfig
from yamame.nets.sequence.transformer import Transformer, TransformerConfig

HEADS, WIDTH, LENGTH = 2, 4, 300
every_memory = pytest.mark.parametrize("attention_window", [1, 5, 150, 1000])


def traced(attention_window: int, keep: int = LENGTH) -> tuple[list[Tensor], Tensor, np.ndarray, np.ndarray]:
    """Queries, keys and values of one window, and what `attend_with_weights` says of them."""
    generator = torch.Generator().manual_seed(0)
    inputs = [3 * torch.randn(LENGTH, HEADS, WIDTH, generator=generator, dtype=torch.float64) for _ in range(3)]
    return inputs, *attend_with_weights(*inputs, attention_window=attention_window, keep=keep)


@every_memory
def test_the_weights_are_those_of_the_layers_own_output(attention_window: int) -> None:
    inputs, found, weight_HTS, key_HTS = traced(attention_window)
    batch = double_batch(random_windows(0, [LENGTH - 1]))
    torch.testing.assert_close(found, attend(torch.stack(inputs, 1), batch, attention_window), rtol=0, atol=1e-12)
    value = inputs[2].numpy()
    for head in range(HEADS):
        by_weights = np.einsum("ts,tsf->tf", weight_HTS[head], value[key_HTS[head], head])
        np.testing.assert_allclose(by_weights, found[:, head], atol=1e-5)


@every_memory
def test_weights_sum_to_one_and_see_neither_the_future_nor_what_is_forgotten(attention_window: int) -> None:
    _, _, weight_HTS, key_HTS = traced(attention_window)
    np.testing.assert_allclose(weight_HTS.sum(2), 1.0, atol=1e-5)
    distance = np.broadcast_to(np.arange(LENGTH)[None, :, None], key_HTS.shape) - key_HTS
    looked = weight_HTS > 0
    assert (distance[looked] >= 0).all() and (distance[looked] < attention_window).all()
    assert looked[:, -1].sum() == HEADS * min(attention_window, LENGTH)


def test_the_heaviest_are_kept() -> None:
    _, _, weight_HTS, key_HTS = traced(1000)
    _, _, kept_HTS, kept_key_HTS = traced(1000, keep=7)
    assert kept_HTS.shape == (HEADS, LENGTH, 7)
    np.testing.assert_array_equal(kept_HTS, weight_HTS[:, :, :7])
    assert (np.diff(weight_HTS, axis=2) <= 0).all()
    np.testing.assert_array_equal(kept_key_HTS[:, 10:], key_HTS[:, 10:, :7])


@torch.no_grad()
@pytest.mark.parametrize(("token_shift", "num_running_maxima"), [(False, 0), (True, 5)])
def test_explaining_is_the_forward_and_matrices_are_its_weights(token_shift: bool, num_running_maxima: int) -> None:
    config = TransformerConfig(
        d_model=16,
        num_layers=2,
        num_heads=2,
        d_ff=32,
        position_embedding="sinusoidal_and_rotary",
        token_shift=token_shift,
        num_running_maxima=num_running_maxima,
    )
    encoder = config.build(input_size=6, attention_window=9, max_timestep=40)
    assert isinstance(encoder, Transformer)
    shake(encoder)
    encoder.double().eval()
    batch = double_batch(random_windows(0, [24]))
    x_ND = torch.randn(25, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    trace = encoder.explain(x_ND, batch, keep=25)
    torch.testing.assert_close(trace.state_TD, encoder(x_ND, batch), rtol=0, atol=1e-12)
    rows = [trace.attention.for_query(token) for token in range(25)]
    dense = np.stack([np.pad(row, ((0, 0), (0, 0), (0, 25 - row.shape[2]))) for row in rows], axis=2)
    assert dense.shape == (2, 2, 25, 25)
    np.testing.assert_allclose(dense.sum(3), 1.0, atol=1e-5)
    assert not np.triu(dense, 1).any() and not np.tril(dense, -9).any()
    assert trace.attention.for_query(20).shape == (2, 2, 21)
    assert trace.max_abs_LPT.shape == (2, len(PROBE_POINTS), 25)
    entered_ND = encoder.embed(x_ND) + encoder.position(batch.time)
    if encoder.token_shift is not None:
        entered_ND = entered_ND + encoder.token_shift(x_ND, batch.position_ids)
    rotation = encoder.position.rotation(batch.time, entered_ND.dtype)
    query, _, value = encoder.blocks[0].project_qkv(entered_ND, rotation).unbind(1)
    for place, x in ((0, query), (2, value)):
        np.testing.assert_allclose(trace.max_abs_LPT[0, place], x.flatten(1).abs().amax(1), rtol=1e-6)


@torch.no_grad()
def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explanation, "MAX_WEIGHTS", 5000)
    encoder = TransformerConfig(d_model=8, num_layers=2, num_heads=2, d_ff=8).build(
        input_size=6, attention_window=400, max_timestep=400
    )
    for length, kept in ((20, 20), (60, 20), (300, 16)):
        batch = double_batch(random_windows(0, [length - 1]))
        trace = encoder.eval().explain(torch.zeros(length, 6), batch, keep=None)
        assert trace.attention.weight_LHTS.shape == (2, 2, length, kept)


def test_models_without_attention_have_no_trace() -> None:
    for config in (GRUConfig(d_model=8), FeedForwardConfig(d_model=8, num_layers=1)):
        assert not isinstance(config.build(input_size=4, attention_window=5, max_timestep=9), SupportsExplain)
