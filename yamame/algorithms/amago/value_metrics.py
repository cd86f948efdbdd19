"""Metrics of the values of single gammas."""

import torch

from yamame.algorithms.amago.agent import Agent

_MAX_GAMMAS = 6
"""Maximum number of gammas with metrics of their own."""


def value_metrics_by_gamma(agent: Agent, reward_scale: float) -> dict[str, float]:
    """Return the value code's metrics of some gammas, in units of reward. Synchronizes with the device.

    With PopArt: `critic/td_target_mean_gamma_<gamma>` and `critic/popart_std_gamma_<gamma>`.
    """
    metrics = agent.value_code.metrics_by_gamma()
    if not metrics:
        return {}
    gammas = agent.gammas_G.tolist()
    rows = (torch.stack(list(metrics.values())) / reward_scale).tolist()
    return {
        f"{name}_gamma_{gammas[index]:.6g}": row[index]
        for index in _spread(len(gammas), _MAX_GAMMAS)
        for name, row in zip(metrics, rows, strict=True)
    }


def _spread(size: int, max_count: int) -> list[int]:
    """Return at most `max_count` evenly spaced indices of a sequence, with the first and the last."""
    count = min(size, max_count)
    return [round(i * (size - 1) / max(1, count - 1)) for i in range(count)]
