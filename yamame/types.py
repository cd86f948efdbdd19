"""Types shared by all layers: resumable state, environment faults and ends of pipes."""

import copy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

if sys.platform == "win32":  # where the two ends of `multiprocessing.Pipe` have another class
    from multiprocessing.connection import PipeConnection

    Connection = PipeConnection
else:
    from multiprocessing.connection import Connection as Connection

State = Mapping[str, Any]
"""Nested dicts, lists, tuples, arrays, tensors, numbers, strings and None, which a checkpoint can store."""


@runtime_checkable
class Stateful(Protocol):
    """An object whose future behavior is determined by its `state_dict`."""

    def state_dict(self) -> State | None:
        """Return the state, sharing no memory with the object; None if a component cannot save its state."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Restore the state of an object that was constructed alike."""
        ...


def get_attributes(owner: object, names: Sequence[str]) -> dict[str, Any]:
    """Return deep copies of the named attributes."""
    return {name: copy.deepcopy(getattr(owner, name)) for name in names}


def set_attributes(owner: object, state: State) -> None:
    """Set attributes, by name, to deep copies of the given values."""
    for name, value in state.items():
        setattr(owner, name, copy.deepcopy(value))


def nested_state_dict(inner: object, owner: object, names: Sequence[str]) -> State | None:
    """Return the state of `inner` and the named attributes of `owner`; None if `inner` cannot save its state."""
    inside = inner.state_dict() if isinstance(inner, Stateful) else None
    return None if inside is None else {"inside": inside, "own": get_attributes(owner, names)}


def load_nested_state_dict(inner: object, owner: object, state: State) -> None:
    """Restore `inner` and `owner` from the result of `nested_state_dict`."""
    assert isinstance(inner, Stateful)
    inner.load_state_dict(state["inside"])
    set_attributes(owner, state["own"])


FaultKind = Literal["exception", "nonfinite", "shape_mismatch", "worker_died", "timeout"]
"""Raised an exception; returned NaN or infinity; violated its spaces; its process ended; its process did not reply."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One failure of one environment, of a worker process with several, or of a whole vector environment."""

    kind: FaultKind
    message: str
    """One line that names the environment."""
    traceback: str = ""
    """Traceback of the environment's exception; empty if it raised none."""
