"""What is known of the values of single discounts."""

import torch

from yamame.algorithms.amago.agent import Agent

_MAX_DISCOUNTS = 6
"""Have metrics of their own."""


def value_metrics_by_gamma(agent: Agent, reward_scale: float) -> dict[str, float]:
    """What PopArt knows of the TD targets of some discounts: running mean and deviation, in units of reward.

    `critic/td_target_mean_gamma_<gamma>` and `critic/popart_std_gamma_<gamma>`; empty without PopArt. The
    means are of what the critics are to predict: the values by discount. Waits for the device.
    """
    if not agent.popart.enabled:
        return {}
    discounts = agent.gammas_G.tolist()
    statistics = torch.stack([agent.popart.mean_G, agent.popart.std_G]) / reward_scale
    means, deviations = statistics.tolist()
    values: dict[str, float] = {}
    for at in _evenly(len(discounts), _MAX_DISCOUNTS):
        values[f"critic/td_target_mean_gamma_{discounts[at]:.6g}"] = means[at]
        values[f"critic/popart_std_gamma_{discounts[at]:.6g}"] = deviations[at]
    return values


def _evenly(count: int, most: int) -> list[int]:
    """At most so many of the first `count` numbers, the first and the last among them."""
    shown = min(count, most)
    return [round(part * (count - 1) / max(1, shown - 1)) for part in range(shown)]
