"""Colors of lines and bars in all figures and in the viewer."""

COLORS = ("#4477aa", "#cc3311", "#228833", "#ee7733", "#aa3377", "#66ccee", "#ccbb44", "#000000")
"""Distinct for color-blind readers, too (Paul Tol's bright scheme); repeated with another line style."""
DARK_COLORS = ("#7aa6dc", "#ff7a5c", "#5cc46e", "#ffa366", "#dd77aa", "#88ddf5", "#ddcf66", "#e8e8e8")
"""The same on a dark background."""
RANDOM_COLOR = "#777777"
"""Color of random actions and other references."""
_GOLDEN_ANGLE = 137.508


def color(number: int) -> str:
    """Return the color of a line, bar or band by its number."""
    return COLORS[number % len(COLORS)]


def screen_colors(number: int) -> tuple[str, str]:
    """Return the color of a line on light and on dark pages, which has no line style: beyond `COLORS` other hues."""
    if number < len(COLORS):
        return COLORS[number], DARK_COLORS[number]
    hue = round(number * _GOLDEN_ANGLE % 360)
    return f"hsl({hue} 55% 42%)", f"hsl({hue} 55% 68%)"
