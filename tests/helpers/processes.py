"""Processes that a test began, and what they began."""

from contextlib import suppress
from pathlib import Path


def descendants(process: int) -> list[int]:
    """All living processes below one, by their parents."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(folder.name)] = int(parent)
    found, below = [], [process]
    while below:
        below = [child for child, parent in parents.items() if parent in below]
        found += below
    return found


def named(processes: list[int], part: str) -> list[int]:
    """Those whose command line holds some words."""
    found = []
    for process in processes:
        with suppress(OSError):
            if part in Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found.append(process)
    return found


def is_gone(process: int) -> bool:
    """Whether it has ended; zombies count as ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def are_gone(processes: list[int]) -> bool:
    """Whether all have."""
    return all(map(is_gone, processes))
