"""`Fault`: what an environment did wrong, for which it was made anew."""

from dataclasses import dataclass
from typing import Literal

FaultKind = Literal["raised", "not_finite", "wrong_shape", "died", "hung"]
"""An exception; NaN or infinity; what does not fit the spaces; the end of a process; a process that does not answer."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One failure of one environment, of a worker process with several, or of a whole vector environment."""

    kind: FaultKind
    message: str
    """One line that names the environment."""
    trace: str = ""
    """The environment's traceback, if it raised."""
