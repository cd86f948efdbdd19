"""The results of many runs as files: a table for people, one for programs, a picture."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS_CSV, RESULTS_MARKDOWN, RESULTS_PICTURE = "results.csv", "results.md", "results.png"
RESULTS_FILES = (RESULTS_CSV, RESULTS_MARKDOWN, RESULTS_PICTURE)


def write_results_files(
    directory: Path,
    *,
    title: str,
    text: str,
    picture: str,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    draw: Callable[[Path], None],
) -> None:
    """Write `results.csv`, `results.md` and `results.png` into the runs' folder, each whole or not at all.

    `picture` says in words what `draw` draws into the path that it is given. Lists in the rows stand in a cell of the
    CSV with spaces between; nothing stands for None.
    """
    _replace(directory / RESULTS_CSV, _csv(columns, rows))
    _replace(directory / RESULTS_MARKDOWN, f"# {title}\n\n{text}\n\n![{picture}]({RESULTS_PICTURE})\n")
    aside = directory / f".partial-{RESULTS_PICTURE}"
    draw(aside)
    aside.replace(directory / RESULTS_PICTURE)


def _csv(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    for row in rows:
        lists = {key: " ".join(map(str, value)) for key, value in row.items() if isinstance(value, list)}
        writer.writerow({**row, **lists})
    return text.getvalue()


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(f".partial-{path.name}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
