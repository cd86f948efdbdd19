"""Notes and tags of a run, in `notes.json` of its directory: all that the viewer writes."""

import hashlib
import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from yamame.errors import UserError
from yamame.runs.directory import NOTES
from yamame.runs.durable_files import replace_atomically
from yamame.runs.shared_policy import is_policy_folder
from yamame.tools.viewer.run_index import RunEntry, RunIndex, UnreadableError, printable, read_json
from yamame.tools.web.finite_json import FiniteJSONResponse

MAX_TEXT = 10_000
"""Characters of a note."""
MAX_TAGS, MAX_TAG_LENGTH = 20, 40
MAX_REQUEST_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True)
class Notes:
    """What a user wrote about a run."""

    text: str = ""
    tags: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """Changes with the content."""
        return hashlib.sha256(json.dumps([self.text, *self.tags]).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """Return text, tags and version."""
        return {"text": self.text, "tags": list(self.tags), "version": self.version}


def read_notes(run: Path) -> Notes:
    """Return the notes of a run; what is too long or not text is left out. Raises `UnreadableError`."""
    content = read_json(run / NOTES) or {}
    text, tags = content.get("text"), content.get("tags")
    return Notes(
        text=_printable_lines(text[:MAX_TEXT]) if isinstance(text, str) else "",
        tags=tuple(
            dict.fromkeys(
                printable(tag[:MAX_TAG_LENGTH]) for tag in tags[:MAX_TAGS] if isinstance(tag, str) and tag.strip()
            )
        )
        if isinstance(tags, list)
        else (),
    )


def parse_notes(content: bytes) -> tuple[Notes, str]:
    """Return the notes in a request and the version that they replace. Raises `UserError`."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise UserError("the request is not valid JSON") from problem
    if not isinstance(found, dict):
        raise UserError("the request is not a JSON object")
    text, tags, version = found.get("text"), found.get("tags"), found.get("version")
    if not isinstance(text, str) or len(_printable_lines(text)) > MAX_TEXT:
        raise UserError(f"a note has at most {MAX_TEXT:,} characters")
    if not isinstance(tags, list) or len(tags) > MAX_TAGS:
        raise UserError(f"a run has at most {MAX_TAGS} tags")
    for tag in tags:
        if not isinstance(tag, str) or not 0 < len(tag.strip()) <= MAX_TAG_LENGTH or not tag.isprintable():
            raise UserError(f"a tag has 1 to {MAX_TAG_LENGTH} printable characters")
    notes = Notes(text=_printable_lines(text), tags=tuple(dict.fromkeys(tag.strip() for tag in tags)))
    return notes, version if isinstance(version, str) else ""


def write_notes(entry: RunEntry, notes: Notes, version: str) -> None:
    """Replace the notes of a run.

    Raises:
        UserError: If its notes are not of this version any more, or the file cannot be written, or the run is a shared
            policy.
    """
    if is_policy_folder(entry.path):
        raise UserError(f"{entry.name} is a shared policy: no notes are written into it")
    try:
        before = read_notes(entry.path)
    except UnreadableError:
        before = Notes()
    if before.version != version:
        raise UserError("these notes were changed elsewhere: reload the page, then write again")
    content = json.dumps({"text": notes.text, "tags": notes.tags}, indent=2) + "\n"
    try:
        with replace_atomically(entry.path / NOTES) as partial:
            partial.write_text(content, encoding="utf-8")
    except OSError as problem:
        raise UserError(f"the notes of {entry.name} cannot be saved ({problem.strerror})") from problem


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.expandtabs(4).splitlines()))


def routes(index: RunIndex) -> list[Route]:
    """Return `/api/runs/<run>/notes`, to read and to write."""
    lock = threading.Lock()

    def save(run_id: str, content: bytes) -> Notes:
        notes, version = parse_notes(content)
        with lock:
            write_notes(index.entry(run_id), notes, version)
        return notes

    async def notes(request: Request) -> Response:
        run_id = request.path_params["run_id"]
        if request.method != "PUT":
            found = await run_in_threadpool(lambda: read_notes(index.entry(run_id).path))
            return FiniteJSONResponse(found.to_json())
        content = b""
        async for chunk in request.stream():
            content += chunk
            if len(content) > MAX_REQUEST_BYTES:
                raise UserError(f"the request is larger than {MAX_REQUEST_BYTES >> 10} KiB")
        saved = await run_in_threadpool(save, run_id, content)
        return FiniteJSONResponse(saved.to_json())

    return [Route("/api/runs/{run_id}/notes", notes, methods=["GET", "PUT"])]
