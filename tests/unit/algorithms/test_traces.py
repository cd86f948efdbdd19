"""Retrace targets: not optimistic when critics are noise, true when they are exact."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from yamame.algorithms.amago.losses.td import TargetValues, TDLoss
from yamame.data.batch import ACTING_LOG_PROB, Batch, Window, pack
from yamame.data.trajectory import Trajectory

STEPS, ACTIONS, CRITICS = 50, 4, 4
GAMMAS = torch.tensor([0.99, 0.5], dtype=torch.float64)
LAMBDAS = [0.0, 0.3, 0.6, 0.9, 1.0]


def batch_of(num_trials: int, reward_T: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> Batch:
    """Trials of a uniformly random policy, the last step terminal."""
    last = np.arange(STEPS) == STEPS - 1
    trajectory = Trajectory(
        reward=reward_T,
        action=np.zeros(STEPS, np.int64),
        terminated=last,
        truncated=np.zeros(STEPS, np.bool_),
        episode_start=np.arange(STEPS + 1) == 0,
        observation={"observation": np.zeros(STEPS + 1, np.int64)},
        horizon=STEPS,
        extras={ACTING_LOG_PROB: np.full(STEPS, -np.log(ACTIONS), np.float32)},
    )
    return pack([Window(trajectory=trajectory, start=0, length=STEPS)] * num_trials)


def target_of(trace_decay: float, batch: Batch, q_NKAG: Tensor, *, pessimistic: bool = True) -> Tensor:
    """Targets `[trial, step, G]` for the uniform policy; the data's actions are drawn from it."""
    generator = torch.Generator().manual_seed(1)
    action_N = torch.randint(ACTIONS, (len(q_NKAG),), generator=generator)
    q_data_NKG = q_NKAG[torch.arange(len(q_NKAG)), :, action_N]
    log_prob_NG = torch.full((len(q_NKAG), len(GAMMAS)), -float(np.log(ACTIONS)), dtype=torch.float64)
    values = TargetValues(q_NKAG.mean(2), q_data_NKG, log_prob_NG)
    loss = TDLoss(reward_scale=1.0, trace_decay=trace_decay)
    target_NG = loss.td_target(batch, values, GAMMAS, generator, pessimistic=pessimistic)
    return target_NG[batch.loss_mask].view(-1, STEPS, len(GAMMAS))


@pytest.mark.parametrize("trace_decay", LAMBDAS)
def test_targets_of_noisy_critics_are_not_optimistic(trace_decay: float) -> None:
    """All true values are 0 and critics are noise: the minimum inside the recursion gave +11 with lambda 1."""
    batch = batch_of(400, np.zeros(STEPS, np.float32))
    noise = torch.randn(
        len(batch.reward), CRITICS, ACTIONS, len(GAMMAS), generator=torch.Generator().manual_seed(0)
    ).double()
    assert target_of(trace_decay, batch, noise)[:, 0].mean(0).max() < 0.0
    mean_G = target_of(trace_decay, batch, noise, pessimistic=False)[:, 0].mean(0)
    assert mean_G.abs().max() < 4 * 5.0 / 400**0.5  # the sum of 50 steps of noise has a deviation below 5


@pytest.mark.parametrize("pessimistic", [True, False])
@pytest.mark.parametrize("trace_decay", LAMBDAS)
def test_targets_of_exact_critics_are_the_true_values(trace_decay: float, pessimistic: bool) -> None:
    """Rewards do not depend on actions, so that every action has the value of its state."""
    reward_T = np.random.default_rng(0).normal(size=STEPS).astype(np.float32)
    value_TG = torch.zeros(STEPS + 1, len(GAMMAS), dtype=torch.float64)
    for t in reversed(range(STEPS)):
        value_TG[t] = float(reward_T[t]) + GAMMAS * value_TG[t + 1]
    batch = batch_of(3, reward_T)
    q_NKAG = torch.zeros(len(batch.reward), CRITICS, ACTIONS, len(GAMMAS), dtype=torch.float64)
    q_NKAG[batch.loss_mask] = value_TG[:-1].repeat(3, 1)[:, None, None].expand(-1, CRITICS, ACTIONS, -1)
    found = target_of(trace_decay, batch, q_NKAG, pessimistic=pessimistic)
    torch.testing.assert_close(found, value_TG[:-1].expand(3, -1, -1), rtol=0, atol=1e-5)


def test_a_window_without_log_probabilities_has_one_step_targets_and_the_others_keep_their_traces() -> None:
    recorded = batch_of(3, np.random.default_rng(0).normal(size=STEPS).astype(np.float32))
    noise = torch.randn(len(recorded.reward), CRITICS, ACTIONS, len(GAMMAS), dtype=torch.float64)
    log_prob_N = torch.where(recorded.segment_ids == 1, torch.nan, recorded.extras[ACTING_LOG_PROB])
    mixed = replace(recorded, extras={ACTING_LOG_PROB: log_prob_N})
    traces, one_step = (target_of(trace_decay, recorded, noise) for trace_decay in (0.6, 0.0))
    found = target_of(0.6, mixed, noise)
    assert found[[0, 2]].equal(traces[[0, 2]])
    torch.testing.assert_close(found[1], one_step[1])
    assert not torch.allclose(traces[1], one_step[1])
