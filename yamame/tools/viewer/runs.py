"""The *Runs* view's answers: what runs there are, how they stand, and in what their configs differ."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from yamame.errors import UserError
from yamame.run_dir import CONFIG
from yamame.tools.viewer.run_index import RunIndex
from yamame.tools.viewer.safe_files import UnreadableError, printable, read_json
from yamame.tools.viewer.summary import SummaryCache

MAX_VALUE = 300
MAX_ROWS = 2000
_MISSING = "–"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A field that is not the same everywhere."""

    field: str
    values: list[str]
    """As JSON, one for each config; a dash where it has no such field."""


def diff_configs(configs: Sequence[Mapping[str, Any]]) -> tuple[list[Difference], int]:
    """Fields that differ, in the order of the configs, and how many do not. `UserError` for more than can be told."""
    leaves = [_leaves(config) for config in configs]
    fields = list(dict.fromkeys(field for of_config in leaves for field in of_config))
    if len(fields) > MAX_ROWS:
        raise UserError(f"these configs have {len(fields):,} fields: more than {MAX_ROWS:,} are not compared")
    rows = [Difference(field=field, values=[found.get(field, _MISSING) for found in leaves]) for field in fields]
    differing = [row for row in rows if len(set(row.values)) > 1]
    return differing, len(rows) - len(differing)


def _leaves(config: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("", config)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict) and value:
            waiting += reversed([(f"{path}.{key}".lstrip("."), part) for key, part in value.items()])
        else:
            try:
                text = json.dumps(value)
            except RecursionError as problem:
                raise UnreadableError("a config is nested too deeply to compare it") from problem
            found[printable(path)] = text if len(text) <= MAX_VALUE else text[: MAX_VALUE - 1] + "…"
    return found


MAX_COMPARED = 8


def routes(catalogue: RunIndex) -> list[Route]:
    """`/api/runs` and `/api/differences?runs=ID,ID`."""
    summaries = SummaryCache(catalogue)

    def listing(request: Request) -> Response:
        found = catalogue.found()
        rows = [summary.to_json() for summary in summaries.of(list(found.entries.values()))]
        return JSONResponse({"runs": rows, "warnings": found.warnings})

    def difference(request: Request) -> Response:
        run_ids = [run_id for run_id in request.query_params.get("runs", "").split(",") if run_id]
        if not 2 <= len(run_ids) <= MAX_COMPARED:
            raise UserError(f"choose from 2 to {MAX_COMPARED} runs to compare")
        entries = [catalogue.entry(run_id) for run_id in run_ids]
        configs = []
        for entry in entries:
            config = read_json(entry.path / CONFIG)
            if config is None:
                raise UserError(f"{entry.name} has no {CONFIG}")
            configs.append(config)
        rows, same = diff_configs(configs)
        return JSONResponse(
            {
                "runs": [{"id": entry.run_id, "name": entry.name} for entry in entries],
                "differences": [asdict(row) for row in rows],
                "same": same,
            }
        )

    return [Route("/api/runs", listing), Route("/api/differences", difference)]
