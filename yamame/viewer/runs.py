"""The *Runs* view's answers: what runs there are, how they stand, and in what their configs differ."""

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from yamame.records.errors import UserError
from yamame.run.run_directory import CONFIG
from yamame.viewer.catalogue import RunIndex
from yamame.viewer.differences import diff_configs
from yamame.viewer.files import read_json
from yamame.viewer.summary import SummaryCache

MOST_COMPARED = 8


def routes(catalogue: RunIndex) -> list[Route]:
    """`/api/runs` and `/api/differences?runs=ID,ID`."""
    summaries = SummaryCache(catalogue)

    def listing(request: Request) -> Response:
        found = catalogue.found()
        rows = [summary.to_json() for summary in summaries.of(list(found.entries.values()))]
        return JSONResponse({"runs": rows, "warnings": found.warnings})

    def difference(request: Request) -> Response:
        run_ids = [run_id for run_id in request.query_params.get("runs", "").split(",") if run_id]
        if not 2 <= len(run_ids) <= MOST_COMPARED:
            raise UserError(f"choose from 2 to {MOST_COMPARED} runs to compare")
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
