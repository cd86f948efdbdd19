"""Concatenated one-hot vectors of categories of several sizes."""

import pytest
import torch

from yamame.nets.blocks import concat_one_hot


@pytest.mark.parametrize(
    "sizes",
    [(4,), (2, 3), (3, 3, 3), (11, 6, 3) * 4, (2, 3, 2, 3, 2), (1, 1, 5), (2, 2, 3, 2, 2, 3)],
)
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_each_category_has_a_one_in_columns_of_its_own(sizes: tuple[int, ...], rows: int) -> None:
    category_NC = torch.stack([torch.randint(size, (rows,)) for size in sizes], dim=1)

    one_hot_NF = concat_one_hot(category_NC, sizes)

    assert one_hot_NF.shape == (rows, sum(sizes))
    for row, categories in zip(one_hot_NF, category_NC.tolist(), strict=True):
        starts = [sum(sizes[:column]) for column in range(len(sizes))]
        expected = {start + category for start, category in zip(starts, categories, strict=True)}
        assert set(row.nonzero().flatten().tolist()) == expected
        assert row.sum() == len(sizes)


def test_a_grid_has_the_same_columns_as_its_flat_cells() -> None:
    sizes = (3, 2) * 6
    grid_NHWC = torch.stack([torch.randint(3, (5, 2, 3)), torch.randint(2, (5, 2, 3))], dim=-1)

    assert torch.equal(concat_one_hot(grid_NHWC, sizes), concat_one_hot(grid_NHWC.flatten(1), sizes))
