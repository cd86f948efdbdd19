import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_agents import random_windows
from torch import Tensor

from yamame.data.batch import Batch, pack
from yamame.nets.attention import (
    AttentionBackend,
    attend,
    attend_flash,
    attend_in_groups,
    attend_padded,
    matmul_attention,
    sdpa_attention,
    select_backend,
    sliding_window_mask,
)
from yamame.nets.layouts import GroupedLayout

HEADS, WIDTH = 2, 8
BACKENDS: list[AttentionBackend] = [attend, attend_in_groups, attend_padded]
every_backend = pytest.mark.parametrize("attend", BACKENDS)


def batch_of(tokens: tuple[int, ...] | list[int], token_multiple: int = 8, row_multiple: int = 1) -> Batch:
    """Windows of so many tokens each."""
    windows = random_windows(0, [length - 1 for length in tokens])
    return pack(windows, pad_tokens_to_multiple_of=token_multiple, pad_seqlen_to_multiple_of=row_multiple)


def random_inputs(batch: Batch, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (len(batch.loss_mask), HEADS, WIDTH)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for _ in range(3)]


def by_hand(q: Tensor, k: Tensor, v: Tensor, batch: Batch, attention_window: int) -> Tensor:
    """Softmax of q k / sqrt(F) over all pairs of tokens of which the first may see the second; zero on padding."""
    token = torch.arange(len(q))
    distance = token[:, None] - token
    seen = (batch.segment_ids[:, None] == batch.segment_ids) & (distance >= 0) & (distance < attention_window)
    score = torch.einsum("nhf,mhf->hnm", q, k) / math.sqrt(WIDTH)
    weight = score.masked_fill(~seen, -math.inf).softmax(dim=2)
    return torch.einsum("hnm,mhf->nhf", weight, v) * batch.token_mask[:, None, None]


def joint_by_hand(qkv: Tensor, batch: Batch, attention_window: int) -> Tensor:
    return by_hand(*qkv.unbind(1), batch, attention_window)


def values_and_gradients(
    attend: Callable[..., Tensor], inputs: list[Tensor], batch: Batch, memory: int
) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    out = attend(torch.stack(leaves, dim=1), batch, memory)
    direction = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    real = batch.token_mask[:, None, None].to(out.device)
    out = torch.where(real, out, 0.0)
    return [out, *torch.autograd.grad((out * direction.to(out)).sum(), leaves)]


def check(attend: Callable[..., Tensor], batch: Batch, memory: int, dtype: torch.dtype, tolerance: float) -> None:
    inputs = random_inputs(batch, dtype)
    expected = values_and_gradients(joint_by_hand, [x.double() for x in inputs], batch, memory)
    for got, target in zip(values_and_gradients(attend, inputs, batch, memory), expected, strict=True):
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), target, rtol=0, atol=tolerance)


@every_backend
@pytest.mark.parametrize("attention_window", [1, 3, 7, 20])
@pytest.mark.parametrize("row_multiple", [1, 8])
def test_each_token_averages_what_it_may_remember(
    attend: AttentionBackend, attention_window: int, row_multiple: int
) -> None:
    check(attend, batch_of((4, 7, 1), row_multiple=row_multiple), attention_window, torch.float64, 1e-12)


@every_backend
@pytest.mark.parametrize("token_multiple", [1, 8])
def test_windows_of_equal_length(attend: AttentionBackend, token_multiple: int) -> None:
    batch = batch_of((5, 5, 5), token_multiple)
    assert batch.equal_lengths
    check(attend, batch, 5, torch.float64, 1e-12)


@every_backend
@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    tokens=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    token_multiple=st.sampled_from([1, 8]),
    row_multiple=st.sampled_from([1, 4]),
    attention_window=st.integers(1, 10),
)
def test_any_lengths(
    attend: AttentionBackend, tokens: list[int], token_multiple: int, row_multiple: int, attention_window: int
) -> None:
    check(attend, batch_of(tokens, token_multiple, row_multiple), attention_window, torch.float64, 1e-12)


@every_backend
@settings(max_examples=20, deadline=None, derandomize=True)
@given(tokens=st.lists(st.integers(1, 6), min_size=2, max_size=4), data=st.data())
def test_nothing_leaks_between_windows(attend: AttentionBackend, tokens: list[int], data: st.DataObject) -> None:
    """What one window or the padding holds, huge as it may be, changes no other window, to the bit."""
    batch = batch_of(tokens)
    inputs = random_inputs(batch)
    changed = data.draw(st.integers(0, len(tokens)))
    elsewhere = batch.token_mask & (batch.segment_ids != changed)
    disturbed = [torch.where(elsewhere[:, None, None], x, 1e6) for x in inputs]
    before, after = attend(torch.stack(inputs, 1), batch, 10), attend(torch.stack(disturbed, 1), batch, 10)
    assert torch.equal(before[elsewhere], after[elsewhere])
    assert after.isfinite().all()


