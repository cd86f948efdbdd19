"""A ring in blocks of slots holds what a ring in one block holds."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from yamame.nets import kv_cache
from yamame.nets.kv_cache import KVCache

LAYERS, HEADS, WIDTH = 2, 2, 4


@pytest.fixture
def cache_in_blocks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., KVCache]:
    """Make caches whose rings are in blocks of three slots, or in one block."""

    def make(*, num_envs: int, slots: int, blocks: bool) -> KVCache:
        monkeypatch.setattr(kv_cache, "_LARGE_RING_BYTES", 0 if blocks else 2**30)
        monkeypatch.setattr(kv_cache, "_BLOCK_SLOTS", 3)
        like = torch.zeros((), dtype=torch.float64)
        return KVCache(layers=LAYERS, num_envs=num_envs, heads=HEADS, slots=slots, width=WIDTH, like=like)

    return make


def attended(cache: KVCache, generator: torch.Generator) -> Float[Tensor, "layers E H F"]:
    """Attend with random queries, keys and values in every layer."""
    num_envs = cache.state_dict()["key"].shape[1]
    shape = (LAYERS, 3, num_envs, HEADS, WIDTH)
    qkv = torch.randn(shape, generator=generator, dtype=torch.float64)
    return torch.stack([cache.attend(layer, *qkv[layer]) for layer in range(LAYERS)])


def by_definition(steps: list[tuple[int, Float[Tensor, "3 H F"]]], slots: int) -> Float[Tensor, "H F"]:
    """Attention of the last of `steps` to the last `slots` timesteps of its trial."""
    start = max(index for index, (time, _) in enumerate(steps) if time == 0)
    query_HF, key_THF, value_THF = (
        steps[-1][1][0],
        torch.stack([qkv[1] for _, qkv in steps[start:]])[-slots:],
        torch.stack([qkv[2] for _, qkv in steps[start:]])[-slots:],
    )
    score_HT = torch.einsum("hf,thf->ht", query_HF, key_THF) * WIDTH**-0.5
    return torch.einsum("ht,thf->hf", score_HT.softmax(-1), value_THF)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("slots", [1, 7, 9, 30])
@pytest.mark.parametrize("trials", [(15, 15), (5, 13)], ids=["same time", "different times"])
def test_attention_is_to_the_last_slots_of_a_trial(
    cache_in_blocks: Callable[..., KVCache], *, blocks: bool, on_device: bool, slots: int, trials: tuple[int, int]
) -> None:
    cache = cache_in_blocks(num_envs=2, slots=slots, blocks=blocks)
    generator = torch.Generator().manual_seed(0)
    steps: list[list[tuple[int, Tensor]]] = [[], []]
    for step in range(20):
        time_E = step % np.array(trials)
        cache.start_on_device(torch.from_numpy(time_E)) if on_device else cache.start(time_E)
        qkv = torch.randn(3, 2, HEADS, WIDTH, generator=generator, dtype=torch.float64)
        got_EHF = cache.attend(1, *qkv)
        for env in range(2):
            steps[env].append((int(time_E[env]), qkv[:, env]))
            torch.testing.assert_close(got_EHF[env], by_definition(steps[env], slots), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("saved", "loaded"), [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("num_steps", [1, 6, 13])
def test_a_saved_ring_continues_in_blocks_or_not(
    cache_in_blocks: Callable[..., KVCache], *, saved: bool, loaded: bool, num_steps: int
) -> None:
    """So that checkpoints do not depend on the number of environments, nor on the machine."""
    first, second = (cache_in_blocks(num_envs=2, slots=10, blocks=blocks) for blocks in (saved, loaded))
    generator = torch.Generator().manual_seed(0)
    for time in range(num_steps):
        first.start(np.array([time, time]))
        attended(first, generator)
    state = first.state_dict()
    assert state["key"].shape == (LAYERS, 2, HEADS, min(num_steps, 10), WIDTH)
    second.load_state_dict(state)
    other_generator = torch.Generator()
    other_generator.set_state(generator.get_state())
    for time in range(num_steps, num_steps + 12):
        first.start(np.array([time, time]))
        second.start(np.array([time, time]))
        torch.testing.assert_close(attended(second, other_generator), attended(first, generator), rtol=0, atol=1e-12)


def test_rings_are_in_blocks_where_they_exceed_the_caches_of_a_cpu() -> None:
    def num_blocks(**sizes: int) -> int:
        sizes = {"num_envs": 24, "heads": 8, "slots": 129, "width": 32, "layers": 1} | sizes
        return KVCache(**sizes, like=torch.zeros(())).num_blocks

    assert num_blocks() == 1
    assert num_blocks(num_envs=512) == 4
    assert num_blocks(num_envs=512, max_blocks=1) == 1
    assert num_blocks(num_envs=24, slots=3001) == 16
