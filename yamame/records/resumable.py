"""Things that can be put back exactly where they stood: what a run needs to go on as if it had never been killed."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

State = Mapping[str, Any]
"""A nest of dicts, lists, tuples, arrays, tensors, numbers, strings and None, which a checkpoint can hold."""


@runtime_checkable
class Resumable(Protocol):
    """Something whose future follows from its `state_dict`."""

    def state_dict(self) -> State | None:
        """Where it stands, sharing no memory with it; None where it is made of parts that cannot tell."""
        ...

    def load_state_dict(self, state: State) -> None:
        """Go on where a like one stood."""
        ...


def attributes_of(owner: object, names: Sequence[str]) -> dict[str, Any]:
    """Copies of some attributes, by name."""
    return {name: copy.deepcopy(getattr(owner, name)) for name in names}


def set_attributes(owner: object, state: State) -> None:
    """Attributes from copies of what is given by name."""
    for name, value in state.items():
        setattr(owner, name, copy.deepcopy(value))


def state_over(part: object, owner: object, names: Sequence[str]) -> State | None:
    """The state of an owner whose future follows from that of a part and some attributes; None if the part has none."""
    inside = part.state_dict() if isinstance(part, Resumable) else None
    return None if inside is None else {"inside": inside, "own": attributes_of(owner, names)}


def set_state_over(part: object, owner: object, state: State) -> None:
    """Put part and owner back where those stood that gave the state."""
    assert isinstance(part, Resumable)
    part.load_state_dict(state["inside"])
    set_attributes(owner, state["own"])
