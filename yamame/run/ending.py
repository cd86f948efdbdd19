"""How the last process that trained in a run's folder left it, where the run had not come to its end."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from yamame.run.run_directory import STATUS

ExitKind = Literal["stopped", "failed"]


def write_status(directory: Path, how: ExitKind, why: str) -> None:
    """Leave word in the run's folder; a disk that takes nothing more is not complained about again."""
    aside = (directory / STATUS).with_suffix(".partial")
    with contextlib.suppress(OSError):
        aside.write_text(json.dumps({"status": how, "reason": " ".join(why.split())}) + "\n", encoding="utf-8")
        aside.replace(directory / STATUS)


@contextlib.contextmanager
def record_failure(directory: Path) -> Iterator[None]:
    """Forget how an earlier process ended; what goes wrong inside is noted, and raised on."""
    (directory / STATUS).unlink(missing_ok=True)
    try:
        yield
    except Exception as problem:
        known = type(problem).__module__.startswith("yamame.")
        write_status(directory, "failed", str(problem) if known else f"{type(problem).__name__}: {problem}".rstrip(": "))
        raise
