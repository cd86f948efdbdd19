"""A stand-in of the Hugging Face Hub on loopback: what its client asks to create, upload and download repositories.

Large files are sent by the LFS protocol, in one part; a Hub that stores them as Xet chunks is not imitated.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_a_test"
LARGE = (".safetensors", ".png")
"""Suffixes of the files that are sent by LFS."""
Files = dict[str, bytes]


@dataclass
class Repository:
    """Its commits by hash, and its branches."""

    private: bool = False
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Files, branch: str = "main") -> str:
        """Add a commit to a branch; return its hash."""
        content = [f"{len(self.commits)}", *(f"{name} {digest(files[name])}" for name in sorted(files))]
        commit = hashlib.sha1("\n".join(content).encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.branches[branch] = commit
        return commit

    def files(self, revision: str = "main") -> Files:
        """The files at a branch or commit; KeyError if there is no such revision."""
        return self.commits[self.branches.get(revision, revision)]


@dataclass
class Hub:
    """What the server has, and what it was asked."""

    address: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)
    """Large files by digest."""
    requests: list[str] = field(default_factory=list)
    """Methods and paths."""


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class RefusedError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        self.status, self.code, self.message = status, code, message


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        body = self._body()
        try:
            for pattern, name in _ROUTES:
                if match := re.fullmatch(pattern, f"{self.command} {path}"):
                    getattr(self, name)(body, *match.groups())
                    return
            raise RefusedError(404, message=f"the stand-in has no {self.command} {path}")
        except RefusedError as refused:
            self._send(refused.status, {"error": refused.message}, {"X-Error-Code": refused.code})

    do_GET = do_HEAD = do_POST = do_PUT = _answer

    def log_message(self, *_: Any) -> None:
        pass

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, status: int, content: Any = None, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _require_token(self) -> None:
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            raise RefusedError(401, message="Invalid username or password.")

    def _repository(self, name: str) -> Repository:
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and not self.headers.get("authorization")):
            raise RefusedError(404, "RepoNotFound", "Repository not found")
        return repository

    def _revision(self, name: str, revision: str) -> tuple[str, Files]:
        """The hash and the files of a revision."""
        repository = self._repository(name)
        commit = repository.branches.get(revision, revision)
        if commit not in repository.commits:
            raise RefusedError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit, repository.commits[commit]

    def create(self, body: bytes) -> None:
        self._require_token()
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        exists = name in self.hub.repositories
        if not exists:
            private = asked.get("visibility") == "private" or asked.get("private") is True
            self.hub.repositories[name] = Repository(private=private)
            self.hub.repositories[name].commit({".gitattributes": b"*.safetensors filter=lfs\n"})
        self._send(409 if exists else 200, {"url": f"{self.hub.address}/{name}", "name": name})

    def validate_yaml(self, body: bytes) -> None:
        front = json.loads(body)["content"].split("---")[1]
        problems = [] if "library_name: yamame" in front else [{"message": "no library"}]
        self._send(200, {"errors": problems, "warnings": []})

    def preupload(self, body: bytes, name: str, revision: str) -> None:
        self._require_token()
        self._revision(name, revision)
        modes = [
            {"path": each["path"], "shouldIgnore": False, "uploadMode": "lfs" if large(each["path"]) else "regular"}
            for each in json.loads(body)["files"]
        ]
        self._send(200, {"files": modes})

    def batch(self, body: bytes, name: str) -> None:
        self._require_token()
        objects = [
            {**each, "actions": {"upload": {"href": f"{self.hub.address}/upload/{each['oid']}"}}}
            for each in json.loads(body)["objects"]
        ]
        self._send(200, {"transfer": "basic", "objects": objects})

    def upload(self, body: bytes, oid: str) -> None:
        if digest(body) != oid:
            raise RefusedError(400, message="the content does not match its digest")
        self.hub.large[oid] = body
        self._send(200, {})

    def commit(self, body: bytes, name: str, revision: str) -> None:
        self._require_token()
        files = dict(self._revision(name, revision)[1])
        for line in body.splitlines():
            item = json.loads(line)
            value = item["value"]
            match item["key"]:
                case "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile":
                    files[value["path"]] = self.hub.large[value["oid"]]
                case "deletedFile":
                    del files[value["path"]]
        commit = self._repository(name).commit(files, revision)
        self._send(200, {"commitUrl": f"{self.hub.address}/{name}/commit/{commit}", "commitOid": commit})

    def info(self, body: bytes, name: str, revision: str | None) -> None:
        commit, files = self._revision(name, revision or "main")
        siblings = [{"rfilename": path} for path in files]
        private = self._repository(name).private
        self._send(200, {"id": name, "modelId": name, "sha": commit, "private": private, "siblings": siblings})

    def tree(self, body: bytes, name: str, revision: str) -> None:
        _, files = self._revision(name, revision)
        found = []
        for path, content in files.items():
            lfs = {"lfs": {"oid": digest(content), "size": len(content), "pointerSize": 130}} if large(path) else {}
            found.append({"type": "file", "path": path, "size": len(content), "oid": digest(content)[:40], **lfs})
        self._send(200, found)

    def resolve(self, body: bytes, name: str, revision: str, path: str) -> None:
        commit, files = self._revision(name, revision)
        if path not in files:
            raise RefusedError(404, "EntryNotFound", "Entry not found")
        content = files[path]
        etag = digest(content) if large(path) else digest(content)[:40]
        self._send(200, content, {"X-Repo-Commit": commit, "ETag": f'"{etag}"'})


def large(path: str) -> bool:
    return path.endswith(LARGE)


_NAME, _REVISION = r"([^/]+/[^/]+)", r"([^/]+)"
_ROUTES = [
    ("POST /api/repos/create", "create"),
    ("POST /api/validate-yaml", "validate_yaml"),
    (rf"POST /api/models/{_NAME}/preupload/{_REVISION}", "preupload"),
    (rf"POST /{_NAME}\.git/info/lfs/objects/batch", "batch"),
    ("PUT /upload/([0-9a-f]{64})", "upload"),
    (rf"POST /api/models/{_NAME}/commit/{_REVISION}", "commit"),
    (rf"GET /api/models/{_NAME}(?:/revision/{_REVISION})?", "info"),
    (rf"GET /api/models/{_NAME}/tree/{_REVISION}", "tree"),
    (rf"(?:GET|HEAD) /{_NAME}/resolve/{_REVISION}/(.+)", "resolve"),
]


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Run the server in a thread."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
