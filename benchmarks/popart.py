"""The paper's figure 11: LunarLander with rewards x1, x10 and x800, with PopArt and without, as one plot.

python benchmarks/popart.py [--env-steps 300000] [--seeds 0 1 2] [--runs runs/popart] [--output docs/popart.png]

Six runs for each seed, one after the other. A finished run is kept and a stopped one is resumed, so the
same command can be given again at any time; Ctrl-C stops with a checkpoint.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import yamame
from yamame.errors import UserError
from yamame.metrics.registry import RETURN, read_metrics
from yamame.runs.directory import CONFIG
from yamame.training.run_files import read_result

matplotlib.use("Agg")
from matplotlib import pyplot

PANELS = {
    RETURN: "return of training trials",
    "optim/grad_norm": "gradient norm before clipping",
    "loss/policy_gradient": "size of the policy's loss",
    "loss/td": "loss of the critics",
}
"""Metric -> title. All but the first are plotted as magnitudes on a logarithmic axis."""
COLORS = {1: "#4477aa", 10: "#228833", 800: "#ee6677"}
SMOOTHING = 20
"""Points of a curve: means over so many equal parts of the run."""


@dataclass(frozen=True)
class Cell:
    """One of the six kinds of run."""

    reward_scale: int
    popart: bool

    @property
    def name(self) -> str:
        return f"x{self.reward_scale}-{'popart' if self.popart else 'no-popart'}"

    @property
    def label(self) -> str:
        return f"x{self.reward_scale}, {'with' if self.popart else 'without'} PopArt"


CELLS = [Cell(scale, popart) for popart, scale in product((True, False), COLORS)]


def main() -> int:
    options = parse(sys.argv[1:])
    try:
        for seed, cell in product(options.seeds, CELLS):
            if not train(cell, seed, options.runs, options.env_steps):
                return 1
            draw(options.output, options.runs, options.seeds)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"plot: {options.output}")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    summary, *_ = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--env-steps", type=int, default=300_000, help="length of each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one run of each kind for each")
    parser.add_argument("--runs", type=Path, default=Path("runs/popart"), help="folder of the run directories")
    parser.add_argument("--output", type=Path, default=Path("docs/popart.png"), help="file of the plot")
    return parser.parse_args(arguments)


def train(cell: Cell, seed: int, runs: Path, env_steps: int) -> bool:
    """Bring one run to its end, from wherever it stands; False if a signal stopped it."""
    directory = runs / f"{cell.name}-seed{seed}"
    started = (directory / CONFIG).exists()
    result = read_result(directory) if started else None
    if result and result["env_steps"] >= env_steps:
        return True
    print(f"{cell.label}, seed {seed}: {directory}", flush=True)
    if started:
        run = yamame.resume(directory, env_steps=env_steps, quiet=False)
    else:
        settings: dict[str, Any] = {"learner.td.reward_scale": float(cell.reward_scale)}
        variants = () if cell.popart else ("no-popart",)
        run = yamame.train(
            "lunar-lander",
            variants=variants,
            run_dir=directory,
            quiet=False,
            env_steps=env_steps,
            context_length=128,
            seed=seed,
            **settings,
        )
    return "stopped_by" not in run.result


def draw(output: Path, runs: Path, seeds: Sequence[int]) -> None:
    """All curves that there are, as means over the seeds with their range shaded."""
    figure, panels = pyplot.subplots(2, 2, figsize=(10, 6.4), layout="constrained", sharex=True)
    for axes, (metric, title) in zip(panels.flat, PANELS.items(), strict=True):
        for cell in CELLS:
            curves = [curve for seed in seeds if (curve := read_curve(runs / f"{cell.name}-seed{seed}", metric))]
            if curves:
                draw_curves(axes, cell, curves)
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        if metric != RETURN:
            axes.set_yscale("log")
    for axes in panels[1]:
        axes.set_xlabel("environment steps")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=150)
    pyplot.close(figure)


def read_curve(directory: Path, metric: str) -> list[tuple[float, float]]:
    """(environment steps, value), averaged over equal parts of a run; sizes for all metrics but the return."""
    lines = [line for line in read_metrics(directory) if line.get(metric) is not None]
    parts = np.array_split(np.arange(len(lines)), min(SMOOTHING, len(lines)) or 1)
    sign = (lambda value: value) if metric == RETURN else abs
    return [
        (float(np.mean([lines[i]["env_steps"] for i in part])), float(np.mean([sign(lines[i][metric]) for i in part])))
        for part in parts
        if len(part)
    ]


def draw_curves(axes: Any, cell: Cell, curves: Sequence[Sequence[tuple[float, float]]]) -> None:
    shortest = min(len(curve) for curve in curves)
    points = np.array([curve[:shortest] for curve in curves])
    steps, values = points[:, :, 0].mean(axis=0), points[:, :, 1]
    color, style = COLORS[cell.reward_scale], "-" if cell.popart else "--"
    axes.plot(steps, values.mean(axis=0), style, color=color, label=cell.label)
    if len(values) > 1:
        axes.fill_between(steps, values.min(axis=0), values.max(axis=0), color=color, alpha=0.15, linewidth=0)


if __name__ == "__main__":
    sys.exit(main())