@pytest.mark.parametrize("token_multiple", [1, 64])
def test_windows_of_any_lengths_in_groups(token_multiple: int) -> None:
    """Several groups, rows of different lengths in one, in an order that is not that of the batch."""
    lengths = (70, 3, 150, 22, 68, 1, 150, 9, 30)
    batch = batch_of(lengths, token_multiple)
    assert len(GroupedLayout.from_lengths(lengths, len(batch.loss_mask)).groups) == 3
    check(attend_in_groups, batch, 100, torch.float64, 1e-12)


@every_backend
def test_windows_without_tokens_change_nothing(attend: AttentionBackend) -> None:
    """They round up the number of windows, so that batches share CUDA graphs."""
    lengths = [length - 1 for length in (4, 7, 1)]
    plain, rounded = (
        pack(random_windows(0, lengths), pad_tokens_to_multiple_of=16, pad_windows_to_multiple_of=multiple)
        for multiple in (1, 8)
    )
    assert (plain.num_segments, rounded.num_segments) == (3, 8)
    assert torch.equal(plain.token_mask, rounded.token_mask)
    check(attend, rounded, 5, torch.float64, 1e-12)


@every_backend
def test_padding_gets_no_gradient(attend: AttentionBackend) -> None:
    batch = batch_of((3, 2), token_multiple=16)
    for gradient in values_and_gradients(attend, random_inputs(batch), batch, 5)[1:]:
        assert not gradient[~batch.token_mask].any()


@pytest.mark.parametrize("length", [5, 128, 200, 390, 500])
@pytest.mark.parametrize("attention_window", [3, 150, 1000])
@pytest.mark.parametrize("causal", [sdpa_attention, matmul_attention])
def test_rows_in_chunks(causal: Callable[..., Tensor], length: int, attention_window: int) -> None:
    """Lengths on both sides of where rows are processed in chunks, memory shorter and longer than a chunk."""
    batch = batch_of((length,), token_multiple=1)
    q, k, v = random_inputs(batch)
    out = causal(q[None], k[None], v[None], attention_window)[0]
    torch.testing.assert_close(out, by_hand(q, k, v, batch, attention_window), rtol=0, atol=1e-12)


@pytest.mark.parametrize("tokens", [(40, 3, 17), (20, 20), (300, 5)])
def test_half_precision_is_close(tokens: tuple[int, ...]) -> None:
    check(attend, batch_of(tokens), 1000, torch.bfloat16, 0.05)


def test_half_precision_of_long_windows_is_close(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yamame.nets.attention.MAX_MATMUL_SEQLEN", 10)
    check(attend, batch_of((40, 3, 17)), 1000, torch.bfloat16, 0.05)


def test_autocast_leaves_the_type_alone() -> None:
    batch = batch_of((40, 3))
    inputs = random_inputs(batch, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = attend(torch.stack(inputs, 1), batch, 40)
    assert torch.equal(out, attend(torch.stack(inputs, 1), batch, 40))


def test_the_band() -> None:
    assert sliding_window_mask(4, 4, 2, torch.device("cpu")).int().tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 1],
    ]
    assert sliding_window_mask(2, 4, 3, torch.device("cpu")).int().tolist() == [[1, 1, 1, 0], [0, 1, 1, 1]]


@pytest.mark.parametrize(
    ("device", "dtype", "head_width", "expected"),
    [
        ("cpu", torch.float32, 32, attend_in_groups),
        ("cpu", torch.bfloat16, 32, attend_in_groups),
        ("cuda", torch.float32, 32, attend_padded),
        ("cuda", torch.bfloat16, 32, attend_flash),
        ("cuda", torch.float16, 16, attend_flash),
        ("cuda", torch.bfloat16, 12, attend_padded),
    ],
)
def test_the_choice(device: str, dtype: torch.dtype, head_width: int, expected: AttentionBackend) -> None:
    assert select_backend(torch.device(device), dtype, head_width) is expected


@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [(40, 3, 17), (20, 20), (300, 5)])
@pytest.mark.parametrize("token_multiple", [1, 64])
@pytest.mark.parametrize("attention_window", [10, 1000])
@pytest.mark.parametrize(
    ("attend", "dtype", "tolerance"), [(attend_flash, torch.bfloat16, 0.05), (attend_padded, torch.float32, 1e-4)]
)
def test_on_a_gpu(
    attend: AttentionBackend,
    dtype: torch.dtype,
    tolerance: float,
    tokens: tuple[int, ...],
    token_multiple: int,
    attention_window: int,
) -> None:
    batch = batch_of(tokens, token_multiple)
    inputs = random_inputs(batch, dtype)
    expected = values_and_gradients(joint_by_hand, [x.double() for x in inputs], batch, attention_window)
    there = batch.to(torch.device("cuda"))
    for got, target in zip(
        values_and_gradients(attend, [x.cuda() for x in inputs], there, attention_window), expected, strict=True
    ):
        torch.testing.assert_close(got.cpu().double(), target, rtol=0, atol=tolerance)


@pytest.mark.gpu
def test_padding_is_finite_on_a_gpu() -> None:
    """Even where it is longer than every window."""
    batch = batch_of((3, 2), token_multiple=512).to(torch.device("cuda"))
    assert attend_flash(torch.stack(random_inputs(batch, torch.bfloat16), 1).cuda(), batch, 5).isfinite().all()
