"""Tables in Markdown that are readable as plain text too."""

from collections.abc import Sequence


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be: the first one to the left, numbers to the right."""
    every = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    lines = [_line(row, widths) for row in every]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def number(value: float | None) -> str:
    """Three decimals; a dash where nothing is known."""
    return "-" if value is None else f"{value:.3f}"


def interval(ci95: tuple[float, float] | None) -> str:
    """Both ends in brackets, after a space; nothing where there is none."""
    return "" if ci95 is None else f" [{ci95[0]:.3f}, {ci95[1]:.3f}]"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return "| " + " | ".join([first, *(cell.strip().rjust(len(cell)) for cell in others)]) + " |"
