"""How the last process that trained in a run's folder left it, where the run had not come to its end."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from yamame.run.run_directory import ENDING

How = Literal["stopped", "failed"]


def note_ending(directory: Path, how: How, why: str) -> None:
    """Leave word in the run's folder; a disk that takes nothing more is not complained about again."""
    aside = (directory / ENDING).with_suffix(".partial")
    with contextlib.suppress(OSError):
        aside.write_text(json.dumps({"how": how, "why": " ".join(why.split())}) + "\n", encoding="utf-8")
        aside.replace(directory / ENDING)


@contextlib.contextmanager
def telling_of_failure(directory: Path) -> Iterator[None]:
    """Forget how an earlier process ended; what goes wrong inside is noted, and raised on."""
    (directory / ENDING).unlink(missing_ok=True)
    try:
        yield
    except Exception as problem:
        known = type(problem).__module__.startswith("yamame.")
        note_ending(directory, "failed", str(problem) if known else f"{type(problem).__name__}: {problem}".rstrip(": "))
        raise
