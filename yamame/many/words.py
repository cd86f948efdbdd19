"""What every command that makes many runs reads from its words, and what it refuses in them."""

from collections.abc import Mapping, Sequence

from yamame.records.errors import UserError


def chosen_seeds(seeds: str) -> list[int]:
    """`0,1,2` -> those numbers; `UserError` for anything else."""
    parts = [part.strip() for part in seeds.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise UserError(f"--seeds: {seeds!r} is not a list of numbers such as 0,1,2")
    return list(dict.fromkeys(map(int, parts)))


def refuse_own_flags(flags: Sequence[str], instead: Mapping[str, str], owner: str) -> None:
    """Raise `UserError` for a flag of the recipe in whose place the command has one of its own: `--seed`, `--seeds`."""
    for flag in (flag.partition("=")[0] for flag in flags):
        if flag in instead:
            raise UserError(f"{flag} belongs to the {owner}: use {instead[flag]}")
