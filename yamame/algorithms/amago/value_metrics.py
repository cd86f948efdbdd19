"""What is known of the values of single discounts."""

import torch

from yamame.algorithms.amago.agent import Agent

_MAX_DISCOUNTS = 6
"""Have metrics of their own."""


def value_metrics_by_gamma(agent: Agent, reward_scale: float) -> dict[str, float]:
    """Return the value code's metrics of some discounts in units of reward. Synchronizes with the device.

    With PopArt: `critic/td_target_mean_gamma_<gamma>` and `critic/popart_std_gamma_<gamma>`.
    """
    metrics = agent.value_code.metrics_by_gamma()
    if not metrics:
        return {}
    gammas = agent.gammas_G.tolist()
    rows = (torch.stack(list(metrics.values())) / reward_scale).tolist()
    return {
        f"{name}_gamma_{gammas[index]:.6g}": row[index]
        for index in _evenly(len(gammas), _MAX_DISCOUNTS)
        for name, row in zip(metrics, rows, strict=True)
    }


def _evenly(count: int, most: int) -> list[int]:
    """At most so many of the first `count` numbers, the first and the last among them."""
    shown = min(count, most)
    return [round(part * (count - 1) / max(1, shown - 1)) for part in range(shown)]
