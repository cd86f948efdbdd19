"""Things that can be put back exactly where they stood: what a run needs to go on as if it had never been killed."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

State = Mapping[str, Any]
"""A nest of dicts, lists, tuples, arrays, tensors, numbers, strings and None, which a checkpoint can hold."""


@runtime_checkable
class Stateful(Protocol):
    """Something whose future follows from its `state_dict`."""

    def state_dict(self) -> State | None:
        """Where it stands, sharing no memory with it; None where it is made of parts that cannot tell."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Go on where a like one stood."""
        ...


def get_attributes(owner: object, names: Sequence[str]) -> dict[str, Any]:
    """Copies of some attributes, by name."""
    return {name: copy.deepcopy(getattr(owner, name)) for name in names}


def set_attributes(owner: object, state: State) -> None:
    """Attributes from copies of what is given by name."""
    for name, value in state.items():
        setattr(owner, name, copy.deepcopy(value))


def nested_state_dict(part: object, owner: object, names: Sequence[str]) -> State | None:
    """The state of an owner whose future follows from that of a part and some attributes; None if the part has none."""
    inside = part.state_dict() if isinstance(part, Stateful) else None
    return None if inside is None else {"inside": inside, "own": get_attributes(owner, names)}


def load_nested_state_dict(part: object, owner: object, state: State) -> None:
    """Put part and owner back where those stood that gave the state."""
    assert isinstance(part, Stateful)
    part.load_state_dict(state["inside"])
    set_attributes(owner, state["own"])


FaultKind = Literal["exception", "nonfinite", "shape_mismatch", "worker_died", "timeout"]
"""An exception; NaN or infinity; what does not fit the spaces; the end of a process; a process that does not answer."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One failure of one environment, of a worker process with several, or of a whole vector environment."""

    kind: FaultKind
    message: str
    """One line that names the environment."""
    traceback: str = ""
    """The environment's traceback, if it raised."""
