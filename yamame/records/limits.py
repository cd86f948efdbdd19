"""Limits of the numbers in configs, checked where a config is made."""

import math
from typing import Any

from yamame.records.errors import ConfigFieldError


def check_range(
    config: Any,
    *names: str,
    ge: float | int = -math.inf,
    gt: float | int = -math.inf,
    le: float | int = math.inf,
    lt: float | int = math.inf,
) -> None:
    """Raise `ConfigFieldError` for the first named field that lies outside the limits or is not finite.

    Every member of a tuple has to lie inside; None may stand anywhere.
    """
    limits = {"at least": ge, "above": gt, "at most": le, "below": lt}
    words = " and ".join(f"{word} {limit}" for word, limit in limits.items() if math.isfinite(limit))
    for name in names:
        value = getattr(config, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is None or (ge <= number <= le and gt < number < lt):
                continue
            wanted = words if math.isfinite(number) else "a finite number"
            raise ConfigFieldError(config, name, f"must be {wanted}, not {number}")
