"""The *Curves* view's answers."""

from starlette.routing import Route

from yamame.viewer.catalogue import Catalogue


def routes(catalogue: Catalogue) -> list[Route]:
    """None as yet."""
    return []
