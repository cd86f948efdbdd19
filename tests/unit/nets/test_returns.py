import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from yamame.nets.ops import n_step_target, trace_target

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


@settings(max_examples=150, deadline=None)
@given(windows=windows(), seed=st.integers(0, 10_000))
def test_trace_targets_are_those_of_the_recursion(windows: tuple[list[int], list[bool]], seed: int) -> None:
    lengths, terminal = windows
    generator = torch.Generator().manual_seed(seed)
    reward_N = torch.randn(len(terminal), generator=generator, dtype=torch.float64)
    value_NG, action_value_NG = torch.randn(2, len(terminal), len(DISCOUNTS), generator=generator, dtype=torch.float64)
    trace_NG = torch.rand(value_NG.shape, generator=generator, dtype=torch.float64)
    valid_N = torch.zeros(len(terminal), dtype=torch.bool)
    expected_NG = value_NG.clone()
    start = 0
    for length in lengths:
        last = start + length
        valid_N[start:last] = True
        for t in reversed(range(start, last)):
            following_G = value_NG[t + 1]
            if t + 1 < last:
                following_G = following_G + trace_NG[t + 1] * (expected_NG[t + 1] - action_value_NG[t + 1])
            expected_NG[t] = reward_N[t] + (0.0 if terminal[t] else DISCOUNTS * following_G)
        start = last + 1
    target_NG = trace_target(
        reward_N=reward_N,
        terminal_N=torch.tensor(terminal),
        valid_N=valid_N,
        value_NG=value_NG,
        action_value_NG=action_value_NG,
        trace_NG=trace_NG,
        gammas_G=DISCOUNTS,
        max_seqlen=max(lengths) + 1,
    )
    torch.testing.assert_close(target_NG, expected_NG, rtol=0, atol=1e-9)


def test_retrace_evaluates_the_policy_on_data_of_another() -> None:
    """From values of 0, targets of whole windows move to the values of the policy, not of the behavior."""
    generator = torch.Generator().manual_seed(0)
    length, num_windows, num_states, gamma = 8, 20_000, 3, 0.8
    pi, mu = torch.tensor([0.9, 0.1]).double(), torch.tensor([0.4, 0.6]).double()
    reward_SA = torch.tensor([[0.0, 1.0], [2.0, -1.0], [0.5, 0.0]]).double()
    next_SA = torch.tensor([[1, 2], [2, 0], [0, 1]])
    action = (torch.rand(num_windows, length, generator=generator) < mu[1]).long()
    state = torch.zeros(num_windows, length + 1, dtype=torch.long)
    state[:, 0] = torch.randint(num_states, (num_windows,), generator=generator)
    for t in range(length):
        state[:, t + 1] = next_SA[state[:, t], action[:, t]]
    padded = torch.nn.functional.pad(action, (0, 1))
    valid = torch.ones_like(state, dtype=torch.bool)
    valid[:, -1] = False

    q_SA, steps = torch.zeros(num_states, 2, dtype=torch.float64), 0
    while steps < 12:
        target = trace_target(
            reward_N=reward_SA[state, padded].flatten(),
            terminal_N=torch.zeros(state.numel(), dtype=torch.bool),
            valid_N=valid.flatten(),
            value_NG=(q_SA @ pi)[state].reshape(-1, 1),
            action_value_NG=q_SA[state, padded].reshape(-1, 1),
            trace_NG=(pi[padded] / mu[padded]).clamp(max=1.0).reshape(-1, 1),
            gammas_G=torch.tensor([gamma]).double(),
            max_seqlen=length + 1,
        ).view_as(state)
        first = state[:, 0] * 2 + action[:, 0]
        q_SA = torch.stack([target[:, 0][first == each].mean() for each in range(2 * num_states)]).view(num_states, 2)
        steps += 1
    true_SA = torch.zeros_like(q_SA)
    for _ in range(200):
        true_SA = reward_SA + gamma * (true_SA @ pi)[next_SA]
    torch.testing.assert_close(q_SA, true_SA, rtol=0, atol=0.03)
