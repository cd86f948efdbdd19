"""Draw the learning curves of `paper_runs.json`, one panel a task.

    python benchmarks/paper_picture.py docs/paper_length.png

Evaluations during training, and last the one after it, of the policy that acts best. A panel has the success rate or
the return, as `measure` of its runs says.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from yamame.tools.palette import color
from yamame.tools.plots import compact, new_figure, plot_random_baseline, save

PANELS = {
    "MazeRunner 15 x 15 (figure 8)": {
        "seed 0": "maze-runner-15-seed0",
        "seed 1": "maze-runner-15-seed1",
        "seed 2": "maze-runner-15-seed2",
    },
    "Passive T-Maze (figure 5)": {"500 steps": "passive-tmaze-500-seed0", "1,500 steps": "passive-tmaze-1500-seed0"},
    "Package Delivery (figure 7)": {
        "AMAGO": "package-delivery-seed0",
        "AMAGO, twice the steps": "package-delivery-twice-seed0",
        "w/o relabeling": "package-delivery-no-relabeling-seed0",
    },
    "Wind (figure 5), default agent": {
        "seed 0": "wind-default-seed0",
        "seed 1": "wind-default-seed1",
        "seed 2": "wind-default-seed2",
    },
}
"""Title -> label -> run. The figures are the paper's."""
PAPER = {"Passive T-Maze (figure 5)": 1.0, "Wind (figure 5), default agent": 61.7}
"""What the paper's agent reaches, where its text has a number."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path, help="file that ends in .png, .svg or .pdf")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "paper_runs.json", metavar="PATH")
    options = parser.parse_args()
    draw(json.loads(options.json.read_text(encoding="utf-8"))["runs"], options.output)


def draw(records: dict[str, dict[str, Any]], output: Path) -> None:
    """Draw the panels of all runs that `records` has, into `output`."""
    figure, panels = new_figure(rows=2, columns=2, width=10.0, height=7.0)
    for axes, (title, runs) in zip(panels, PANELS.items(), strict=True):
        measure = ""
        for number, (label, name) in enumerate(runs.items()):
            if name not in records:
                continue
            record = records[name]
            measure = record["measure"]
            points = [
                (point["steps"], point["success" if measure == "success_rate" else "return"])
                for point in record["curve"]
            ]
            points.append((record["steps"], record[measure]))
            axes.plot(*zip(*points, strict=True), color=color(number), linewidth=1.5, label=label)
        plot_random_baseline(axes, PAPER.get(title), "the paper's agent")
        axes.set(
            title=title, xlabel="environment steps", ylabel="success rate" if measure == "success_rate" else "return"
        )
        axes.set_ylim(top=1.03 if measure == "success_rate" else None)
        axes.xaxis.set_major_formatter(compact)
        if axes.lines:
            axes.legend(frameon=False, fontsize=9)
    save(figure, output)


if __name__ == "__main__":
    main()
