"""JSON responses of files that may hold anything: JSON has no NaN and no infinity."""

import math
from typing import Any

from starlette.responses import JSONResponse


class FiniteJSONResponse(JSONResponse):
    """A JSON response in which numbers that are not finite are null."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        try:
            return super().render(content)
        except ValueError:
            return super().render(_finite(content))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return value
