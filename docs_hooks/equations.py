"""Equations as inline SVG, drawn by matplotlib when the site is built: no script and no font has to be fetched."""

import html
import re
from functools import cache
from typing import Any

from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import text_to_path

_ARITHMATEX = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
_FONT = FontProperties(size=100, math_fontfamily="stix")
_EM = 84.0
"""Units of the drawing that are as large as the text around it."""
_COMMANDS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}


def on_page_content(page_html: str, **_: Any) -> str:
    """The page with every `$...$` and `$$...$$` drawn. ValueError for what matplotlib's mathtext cannot read."""
    return _ARITHMATEX.sub(lambda found: drawn(html.unescape(found[2]), block=found[1] == "div"), page_html)


@cache
def drawn(equation: str, *, block: bool) -> str:
    """The element that shows an equation; its source is what a screen reader says."""
    equation = " ".join(equation.split())
    text = f"${equation}$"
    width, height, descent = text_to_path.get_text_width_height_descent(text, _FONT, ismath=True)
    vertices, codes = text_to_path.get_text_path(_FONT, text, ismath=True)
    # 3 units of air, as italics lean out of their box
    box = f"-3 {-(height - descent) - 3:.0f} {width + 6:.0f} {height + 6:.0f}"
    size = f"width:{(width + 6) / _EM:.3f}em;height:{(height + 6) / _EM:.3f}em"
    label = html.escape(equation, quote=True)
    start = f'<svg class="equation" role="img" aria-label="{label}" viewBox="{box}" style="{size}'
    path = f'<path d="{_outline(Path(vertices, codes))}"/></svg>'
    if block:
        return f'<div class="equation">{start}">{path}</div>'
    return f'{start};vertical-align:{-(descent + 3) / _EM:.3f}em">{path}'


def _outline(path: Path) -> str:
    """As SVG has it, y pointing down."""
    parts = []
    for points, code in path.iter_segments(curves=True, simplify=False):
        numbers = " ".join(f"{x:.0f} {-y:.0f}" for x, y in points.reshape(-1, 2)) if code != Path.CLOSEPOLY else ""
        parts.append(_COMMANDS[code] + numbers)
    return "".join(parts)
