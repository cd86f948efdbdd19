"""The environments inside an environment: what its wrappers wrap, Gymnasium's and others."""

from collections.abc import Iterator
from typing import Any


def wrapper_chain(env: Any) -> Iterator[Any]:
    """Yield an environment, the one that it wraps as `env` or `_env`, and so on, outermost first."""
    seen: set[int] = set()
    while env is not None and id(env) not in seen:
        seen.add(id(env))
        yield env
        attributes = vars(env) if hasattr(env, "__dict__") else {}
        env = attributes.get("env", attributes.get("_env"))
