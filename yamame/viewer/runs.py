"""The *Runs* view's answers."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from yamame.viewer.catalogue import Catalogue


def routes(catalogue: Catalogue) -> list[Route]:
    """`/api/runs`: what there is."""

    def listing(request: Request) -> Response:
        found = catalogue.found()
        rows = [{"id": entry.run_id, "name": entry.name} for entry in found.entries.values()]
        return JSONResponse({"runs": rows, "problems": found.problems})

    return [Route("/api/runs", listing)]
