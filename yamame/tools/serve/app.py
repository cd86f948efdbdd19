"""The web application of `yamame serve`: routes, access control, limits."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from yamame.data.spaces import space_to_json
from yamame.errors import require_pytorch
from yamame.policy.loaded import LoadedPolicy
from yamame.tools.serve.batcher import Batcher
from yamame.tools.serve.limits import Limits
from yamame.tools.serve.openapi import describe_service
from yamame.tools.serve.protocol import ActRequest, RequestError
from yamame.tools.serve.sessions import Session, Sessions
from yamame.tools.web.access import RESPONSE_HEADERS, has_own_origin, is_cross_site, is_token, names_loopback
from yamame.tools.web.address import listen, url_of
from yamame.tools.web.finite_json import FiniteJSONResponse
from yamame.tools.web.uvicorn_server import run_until_signal


class Service:
    """The policy, its sessions and its limits."""

    def __init__(self, run: Path, checkpoint: str, limits: Limits) -> None:
        self.limits = limits
        self.name = run.resolve().name
        if run.suffix == ".onnx":
            self.policy = LoadedPolicy.from_onnx(run, num_envs=limits.max_sessions)
        else:
            with require_pytorch(f"the policy of {run}"):
                from yamame.training.trained_run import load_trained_run

            self.policy = LoadedPolicy.from_run(load_trained_run(run, checkpoint), num_envs=limits.max_sessions)
        self.sessions = Sessions(max_sessions=limits.max_sessions, idle_seconds=limits.session_seconds)
        self.batcher = Batcher(self.policy, num_slots=limits.max_sessions, timeout_seconds=limits.request_seconds)
        self._description = {
            "run": self.name,
            "checkpoint": checkpoint,
            "observation_space": space_to_json(self.policy.observation_space),
            "action_space": space_to_json(self.policy.action_space),
            "horizon": self.policy.horizon,
            "needs_action_mask": self.policy.needs_action_mask,
        }

    def describe(self) -> dict[str, Any]:
        """Return what a client needs to know of the policy. Bounds of spaces may be infinite."""
        return self._description

    def health(self) -> dict[str, Any]:
        """Return the state of the service."""
        return {
            "status": "ok",
            "sessions": len(self.sessions),
            "max_sessions": self.limits.max_sessions,
            "requests": self.batcher.num_requests,
            "batches": self.batcher.num_batches,
        }

    async def act(self, session: Session, body: bytes | str) -> dict[str, Any]:
        """Return action and time of a session, for the body of a request.

        Raises:
            RequestError: The body is invalid, or the trial is as long as the longest of training.
        """
        request = ActRequest.from_json(body, self.policy)
        time = 0 if request.reset else session.time
        if time >= self.policy.horizon:
            raise RequestError(
                409, f"the trial has had all {time} steps of a trial in training: start another one with reset"
            )
        try:
            action = await self.batcher.act(session.slot, request, resets=time == 0)
        except RequestError as problem:
            if problem.status == 500 and time == 0:
                session.time = 0  # the memory was cleared before the policy failed
            raise
        session.time = time + 1
        return {"action": action, "time": time}


class ServiceAccessMiddleware:
    """ASGI middleware that refuses requests without access and adds `RESPONSE_HEADERS` to every response.

    Pages of other sites are refused. Without a token, the Host header must be a loopback name. `/health` is for
    everybody.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond with a refusal, or forward to the application."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(RESPONSE_HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send_with_headers)
        elif scope["type"] == "http":
            await refusal(scope, receive, send_with_headers)
        else:
            await WebSocket(scope, receive, send).send_denial_response(refusal)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if is_cross_site(headers) or ("origin" in headers and not has_own_origin(headers)):
            return _error(403, "requests of pages of other sites are not allowed")
        if not self._token:
            return None if names_loopback(headers) else _error(403, "use this service as 127.0.0.1 or localhost")
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scope["path"] == "/health" or (scheme.lower() == "bearer" and is_token(given.strip(), self._token)):
            return None
        return _error(401, "a token is required: Authorization: Bearer TOKEN")


