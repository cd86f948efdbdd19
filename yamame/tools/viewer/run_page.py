"""API of the page of one run: its config, command, results, and files of its directory."""

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from yamame.runs.directory import CONFIG, METADATA, RESULT
from yamame.runs.shared_policy import is_policy_folder
from yamame.tools.viewer.configs import MAX_FIELDS, flatten, shorten, shorten_to_difference
from yamame.tools.viewer.run_index import (
    RunIndex,
    UnknownRunError,
    UnreadableError,
    open_regular_file,
    printable,
    read_json,
)
from yamame.tools.viewer.runs import SummaryCache
from yamame.tools.web.finite_json import FiniteJSONResponse

MAX_FILES = 200
MAX_FILE_BYTES = 32 << 20
MAX_COMMAND = 20_000
MEDIA_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    **dict.fromkeys((".md", ".txt", ".json", ".csv"), "text/plain; charset=utf-8"),
}
"""Suffix -> type as which a file is served. None of them runs scripts; others, such as HTML and SVG, are not served."""
FILE_HEADERS = {"content-security-policy": "default-src 'none'; sandbox; frame-ancestors 'none'"}


def _config_rows(config: Mapping[str, Any], overrides: Any) -> list[dict[str, Any]]:
    """Return the fields of a config; those that differ from the recipe have its value as `default`."""
    pairs = overrides.items() if isinstance(overrides, dict) else ()
    changed = {path: pair for path, pair in pairs if isinstance(pair, list) and len(pair) == 2}
    defaults = flatten({path: default for path, (default, _) in changed.items()})
    rows = []
    for field, value in flatten(config).items():
        path = field.removeprefix("algorithm.")  # its fields are flags without the prefix
        parts = path.split(".")
        is_changed = any(".".join(parts[:count]) in changed for count in range(1, len(parts) + 1))
        default = defaults.get(path)
        value, *shown = shorten_to_difference([value] if default is None else [value, default])
        rows.append({"field": field, "value": value, "changed": is_changed, "default": shown[0] if shown else None})
    return rows


def _list_files(run: Path) -> list[dict[str, Any]]:
    """Return the files directly in a run directory that can be served. Raises `UnreadableError`."""
    found = []
    try:
        with os.scandir(run) as listing:
            for entry in sorted(listing, key=lambda entry: entry.name):
                kind = MEDIA_TYPES.get(Path(entry.name).suffix.lower())
                if kind is not None and entry.name == printable(entry.name) and entry.is_file(follow_symlinks=False):
                    size = entry.stat(follow_symlinks=False).st_size
                    found.append({"name": entry.name, "type": kind.partition("/")[0], "num_bytes": size})
    except OSError as problem:
        raise UnreadableError(f"the run directory cannot be read ({problem.strerror})") from problem
    return found[:MAX_FILES]


def _read_file(run: Path, name: str) -> bytes:
    if name not in {file["name"] for file in _list_files(run)}:
        raise UnknownRunError("this run has no such file, or it is of a kind that is not shown")
    try:
        with open_regular_file(run / name) as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as problem:
        raise UnreadableError(f"{name} cannot be read ({problem.strerror})") from problem
    if len(content) > MAX_FILE_BYTES:
        raise UnreadableError(f"{name} is larger than {MAX_FILE_BYTES >> 20} MiB and was not read")
    return content


def routes(index: RunIndex, summaries: SummaryCache, *, read_only: bool) -> list[Route]:
    """Return `/api/runs/<run>` and `/api/runs/<run>/files/<name>`."""

    def page(request: Request) -> Response:
        entry = index.entry(request.path_params["run_id"])
        (summary,) = summaries.get([entry])
        found: dict[str, dict[str, Any]] = {}
        for name in (CONFIG, METADATA, RESULT):
            try:
                found[name] = read_json(entry.path / name) or {}
            except UnreadableError:  # among the warnings of the summary
                found[name] = {}
        metadata = found[METADATA]
        command, expected = metadata.get("command"), metadata.get("expected")
        results = dict(itertools.islice(flatten(found[RESULT]).items(), MAX_FIELDS))
        return FiniteJSONResponse(
            {
                "summary": summary.to_json(),
                "read_only": read_only or is_policy_folder(entry.path),
                "command": printable(command[:MAX_COMMAND]) if isinstance(command, str) else "",
                "expected": printable(expected[:MAX_COMMAND]) if isinstance(expected, str) else "",
                "config": _config_rows(found[CONFIG], metadata.get("overrides"))[:MAX_FIELDS],
                "results": {name: shorten(value) for name, value in results.items()},
                "files": _list_files(entry.path),
            }
        )

    def file(request: Request) -> Response:
        run, name = index.entry(request.path_params["run_id"]).path, request.path_params["name"]
        content = _read_file(run, name)
        return Response(content, media_type=MEDIA_TYPES[Path(name).suffix.lower()], headers=FILE_HEADERS)

    return [Route("/api/runs/{run_id}", page), Route("/api/runs/{run_id}/files/{name}", file)]
