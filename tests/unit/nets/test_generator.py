"""Random streams continue from where they were saved."""

import torch

from yamame.nets.ops import load_generator_state


def test_a_random_stream_continues_and_one_of_another_device_restarts_repeatably() -> None:
    saved = torch.Generator().manual_seed(1)
    torch.rand(3, generator=saved)
    same = torch.Generator()
    load_generator_state(same, saved.get_state())
    assert torch.equal(torch.rand(3, generator=same), torch.rand(3, generator=saved))
    of_a_gpu = torch.arange(16, dtype=torch.uint8)
    drawn = []
    for seed in (0, 1):
        other = torch.Generator().manual_seed(seed)
        load_generator_state(other, of_a_gpu)
        drawn.append(torch.rand(3, generator=other))
    assert torch.equal(*drawn)
