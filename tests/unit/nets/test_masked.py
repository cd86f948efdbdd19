import torch

from yamame.nets.ops import masked_mean


def test_mean_over_the_mask() -> None:
    value = torch.tensor([[1.0, 10.0], [torch.nan, torch.inf], [3.0, 30.0], [-torch.inf, torch.nan]])
    mask = torch.tensor([True, False, True, False])
    assert masked_mean(value, mask).tolist() == [2.0, 20.0]
    assert masked_mean(value[:, 0], mask).item() == 2.0


def test_nothing_kept_is_zero() -> None:
    assert masked_mean(torch.full((3,), torch.nan), torch.zeros(3, dtype=torch.bool)).item() == 0.0


def test_gradient_is_shared_by_what_is_kept() -> None:
    value = torch.tensor([1.0, torch.inf, 3.0], requires_grad=True)
    masked_mean(value, torch.tensor([True, False, True])).backward()
    assert value.grad is not None and value.grad.tolist() == [0.5, 0.0, 0.5]
