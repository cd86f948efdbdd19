import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from yamame.nets.layouts import MAX_GROUP_PADDING, GroupedLayout, PaddedLayout

LENGTHS = [(3, 1, 4), (4, 4), (1,), (2, 4), (4, 2)]


def layout_of(lengths: tuple[int, ...] | list[int], extra: int, padding: int) -> tuple[PaddedLayout, Tensor]:
    segment = [b for b, length in enumerate(lengths) for _ in range(length)] + [len(lengths)] * extra
    position = [t for length in lengths for t in range(length)] + [0] * extra
    segment_N = torch.tensor(segment)
    length = max(lengths) + padding
    layout = PaddedLayout.from_segments(
        segment_N, torch.tensor(position), len(lengths), length, all_full=all(own == length for own in lengths)
    )
    return layout, segment_N < len(lengths)


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5), extra=st.integers(0, 9), padding=st.integers(0, 3))
def test_tokens_are_padded_into_rows_and_unpadded(lengths: list[int], extra: int, padding: int) -> None:
    layout, real_N = layout_of(lengths, extra, padding)
    x_ND = torch.randn(len(real_N), 2)
    rows_BLD = layout.pad(x_ND)
    assert rows_BLD.shape == (len(lengths), max(lengths) + padding, 2)
    start = 0
    for row, length in enumerate(lengths):
        assert torch.equal(rows_BLD[row, :length], x_ND[start : start + length])
        start += length
    assert torch.equal(layout.unpad(rows_BLD)[real_N], x_ND[real_N])


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(("extra", "padding"), [(0, 0), (2, 0), (0, 2), (3, 1)])
def test_gradients_are_autograds_own(lengths: tuple[int, ...], extra: int, padding: int) -> None:
    """Through both gathers and something in between that reads earlier timesteps of rows, against plain indexing."""
    layout, real_N = layout_of(lengths, extra, padding)
    generator = torch.Generator().manual_seed(0)
    x_ND = torch.randn(len(real_N), 3, generator=generator, dtype=torch.float64, requires_grad=True)
    weight_ND = torch.randn(len(real_N), 3, generator=generator, dtype=torch.float64)

    def ours(x_ND: Tensor) -> Tensor:
        rows_BLD = layout.pad(x_ND)
        return (layout.unpad(rows_BLD.cumsum(dim=1).sin() * rows_BLD) * weight_ND)[real_N]

    def plain(x_ND: Tensor) -> Tensor:
        parts = x_ND[real_N].split(list(lengths))
        return torch.cat([part.cumsum(dim=0).sin() * part for part in parts]) * weight_ND[real_N]

    torch.testing.assert_close(ours(x_ND), plain(x_ND), rtol=0, atol=1e-12)
    (gradient,) = torch.autograd.grad(ours(x_ND).sum(), x_ND)
    (expected,) = torch.autograd.grad(plain(x_ND).sum(), x_ND)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)
    assert not gradient[~real_N].any()
    assert torch.autograd.gradcheck(ours, (x_ND,))


@pytest.mark.parametrize("lengths", LENGTHS)
def test_each_gather_alone_passes_gradcheck(lengths: tuple[int, ...]) -> None:
    """Where results on padding are masked, as every use of them does."""
    layout, real_N = layout_of(lengths, extra=2, padding=1)
    slots = layout.num_rows * layout.length
    real_slot_BL = torch.arange(layout.length) < torch.tensor(lengths)[:, None]
    x_ND = torch.randn(len(real_N), 2, dtype=torch.float64, requires_grad=True)
    rows_BLD = torch.randn(slots, 2, dtype=torch.float64).view(layout.num_rows, layout.length, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: layout.pad(x)[real_slot_BL], (x_ND,))
    assert torch.autograd.gradcheck(lambda rows: layout.unpad(rows)[real_N], (rows_BLD,))


def test_full_rows_are_not_copied() -> None:
    layout, _ = layout_of((3, 3), extra=0, padding=0)
    x_ND = torch.randn(6, 2)
    assert layout.pad(x_ND).data_ptr() == layout.unpad(x_ND.view(2, 3, 2)).data_ptr() == x_ND.data_ptr()
    filled_ND = torch.randn(8, 2)
    assert layout_of((3, 3), extra=2, padding=0)[0].pad(filled_ND).data_ptr() == filled_ND.data_ptr()


