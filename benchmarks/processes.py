"""What processes and folders use, as the operating system sees them."""

import os
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Children, their children and so on, zombies included."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def age_seconds(pid: int) -> float:
    """Seconds since a process began."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Memory of a process; nothing if it is gone."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def disk_bytes(folder: Path) -> int:
    """What the files below a folder take, those of several names counted once."""
    files = {}
    for path in folder.rglob("*"):
        with suppress(OSError):
            about = path.stat()
            files[about.st_ino] = about.st_blocks * 512
    return sum(files.values())
