"""The OpenAPI description of a service: its requests and answers, in the spaces of its policy."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from yamame.data.actions import num_choices
from yamame.policy.loaded import LoadedPolicy
from yamame.tools.options import installed_version
from yamame.tools.serve.protocol import BASE64

Schema = dict[str, Any]
"""A schema of JSON Schema 2020-12, which OpenAPI 3.1 uses."""

_ERROR: Schema = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
_SESSION = {"name": "session", "in": "path", "required": True, "schema": {"type": "string"}}
_REFUSALS = {
    400: "the body is not a JSON object",
    401: "no token",
    403: "a page of another site, or an unknown host name",
    404: "no such session: it was closed or has expired",
    409: "another request of the session is being answered, or the trial is as long as the longest of training",
    413: "the body is too large",
    422: "a field is unknown or does not fit the spaces",
    429: "as many sessions are open as may be",
    503: "the service is overloaded: send the same request again",
}
"""Status -> when it is the answer, whose body is one line."""


def describe_service(policy: LoadedPolicy, name: str, *, needs_token: bool) -> dict[str, Any]:
    """Return the description as JSON values.

    Args:
        policy: The policy that is served.
        name: Its name, for the title.
        needs_token: Whether requests need a bearer token.
    """
    act = _object(
        {
            "action": space_schema(policy.action_space),
            "time": {"type": "integer", "minimum": 0, "description": "index of the action in its trial"},
        }
    )
    session = _object({"session": {"type": "string"}})
    health = {key: {"type": "integer"} for key in ("sessions", "max_sessions", "requests", "batches")}
    paths: dict[str, Any] = {
        "/health": {"get": _operation("State of the service", _object({"status": {"const": "ok"}, **health}))},
        "/policy": {"get": _operation("Spaces of the policy", {"type": "object"}, 401, 403)},
        "/openapi.json": {"get": _operation("This description", {"type": "object"}, 401, 403)},
        "/sessions": {
            "post": _operation("Open a session, with a memory of its own", session, 401, 403, 429, status=201)
        },
        "/sessions/{session}": {
            "parameters": [_SESSION],
            "delete": _operation("Close a session", None, 401, 403, 404, 409, status=204),
        },
        "/sessions/{session}/act": {
            "parameters": [_SESSION],
            "post": {
                **_operation("Return the next action", act, *_REFUSALS),
                "requestBody": {"required": True, "content": _json(_request_schema(policy))},
            },
        },
        "/websocket": {
            "get": {
                "summary": "A WebSocket with a session of its own: each message is a body of act, and so is its answer",
                "responses": {"101": {"description": "the connection is open"}, **_refusals(401, 403, 429)},
            }
        },
    }
    description: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": f"yamame serve: {name}", "version": installed_version()},
        "paths": paths,
    }
    if needs_token:
        description["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        description["security"] = [{"token": []}]
        paths["/health"]["get"]["security"] = []
    return description


def space_schema(space: spaces.Space[Any], *, takes_bytes: bool = False) -> Schema:
    """Return the schema of the JSON values of a space; with `takes_bytes`, an array may be base64."""
    if isinstance(space, spaces.Dict):
        parts = {str(key): space_schema(part, takes_bytes=takes_bytes) for key, part in space.spaces.items()}
        return _object(parts)
    if isinstance(space, spaces.Tuple):
        schemas = [space_schema(part, takes_bytes=takes_bytes) for part in space.spaces]
        return {"type": "array", "prefixItems": schemas, "minItems": len(schemas), "maxItems": len(schemas)}
    if isinstance(space, spaces.Text):
        return {"type": "string", "maxLength": space.max_length}
    schema = _number_schema(space)
    shape = space.shape or ()
    for size in reversed(shape):
        schema = {"type": "array", "items": schema, "minItems": size, "maxItems": size}
    if not takes_bytes:
        return schema
    size = math.prod(shape) * np.dtype(space.dtype).itemsize
    about = f"{size} bytes of {np.dtype(space.dtype).name}, little-endian and in C order"
    return {"anyOf": [schema, _object({BASE64: {"type": "string", "description": about}})]}


def _number_schema(space: spaces.Space[Any]) -> Schema:
    """Return the schema of one number of a space that is no Dict, Tuple or Text."""
    if isinstance(space, spaces.Box):
        if np.issubdtype(space.dtype, np.floating):
            return {"type": "number"}
        low, high = (0, 1) if space.dtype == np.bool_ else (np.iinfo(space.dtype).min, np.iinfo(space.dtype).max)
        return {"type": ["integer", "boolean"], "minimum": int(low), "maximum": int(high)}
    first = np.asarray(getattr(space, "start", 0))
    last = first.reshape(-1) + np.array(num_choices(space)) - 1
    return {"type": ["integer", "boolean"], "minimum": int(first.min()), "maximum": int(last.max())}


def _request_schema(policy: LoadedPolicy) -> Schema:
    properties: dict[str, Schema] = {
        "observation": space_schema(policy.observation_space, takes_bytes=True),
        "reward": {"type": "number", "default": 0.0, "description": "reward of the previous action"},
        "reset": {"type": "boolean", "default": False, "description": "clear the memory before, for a new trial"},
        "episode_start": {
            "type": "boolean",
            "default": False,
            "description": "whether the observation is the first of a further episode of the trial",
        },
        "deterministic": {
            "type": ["boolean", "null"],
            "default": None,
            "description": "take the most likely action; null: as in the evaluation after training",
        },
    }
    required = ["observation"]
    if policy.needs_action_mask:
        size = sum(num_choices(policy.action_space))
        entry = {"type": ["boolean", "number"], "minimum": 0, "maximum": 1}
        properties["action_mask"] = {"type": "array", "items": entry, "minItems": size, "maxItems": size}
        required.append("action_mask")
    return {**_object(properties), "required": required}


def _object(properties: Mapping[str, Schema]) -> Schema:
    """Return the schema of an object with all of these properties and no others."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _operation(summary: str, answer: Schema | None, *refusals: int, status: int = 200) -> dict[str, Any]:
    success: dict[str, Any] = {"description": "done"}
    if answer is not None:
        success["content"] = _json(answer)
    return {"summary": summary, "responses": {str(status): success, **_refusals(*refusals)}}


def _refusals(*statuses: int) -> dict[str, Any]:
    return {str(status): {"description": _REFUSALS[status], "content": _json(_ERROR)} for status in statuses}


def _json(schema: Schema) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
