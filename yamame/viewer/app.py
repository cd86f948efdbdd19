"""The application: a page, its files, and what the topics answer, behind one guard.

A topic is a module with `routes(catalogue)`. Everything under `/api/` is JSON; a topic raises `UserError` or
`UnreadableError` for what cannot be shown and `UnknownRunError` for a run that has gone, and the page says why.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from yamame.records.errors import UserError
from yamame.viewer import curves, rollouts, runs
from yamame.viewer.catalogue import RunIndex, UnknownRunError
from yamame.viewer.files import UnreadableError
from yamame.viewer.security import Access, AccessMiddleware

Topic = Callable[[RunIndex], Sequence[Route]]

TOPICS: Sequence[Topic] = (runs.routes, curves.routes, rollouts.routes)
STATIC = Path(__file__).parent / "static"


def build_app(catalogue: RunIndex, access: Access) -> Starlette:
    """The whole server, without the network."""
    topics = [route for topic in TOPICS for route in topic(catalogue)]
    return Starlette(
        routes=[Route("/", _page), *topics, Mount("/static", StaticFiles(directory=STATIC))],
        middleware=[Middleware(AccessMiddleware, access=access)],
        exception_handlers={UserError: _cannot, UnreadableError: _cannot, UnknownRunError: _gone},
    )


async def _page(request: Request) -> Response:
    return FileResponse(STATIC / "index.html")


async def _cannot(request: Request, problem: Exception) -> Response:
    return JSONResponse({"error": " ".join(str(problem).split())}, status_code=422)


async def _gone(request: Request, problem: Exception) -> Response:
    return JSONResponse({"error": str(problem)}, status_code=404)
