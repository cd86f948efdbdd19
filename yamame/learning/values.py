"""What is known of the values of single discounts."""

import torch

from yamame.model.agent import Agent

_MOST_DISCOUNTS = 6
"""Have metrics of their own."""


def values_by_discount(agent: Agent, reward_scale: float) -> dict[str, float]:
    """What PopArt knows of the TD targets of some discounts: running mean and deviation, in units of reward.

    `value/target_mean_discount_<gamma>` and `value/popart_deviation_discount_<gamma>`; empty without PopArt. The
    means are of what the critics are to predict: the values by discount. Waits for the device.
    """
    if not agent.popart.enabled:
        return {}
    discounts = agent.discounts_G.tolist()
    statistics = torch.stack([agent.popart.mean_G, agent.popart.deviation_G]) / reward_scale
    means, deviations = statistics.tolist()
    values: dict[str, float] = {}
    for at in _evenly(len(discounts), _MOST_DISCOUNTS):
        values[f"value/target_mean_discount_{discounts[at]:.6g}"] = means[at]
        values[f"value/popart_deviation_discount_{discounts[at]:.6g}"] = deviations[at]
    return values


def _evenly(count: int, most: int) -> list[int]:
    """At most so many of the first `count` numbers, the first and the last among them."""
    shown = min(count, most)
    return [round(part * (count - 1) / max(1, shown - 1)) for part in range(shown)]