def build_service_app(service: Service, token: str = "") -> Starlette:
    """Return the ASGI application. With a token, every request but `/health` needs it."""

    async def health(request: Request) -> Response:
        return JSONResponse(service.health())

    async def policy(request: Request) -> Response:
        return FiniteJSONResponse(service.describe())

    async def openapi(request: Request) -> Response:
        return JSONResponse(describe_service(service.policy, service.name, needs_token=bool(token)))

    async def open_session(request: Request) -> Response:
        return JSONResponse({"session": service.sessions.open().id}, status_code=201)

    async def close_session(request: Request) -> Response:
        with service.sessions.use(request.path_params["session"]) as session:
            service.sessions.close(session)
        return Response(status_code=204)

    async def act(request: Request) -> Response:
        body = await _read_body(request, service.limits)
        with service.sessions.use(request.path_params["session"]) as session:
            return JSONResponse(await service.act(session, body))

    async def websocket(socket: WebSocket) -> None:
        try:
            session = service.sessions.open()
        except RequestError as error:
            await socket.send_denial_response(_error(error.status, str(error)))
            return
        with service.sessions.use(session.id):
            try:
                await socket.accept()
                async for body in _messages(socket, service.limits):
                    try:
                        answer = await service.act(session, body)
                    except RequestError as error:
                        answer = {"error": str(error), "status": error.status}
                    await socket.send_text(json.dumps(answer))
            except WebSocketDisconnect:
                pass
            finally:
                service.sessions.close(session)

    return Starlette(
        routes=[
            Route("/health", health),
            Route("/policy", policy),
            Route("/openapi.json", openapi),
            Route("/sessions", open_session, methods=["POST"]),
            Route("/sessions/{session}", close_session, methods=["DELETE"]),
            Route("/sessions/{session}/act", act, methods=["POST"]),
            WebSocketRoute("/websocket", websocket),
        ],
        middleware=[Middleware(ServiceAccessMiddleware, token=token)],
        exception_handlers={RequestError: _on_request_error, HTTPException: _on_http_error},
    )


def serve_policy(service: Service, *, host: str, port: int, token: str, shown_token: str) -> None:
    """Print address and `shown_token` on stdout and serve until SIGINT or SIGTERM.

    Raises `UserError` if the address cannot be bound.
    """
    listener = listen(host, port)
    print(f"yamame serve: {url_of(host, listener.getsockname()[1])}  (Ctrl-C to stop)", flush=True)
    if token:
        print(f"token: {shown_token}", flush=True)
    limits = service.limits
    run_until_signal(
        build_service_app(service, token),
        listener,
        drain_seconds=int(limits.request_seconds) + 1,
        ws="websockets-sansio",
        ws_max_size=limits.max_body_bytes,
        limit_concurrency=4 * limits.max_sessions + 64,
    )


async def _read_body(request: Request, limits: Limits) -> bytes:
    """Return the body. Raises `RequestError` as soon as it is too large (413), or cannot arrive any more (400)."""
    too_large = RequestError(413, f"the body is larger than {limits.max_body_bytes:,} bytes")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limits.max_body_bytes:
        raise too_large
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > limits.max_body_bytes:
                raise too_large
    except ClientDisconnect as error:
        raise RequestError(400, "the connection was closed before the body had arrived") from error
    return bytes(body)


async def _messages(socket: WebSocket, limits: Limits) -> AsyncIterator[bytes | str]:
    """Yield the messages of a WebSocket until it is closed, or has been silent for as long as a session may be."""
    while True:
        try:
            message = await asyncio.wait_for(socket.receive(), limits.session_seconds)
        except TimeoutError:
            await socket.close(1008, "the session has expired")
            return
        if message["type"] == "websocket.disconnect":
            return
        text = message.get("text")
        yield message["bytes"] if text is None else text


async def _on_request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return _error(error.status, str(error))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail)


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status_code=status)
