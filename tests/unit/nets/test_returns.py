import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from yamame.nets.ops import n_step_target

DISCOUNTS = torch.tensor([0.0, 0.5, 0.9, 1.0], dtype=torch.float64)


@st.composite
def windows(draw: st.DrawFn) -> tuple[list[int], list[bool]]:
    """Transitions of each window, and a terminal flag of every token (meaningless ones included)."""
    lengths = draw(st.lists(st.integers(0, 7), min_size=1, max_size=4))
    num_tokens = sum(lengths) + len(lengths) + draw(st.integers(0, 3))
    return lengths, draw(st.lists(st.booleans(), min_size=num_tokens, max_size=num_tokens))


@settings(max_examples=150, deadline=None)
@given(windows=windows(), n=st.integers(1, 9), seed=st.integers(0, 10_000))
def test_n_step_targets_are_those_of_the_definition(windows: tuple[list[int], list[bool]], n: int, seed: int) -> None:
    lengths, terminal = windows
    generator = torch.Generator().manual_seed(seed)
    reward_N = torch.randn(len(terminal), generator=generator, dtype=torch.float64)
    value_NG = torch.randn(len(terminal), len(DISCOUNTS), generator=generator, dtype=torch.float64)
    valid_N = torch.zeros(len(terminal), dtype=torch.bool)
    expected_NG = value_NG.clone()
    start = 0
    for length in lengths:
        valid_N[start : start + length] = True
        for t in range(start, start + length):
            expected_NG[t] = by_definition(t, start + length, n, reward_N, terminal, value_NG)
        start += length + 1
    target_NG = n_step_target(
        reward_N=reward_N,
        terminal_N=torch.tensor(terminal),
        valid_N=valid_N,
        value_NG=value_NG,
        gammas_G=DISCOUNTS,
        n=n,
    )
    torch.testing.assert_close(target_NG, expected_NG, rtol=0, atol=1e-12)


def by_definition(
    t: int, last: int, n: int, reward_N: torch.Tensor, terminal: list[bool], value_NG: torch.Tensor
) -> torch.Tensor:
    """sum_i gamma^i r_(t+i), over n steps or up to a terminal one or to the last slot; bootstrapped unless terminal."""
    total_G = torch.zeros(len(DISCOUNTS), dtype=torch.float64)
    for i in range(n):
        if t + i == last:
            return total_G + DISCOUNTS**i * value_NG[t + i]
        total_G = total_G + DISCOUNTS**i * reward_N[t + i]
        if terminal[t + i]:
            return total_G
    return total_G + DISCOUNTS**n * value_NG[t + n]
