"""API of configs: hyperparameters that differ between runs, and differences between some of them."""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from yamame.errors import UserError
from yamame.runs.directory import CONFIG
from yamame.tools.viewer.run_cache import RunCache, Signatures
from yamame.tools.viewer.run_index import RunEntry, RunIndex, UnreadableError, leaves, printable, read_json
from yamame.tools.viewer.runs import run_ids
from yamame.tools.web.finite_json import FiniteJSONResponse

MAX_VALUE_LENGTH = 300
"""Letters of a value that are shown."""
MAX_FIELDS = 2000
MAX_COMPARED = 8
MAX_COLUMNS = 50
"""Hyperparameters whose values one request gives."""
_TASK = "env.type"
_MISSING = "–"
_SAME_LETTERS = 20
"""Equal letters that are shown before the first difference of long values."""

Fields = Mapping[str, str]
"""Path of a field -> its value as JSON; of a long value, what is shown of it and a digest of all of it."""


def flatten(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the JSON of every leaf by its path, however long. Raises `UnreadableError`."""
    found: dict[str, str] = {}
    for path, value in leaves(content):
        try:
            found[printable(path)] = json.dumps(value)
        except RecursionError as problem:
            raise UnreadableError("a config is nested too deeply to be compared") from problem
    return found


def shorten(text: str, start: int = 0) -> str:
    """Return at most `MAX_VALUE_LENGTH` letters of a text, from its index `start` on."""
    part = ("…" if start else "") + text[start:]
    return part if len(part) <= MAX_VALUE_LENGTH else part[: MAX_VALUE_LENGTH - 1] + "…"


def shorten_to_difference(values: Sequence[str]) -> list[str]:
    """Shorten the JSON of one field in several configs so that the first difference is shown."""
    different = set(values) - {_MISSING}
    letters = zip(min(different), max(different), strict=False)  # all others begin as these two do
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], letters)) if len(different) > 1 else 0
    start = max(0, same - _SAME_LETTERS) if same + _SAME_LETTERS > MAX_VALUE_LENGTH else 0
    return [value if value == _MISSING else shorten(value, start) for value in values]


def _with_digest(text: str) -> str:
    """Return a text, or a long one shortened and with a digest of all of it, so that memory is bounded."""
    if len(text) <= MAX_VALUE_LENGTH:
        return text
    return shorten(text) + hashlib.sha256(text.encode()).hexdigest()


def _read_fields(entry: RunEntry, signatures: Signatures) -> Fields:
    """Return the fields of a config.

    Configs that cannot be read or have more than `MAX_FIELDS` fields have none here; the table of runs reports them.
    """
    try:
        fields = flatten(read_json(entry.path / CONFIG) or {})
    except UnreadableError:
        fields = {}
    if len(fields) > MAX_FIELDS:
        fields = {}
    return {sys.intern(path): sys.intern(_with_digest(value)) for path, value in fields.items()}  # most runs share them


def differing_fields(configs: Sequence[Fields]) -> list[dict[str, Any]]:
    """Return the fields with more than one value, in the order of the configs.

    `within_task`: whether it differs between runs of one task.
    """
    values: dict[str, set[str]] = {}
    values_of_task: dict[tuple[str, str], set[str]] = {}
    for config in configs:
        task = config.get(_TASK, "")
        for path, value in config.items():
            values.setdefault(path, set()).add(value)
            values_of_task.setdefault((path, task), set()).add(value)
    within = {path for (path, _), found in values_of_task.items() if len(found) > 1}
    return [
        {"field": path, "within_task": path in within, "num_values": len(found)}
        for path, found in values.items()
        if len(found) > 1
    ]


def routes(index: RunIndex) -> list[Route]:
    """Return `/api/hyperparameters?field=PATH` and `/api/differences?runs=ID,ID`."""
    cache = RunCache(index, (CONFIG,), _read_fields)

    def hyperparameters(request: Request) -> Response:
        entries = list(index.found().entries.values())
        configs = {entry.run_id: fields for entry, fields in zip(entries, cache.get(entries), strict=True)}
        chosen = request.query_params.getlist("field")[:MAX_COLUMNS]
        values = {
            path: {run_id: config[path][:MAX_VALUE_LENGTH] for run_id, config in configs.items() if path in config}
            for path in chosen
        }
        return FiniteJSONResponse({"fields": differing_fields(list(configs.values()))[:MAX_FIELDS], "values": values})

    def differences(request: Request) -> Response:
        chosen = run_ids(request)
        if not 2 <= len(chosen) <= MAX_COMPARED:
            raise UserError(f"choose from 2 to {MAX_COMPARED} runs to compare")
        entries = [index.entry(run_id) for run_id in chosen]
        configs = []
        for entry in entries:
            config = read_json(entry.path / CONFIG)
            if config is None:
                raise UserError(f"{entry.name} has no {CONFIG}")
            configs.append(flatten(config))
        fields = list(dict.fromkeys(field for config in configs for field in config))
        if len(fields) > MAX_FIELDS:
            raise UserError(f"these configs have {len(fields):,} fields: at most {MAX_FIELDS:,} can be compared")
        rows = [{"field": field, "values": [config.get(field, _MISSING) for config in configs]} for field in fields]
        differing = [row for row in rows if len(set(row["values"])) > 1]
        return FiniteJSONResponse(
            {
                "runs": [{"id": entry.run_id, "name": entry.name} for entry in entries],
                "differences": [{**row, "values": shorten_to_difference(row["values"])} for row in differing],
                "same": len(rows) - len(differing),
            }
        )

    return [Route("/api/hyperparameters", hyperparameters), Route("/api/differences", differences)]