@pytest.mark.parametrize("extra", [0, 2])
def test_full_rows_are_what_rows_of_any_length_would_be(extra: int) -> None:
    layout, real_N = layout_of((3, 3), extra=extra, padding=0)
    segment_N, position_N = torch.arange(6 + extra) // 3, torch.arange(6 + extra) % 3
    general = PaddedLayout.from_segments(segment_N, position_N, 2, 3, all_full=False)
    x_ND = torch.randn(6 + extra, 2)
    assert torch.equal(layout.pad(x_ND), general.pad(x_ND))
    rows_BLD = torch.randn(2, 3, 2)
    assert torch.equal(layout.unpad(rows_BLD)[real_N], general.unpad(rows_BLD)[real_N])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(lengths=st.lists(st.integers(0, 90), min_size=1, max_size=12).filter(any), extra=st.integers(0, 9))
def test_groups_hold_every_token_once_and_little_padding(lengths: list[int], extra: int) -> None:
    num_tokens = sum(lengths) + extra
    layout = GroupedLayout.from_lengths(lengths, num_tokens)
    x_ND = torch.randn(num_tokens, 2)
    slots = layout.pad(x_ND)
    assert sum(rows for rows, _ in layout.groups) == sum(length > 0 for length in lengths)
    assert len(slots) == sum(rows * length for rows, length in layout.groups)
    assert len(slots) <= sum(lengths) + MAX_GROUP_PADDING * len(layout.groups)
    unpadded = layout.unpad(slots)
    assert len(unpadded) == num_tokens and unpadded.isfinite().all()
    assert torch.equal(unpadded[: sum(lengths)], x_ND[: sum(lengths)])
    found = {tuple(row[:length].flatten().tolist()) for row in rows_of(layout, slots) for length in lengths}
    for window in x_ND[: sum(lengths)].split(lengths):
        assert not len(window) or tuple(window.flatten().tolist()) in found


def rows_of(layout: GroupedLayout, slots_SD: Tensor) -> list[Tensor]:
    sizes = [rows * length for rows, length in layout.groups]
    groups = zip(layout.groups, slots_SD.split(sizes), strict=True)
    return [row for (rows, length), group in groups for row in group.view(rows, length, -1)]


def test_windows_of_equal_length_stay_where_they_are() -> None:
    x_ND = torch.randn(12, 2)
    for lengths in ([4, 4, 4], [1, 5, 5], [2, 4, 4]):
        slots = GroupedLayout.from_lengths(lengths, 12).pad(x_ND)
        assert (slots.data_ptr() == x_ND.data_ptr()) == (lengths == [4, 4, 4])
    assert GroupedLayout.from_lengths([5, 5], 12).pad(x_ND).data_ptr() == x_ND.data_ptr()
    assert GroupedLayout.from_lengths([5, 5], 12).groups == ((2, 5),)


@pytest.mark.parametrize("lengths", [(3, 1, 4), (4, 4), (2, 0, 80, 5)])
@pytest.mark.parametrize("extra", [0, 3])
def test_gradients_through_groups_are_autograds_own(lengths: tuple[int, ...], extra: int) -> None:
    num_tokens = sum(lengths) + extra
    layout = GroupedLayout.from_lengths(lengths, num_tokens)
    generator = torch.Generator().manual_seed(0)
    x_ND = torch.randn(num_tokens, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    weight_ND = torch.randn(num_tokens, 3, generator=generator, dtype=torch.float64)
    rows = [row.cumsum(dim=0).sin() * row for row in rows_of(layout, layout.pad(x_ND))]
    parts = x_ND[: sum(lengths)].split(lengths)
    plain = torch.cat([part.cumsum(dim=0).sin() * part for part in parts])
    ours = layout.unpad(torch.cat(rows))
    torch.testing.assert_close(ours[: sum(lengths)], plain, rtol=0, atol=1e-12)
    outputs = (ours * (torch.arange(num_tokens) < sum(lengths))[:, None], plain)
    gradient, expected = (torch.autograd.grad((out * weight_ND[: len(out)]).sum(), x_ND)[0] for out in outputs)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)
    assert not gradient[sum(lengths) :].any()
