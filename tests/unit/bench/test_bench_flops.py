"""FLOPs by formula are those that PyTorch counts while an update runs."""

import pytest
import torch
from tiny_size import CONTEXT, TINY, tiny_size_agent, tiny_size_batch
from torch.utils.flop_counter import FlopCounterMode

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.data.batch import Batch
from yamame.nets.blocks import InputNormalizer
from yamame.tools.bench.measure import flops_per_update

LENGTHS = (12, 3, 7)
assert TINY.transformer is not None
TRANSFORMER = TINY.transformer


def counted(agent: Agent, batch: Batch) -> int:
    learner = Learner(agent, LearnerConfig(), generator=torch.Generator())
    learner.update(batch)  # the first update measures gradient norms, too
    with FlopCounterMode(display=False) as counter:
        learner.update(batch)
    return counter.get_total_flops()


def test_all_but_attention_is_what_pytorch_counts_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yamame.nets.sequence.transformer.attend", lambda qkv, *_: qkv.sum(1))
    monkeypatch.setattr(InputNormalizer, "update", lambda *_: None)  # sums tokens by products: no part of the network
    agent = tiny_size_agent()
    pairs = sum((length + 1) * (length + 2) // 2 for length in LENGTHS)
    attention = 12 * TRANSFORMER.num_layers * TRANSFORMER.d_model * pairs
    assert counted(agent, tiny_size_batch(LENGTHS)) == flops_per_update(agent, LENGTHS) - attention


def test_attention_is_half_of_what_the_full_square_would_take() -> None:
    """The square counts each pair of tokens twice, but a token and itself once."""
    length, heads, width = CONTEXT, TRANSFORMER.num_heads, TRANSFORMER.d_model // TRANSFORMER.num_heads
    query, key, value = torch.randn(3, 1, heads, length + 1, width, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        ((query @ key.transpose(2, 3)).softmax(-1) @ value).sum().backward()
    agent = tiny_size_agent()
    attention = flops_per_update(agent, [length]) - (length + 1) * flops_per_update(agent, [0])
    itself = 12 * TRANSFORMER.num_layers * TRANSFORMER.d_model  # of the one pair that a token alone makes
    squares = TRANSFORMER.num_layers * counter.get_total_flops()
    assert 2 * (attention + (length + 1) * itself) == squares + (length + 1) * itself


def test_padding_is_not_counted() -> None:
    agent = tiny_size_agent()
    assert flops_per_update(agent, LENGTHS) == flops_per_update(agent, [7, 12, 3])
    assert counted(agent, tiny_size_batch(LENGTHS, token_multiple=64)) > flops_per_update(agent, LENGTHS)


def test_a_gru_has_no_attention_but_its_matrices() -> None:
    agent = tiny_size_agent("gru")
    assert flops_per_update(agent, [8, 8]) == 2 * flops_per_update(agent, [8]) == 18 * flops_per_update(agent, [0])
    inputs, width = TINY.timestep_width, TRANSFORMER.d_model
    recurrence = 3 * width * (inputs + width) + 3 * width * 2 * width
    transformer = tiny_size_agent()
    matrices = inputs * width + 2 * (4 * width**2 + 2 * width * TRANSFORMER.d_ff)
    difference = flops_per_update(agent, [0]) - flops_per_update(transformer, [0]) + 12 * TRANSFORMER.num_layers * width
    assert difference == 6 * (recurrence + width**2 - matrices)
