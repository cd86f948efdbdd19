"""Limits of the numbers in configs, checked where a config is made."""

import math
from typing import Any

from yamame.records.errors import FieldError


def check_limits(
    config: Any,
    *names: str,
    at_least: float | int = -math.inf,
    above: float | int = -math.inf,
    at_most: float | int = math.inf,
    below: float | int = math.inf,
) -> None:
    """Raise `FieldError` for the first named field that lies outside the limits or is not finite.

    Every member of a tuple has to lie inside; None may stand anywhere.
    """
    limits = {"at least": at_least, "above": above, "at most": at_most, "below": below}
    words = " and ".join(f"{word} {limit}" for word, limit in limits.items() if math.isfinite(limit))
    for name in names:
        value = getattr(config, name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is None or (at_least <= number <= at_most and above < number < below):
                continue
            wanted = words if math.isfinite(number) else "a finite number"
            raise FieldError(config, name, f"must be {wanted}, not {number}")
