"""The picture of a comparison: a learning curve with a confidence band for each arm."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from yamame.ablate.curves import Curve
from yamame.ablate.results import AblationResults
from yamame.run.figures import RANDOM_COLOR, axes_in

COLORS = ("#4477aa", "#cc3311", "#228833", "#ee7733", "#aa3377", "#66ccee", "#ccbb44", "#000000")
"""The first is that of `full`; after the last they begin anew, with dashes and dots."""
RANDOM = "random actions"
LETTERS_A_LINE = 90
"""How much text a line of the legend holds."""


def draw_curves(path: Path, results: AblationResults) -> None:
    """Evaluation return against environment steps: mean over seeds, 95 % band, random actions as a dashed line."""
    from matplotlib.ticker import EngFormatter

    arms = [(arm.arm.name, arm.curve) for arm in results.arms if arm.curve]
    labels = [name for name, _ in arms] + [RANDOM] * (results.random_return is not None)
    columns = _columns(labels)
    with axes_in(path, height=4.2 + 0.25 * -(-len(labels) // columns)) as axes:
        for number, (name, curve) in enumerate(arms):
            _draw_curve(axes, curve, name, number)
        if results.random_return is not None:
            axes.axhline(results.random_return, color=RANDOM_COLOR, linestyle="--", linewidth=1.2, label=RANDOM)
        axes.set(xlabel="environment steps", ylabel="mean return of an evaluation", title=results.recipe)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        if labels:
            axes.legend(frameon=False, fontsize=9, ncols=columns, loc="upper center", bbox_to_anchor=(0.5, -0.14))


def _draw_curve(axes: Any, curve: Curve, label: str, number: int) -> None:
    """The first curve lies on top of the others, and all lines on top of the bands."""
    color, style = COLORS[number % len(COLORS)], "-" if number < len(COLORS) else "-."
    if curve.ci95 is not None:
        axes.fill_between(curve.env_steps, *curve.ci95, color=color, alpha=0.15, linewidth=0)
    on_top = {"color": color, "zorder": 3 - number / 100}
    axes.plot(curve.env_steps, curve.mean, linestyle=style, linewidth=2, label=label, **on_top)
    if curve.solved or len(curve.mean) == 1:
        axes.plot(curve.env_steps[-1], curve.mean[-1], "o", markersize=6, **on_top)


def _columns(labels: Sequence[str]) -> int:
    """Of a legend that is as wide as the axes."""
    longest = max(map(len, labels), default=1) + 6  # the line before the text
    return max(1, min(len(labels), LETTERS_A_LINE // longest))
