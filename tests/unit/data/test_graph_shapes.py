"""How many CUDA graphs the batches of a run need: lengths of trials like those of three tasks, padded as on a GPU."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from jaxtyping import Int64
from replay_examples import ListStore, numbered

from yamame.data.sampler import ReplayConfig, Sampler
from yamame.nets.compute import shape_key

UPDATES = 600
Lengths = Int64[np.ndarray, "trials"]


def crafter(rng: np.random.Generator) -> Lengths:
    """Trials that end by death at any time, at most 500 steps."""
    return np.minimum(60 + rng.exponential(180.0, 300), 500).astype(np.int64)


def cart_pole(rng: np.random.Generator) -> Lengths:
    """Trials that get longer while the pole is learned to be balanced, from 10 to 200 steps."""
    return np.clip(10 + rng.exponential(np.linspace(10.0, 300.0, 300)), 10, 200).astype(np.int64)


def maze_runner(rng: np.random.Generator) -> Lengths:
    """Half of the trials last 250 steps; the others end when all goals are reached."""
    return np.where(rng.random(300) < 0.5, 250, rng.integers(40, 250, 300))


def fraction_in_graphs(lengths: Lengths, context_length: int, *, cuda_graphs: bool, **settings: int) -> float:
    """Return the fraction of the batches that have one of the 12 most common shapes."""
    config = ReplayConfig(**{"batch_size": 24, "prefetch_batches": 0, **settings})
    store = ListStore([numbered(int(length)) for length in lengths])
    rng = np.random.default_rng(0)
    sampler = Sampler(store, config=config, context_length=context_length, rng=rng, cuda_graphs=cuda_graphs)
    shapes = Counter(shape_key(batch) for batch in sampler.iter_batches(UPDATES))
    return sum(count for _, count in shapes.most_common(12)) / UPDATES


@pytest.mark.parametrize(
    ("lengths", "context_length", "settings"),
    [
        (crafter, 500, {}),
        (cart_pole, 200, {}),
        (cart_pole, 200, {"batch_size": 2, "min_batch_transitions": 256}),
        (maze_runner, 250, {}),
    ],
    ids=["crafter", "cart pole", "cart pole, small batches", "maze runner"],
)
def test_twelve_graphs_serve_nearly_all_updates(lengths: Any, context_length: int, settings: dict[str, int]) -> None:
    sampled = lengths(np.random.default_rng(0))
    assert fraction_in_graphs(sampled, context_length, cuda_graphs=False, **settings) < 0.95
    assert fraction_in_graphs(sampled, context_length, cuda_graphs=True, **settings) >= 0.95


def test_padding_for_graphs_costs_few_tokens() -> None:
    """At most a sixteenth of the largest batch, and no row is longer than the context."""
    config = ReplayConfig(batch_size=24).resolve_padding(128, cuda_graphs=True)
    assert config.pad_tokens_to_multiple_of <= 24 * 129 / 16 + 64
    store = ListStore([numbered(128)])
    sampler = Sampler(store, config=config, context_length=128, rng=np.random.default_rng(0), cuda_graphs=True)
    batch = sampler.sample()
    assert batch.max_seqlen == 129 and batch.equal_lengths


def test_given_multiples_are_kept() -> None:
    config = ReplayConfig(pad_tokens_to_multiple_of=8, pad_seqlen_to_multiple_of=4, pad_windows_to_multiple_of=2)
    assert config.resolve_padding(100, cuda_graphs=True) == config
