"""Functions of tensors (masked means, TD targets), whose shapes never depend on values; switches of the compiler and of
autocast; states of generators."""

import sys
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from jaxtyping import Bool, Float, Int64, Shaped
from torch import Tensor
from torch._compile import _disable_dynamo

from yamame.distributed_context import SINGLE_PROCESS, DistributedContext

_P = ParamSpec("_P")
_T = TypeVar("_T")


def uncompiled(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a function that a compiler leaves out of its graphs.

    Like `torch.compiler.disable`, but it does not import the compiler: that takes longer than all the rest that a
    policy or an update imports.
    """
    disabled = _disable_dynamo(function)

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return disabled(*args, **kwargs) if "torch._dynamo" in sys.modules else function(*args, **kwargs)

    return call


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Return a context without autocast. Where there is none, it costs nothing."""
    enabled = device.type != "meta" and torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if enabled else nullcontext()


def masked_mean(value: Float[Tensor, "N ..."], mask_N: Bool[Tensor, "N"]) -> Float[Tensor, "..."]:
    """Return the mean over the first dimension where the mask is True; 0 if it never is. Masked entries may be NaN."""
    return _masked_sum(value, mask_N) / mask_N.sum().clamp(min=1)


def masked_moments(
    value: Float[Tensor, "N ..."], mask_N: Bool[Tensor, "N"], distributed: DistributedContext = SINGLE_PROCESS
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."], Float[Tensor, ""]]:
    """Return the masked means of the values and of their squares and the number of entries, over all ranks."""
    mean, square = _masked_sum(value, mask_N), _masked_sum(value.square(), mask_N)
    count = mask_N.sum().to(value.dtype)
    distributed.all_reduce_sum_(mean, square, count)
    return mean / count.clamp(min=1), square / count.clamp(min=1), count


def _masked_sum(value: Float[Tensor, "N ..."], mask_N: Bool[Tensor, "N"]) -> Float[Tensor, "..."]:
    mask = mask_N if value.dim() == 1 else mask_N.reshape(-1, *[1] * (value.dim() - 1))
    return torch.where(mask, value, 0.0).sum(0)


def random_subset(
    q_NKG: Float[Tensor, "N K G *more"], subset: int, generator: torch.Generator
) -> Float[Tensor, "N k G *more"]:
    """Return the values of `subset` of the K critics, sampled without replacement for every token and gamma.

    Further dimensions have the values of the same critics. Paper: appendix A (REDQ). Differs from the authors' code,
    which samples with replacement and so uses one critic twice in a quarter of its targets.
    """
    num_critics = q_NKG.shape[1]
    if subset >= num_critics:
        return q_NKG
    key_NKG = torch.rand(q_NKG.shape[:3], generator=generator, device=q_NKG.device)
    place_NKG = torch.zeros(key_NKG.shape, dtype=torch.int64, device=q_NKG.device)
    for distance in range(1, num_critics):  # a sort of so few keys is several times slower on a GPU
        later_is_less = key_NKG[:, distance:] < key_NKG[:, :-distance]
        place_NKG[:, :-distance] += later_is_less
        place_NKG[:, distance:] += ~later_is_less
    place = place_NKG.reshape(*place_NKG.shape, *[1] * (q_NKG.ndim - 3)).expand_as(q_NKG)
    return torch.empty_like(q_NKG).scatter_(1, place, q_NKG)[:, :subset]


def load_generator_state(generator: torch.Generator, state: Shaped[Tensor, "bytes"]) -> None:
    """Restore a generator. A state of another device type seeds the generator instead."""
    if state.shape == generator.get_state().shape:
        generator.set_state(state)
    else:
        generator.manual_seed(zlib.crc32(state.numpy().tobytes()))


def n_step_target(
    *,
    reward_N: Float[Tensor, "N"],
    terminal_N: Bool[Tensor, "N"],
    valid_N: Bool[Tensor, "N"],
    value_NG: Float[Tensor, "N G"],
    gammas_G: Float[Tensor, "G"],
    n: int,
) -> Float[Tensor, "N G"]:
    """Return y_t = r_t + gamma r_(t+1) + ... + gamma^n V_(t+n), up to a terminal step, for every token and gamma.

    `value_NG[t]` is the value of the state at token t. A window that ends before t + n is bootstrapped from its last
    token. Tokens that are not valid keep their own value.

    A backup over any number of steps is a map y_t = a_t + b_t V[end_t]. Such maps compose, so n steps take about
    log2 n compositions.
    """
    token_N = torch.arange(len(reward_N), device=reward_N.device)
    doubled = (
        torch.where(valid_N, reward_N, 0.0)[:, None].expand_as(value_NG),
        torch.where(valid_N[:, None], torch.where(terminal_N, 0.0, 1.0)[:, None] * gammas_G, 1.0),
        torch.where(valid_N, (token_N + 1).clamp(max=len(token_N) - 1), token_N),
    )
    backup = (torch.zeros_like(value_NG), torch.ones_like(value_NG), token_N)
    while n:
        if n & 1:
            backup = _compose(backup, doubled)
        doubled = _compose(doubled, doubled)
        n >>= 1
    offset_NG, factor_NG, end_N = backup
    return offset_NG + factor_NG * value_NG[end_N]


_Backup = tuple[Float[Tensor, "N G"], Float[Tensor, "N G"], Int64[Tensor, "N"]]


def _compose(first: _Backup, then: _Backup) -> _Backup:
    """Return the backup over the steps of `first` followed by those of `then`."""
    (offset, factor, end), (next_offset, next_factor, next_end) = first, then
    return offset + factor * next_offset[end], factor * next_factor[end], next_end[end]


def trace_target(
    *,
    reward_N: Float[Tensor, "N"],
    terminal_N: Bool[Tensor, "N"],
    valid_N: Bool[Tensor, "N"],
    value_NG: Float[Tensor, "N G"],
    action_value_NG: Float[Tensor, "N G"],
    trace_NG: Float[Tensor, "N G"],
    gammas_G: Float[Tensor, "G"],
    max_seqlen: int,
) -> Float[Tensor, "N G"]:
    """Return y_t = r_t + gamma (V_(t+1) + c_(t+1) (y_(t+1) - Q_(t+1))), up to a terminal step or the window's end.

    Retrace, tree backup and lambda-returns differ in the traces c (Munos et al. 2016). All zero: one-step targets.
    The recursion is a map y_t = a_t + b_t y_(t+1). Such maps compose, so T steps take log2 T compositions.

    Args:
        reward_N: Rewards.
        terminal_N: Transitions after which no value follows.
        valid_N: Tokens with a transition. The others keep their own value.
        value_NG: V, the value of the policy at each token.
        action_value_NG: Q, the value of the action of the data.
        trace_NG: c, for the action of the data.
        gammas_G: Discount factors.
        max_seqlen: Number of tokens of the longest window.
    """
    discount_NG = torch.where(terminal_N, 0.0, 1.0)[:, None] * gammas_G
    trace_NG = torch.where(valid_N[:, None], trace_NG, 0.0)
    factor_NG = discount_NG * _following(trace_NG, 1)
    offset_NG = reward_N[:, None] + discount_NG * _following(value_NG - trace_NG * action_value_NG, 1)
    steps = 1
    while steps < max_seqlen:
        offset_NG = offset_NG + factor_NG * _following(offset_NG, steps)
        factor_NG = factor_NG * _following(factor_NG, steps)
        steps *= 2
    return torch.where(valid_N[:, None], offset_NG, value_NG)


def _following(x_NG: Float[Tensor, "N G"], steps: int) -> Float[Tensor, "N G"]:
    """Return the rows `steps` later; zeros behind the end."""
    return torch.cat([x_NG[steps:], torch.zeros_like(x_NG[:steps])])
