"""`Fault`: what an environment did wrong, for which it was made anew."""

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["exception", "nonfinite_rows", "shape_mismatch", "worker_died", "timeout"]
"""An exception; NaN or infinity; what does not fit the spaces; the end of a process; a process that does not answer."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One failure of one environment, of a worker process with several, or of a whole vector environment."""

    kind: FaultKind
    message: str
    """One line that names the environment."""
    traceback: str = ""
    """The environment's traceback, if it raised."""
