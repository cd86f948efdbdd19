"""The arms of a comparison: the recipe as it is, and with what the variants change of it."""

from dataclasses import dataclass

from yamame.errors import UserError
from yamame.presets import VARIANTS

FULL = "full"
"""The arm without variants."""


@dataclass(frozen=True)
class Arm:
    """One line of the figure: `full`, a variant, or several that are joined by +."""

    name: str

    @property
    def variants(self) -> tuple[str, ...]:
        """Applied in this order."""
        return () if self.name == FULL else tuple(self.name.split("+"))

    @property
    def is_known(self) -> bool:
        """Whether there are all of its variants."""
        return all(variant in VARIANTS for variant in self.variants)

    @property
    def place(self) -> tuple[int, ...]:
        """Arms stand in the order of this: full, single variants, combinations."""
        order = list(VARIANTS)
        return len(self.variants), *map(order.index, self.variants)


def chosen_arms(variants: str | None, *, without_full: bool) -> list[Arm]:
    """`a,b+c` -> those arms, `full` before them; whether there are such variants is not looked at.

    Raises `UserError` where nothing is named or something twice.
    """
    names = [name.strip() for name in (variants or "").split(",") if name.strip()]
    if not names:
        raise UserError(f"--variants: name what to compare, such as {','.join(list(VARIANTS)[:2])}")
    if FULL in names and without_full:
        raise UserError(f"{FULL} is named by --variants and excluded by --no-full: leave one out")
    arms = [Arm(name) for name in names if name != FULL]
    seen: dict[frozenset[str], str] = {}
    for arm in arms:
        parts = frozenset(arm.variants)
        if len(parts) < len(arm.variants):
            raise UserError(f"--variants: {arm.name} names a variant twice")
        if parts in seen:
            raise UserError(f"--variants: {seen[parts]} is named twice (as {arm.name}): leave one out")
        seen[parts] = arm.name
    return arms if without_full else [Arm(FULL), *arms]
