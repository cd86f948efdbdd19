"""What a run on Crafter can do: each of the 22 achievements by itself, and the instructions of the paper's figure 9.

python benchmarks/crafter_goals.py RUN [--trials 32] [--compare OTHER ...]

Success rates with 95 % intervals, as a table on stdout and as bars in RUN/crafter_goals.png. Other runs, such as those
of an ablation, stand beside the first.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from yamame.envs.crafter.config import CrafterConfig
from yamame.envs.crafter.goals import ACHIEVEMENTS, achievement_goal, goal_text
from yamame.errors import UserError
from yamame.metrics.confidence import wilson_ci95
from yamame.tools.plots import figure_axes
from yamame.training.run_files import read_config
from yamame.training.start import evaluate_run as evaluate_run

FIGURE_9 = (
    "place table",
    "defeat zombie",
    "make wood sword",
    "collect stone",
    "make stone pickaxe",
    "place furnace",
    "collect coal",
    "eat cow, make stone pickaxe, collect coal, make wood sword, defeat zombie",
)
"""The paper's instructions; the last bar is that of `RANDOM`."""
RANDOM = ""
"""Instructions as the task samples them."""
TRAVEL = "travel to (30, 30)"
COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--compare", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    singles = [goal_text(achievement_goal(name)) for name in ACHIEVEMENTS]
    instructions = list(dict.fromkeys([*singles, TRAVEL, *FIGURE_9, RANDOM]))
    runs = [options.run, *options.compare]
    try:
        for run in runs:
            _require_instructions(run)
    except UserError as problem:
        print(problem, file=sys.stderr)
        return 2
    print(f"| instruction | {' | '.join(run.name for run in runs)} |\n|---|{'---|' * len(runs)}", flush=True)
    success: dict[str, list[float]] = {}
    for instruction in instructions:
        try:
            success[instruction] = [_success(run, instruction, options.trials) for run in runs]
        except UserError as problem:
            print(f"{instruction}: {problem}", file=sys.stderr)
            return 2
        cells = (f"{rate:.2f} {_interval(rate, options.trials)}" for rate in success[instruction])
        print(f"| {_name(instruction)} | {' | '.join(cells)} |", flush=True)
    shown = [*singles, TRAVEL, FIGURE_9[-1], RANDOM]
    draw(options.run / "crafter_goals.png", [_name(each) for each in shown], runs, [success[each] for each in shown])
    print(f"Plot: {options.run / 'crafter_goals.png'}", file=sys.stderr)
    return 0


def _require_instructions(run: Path) -> None:
    env = read_config(run).env
    if not isinstance(env, CrafterConfig) or env.undirected:
        raise UserError(f"{run} is a run of {env.task_name}: give one of crafter without --env.undirected")


def _success(run: Path, instruction: str, trials: int) -> float:
    return float(evaluate_run(run, trials=trials, seed=None, instruction=instruction)["success_rate"])


def _name(instruction: str) -> str:
    return instruction or "all random instructions"


def _interval(rate: float, trials: int) -> str:
    low, high = wilson_ci95(np.array([rate * trials]), np.array([float(trials)]))
    return f"[{low[0]:.2f}, {high[0]:.2f}]"


def draw(path: Path, names: Sequence[str], runs: Sequence[Path], success: Sequence[Sequence[float]]) -> None:
    """A bar for each instruction and run."""
    places = np.arange(len(names), dtype=np.float64)
    thickness = 0.8 / len(runs)
    with figure_axes(path, height=1.2 + 0.28 * len(names)) as axes:
        for index, run in enumerate(runs):
            rates = [each[index] for each in success]
            color = COLORS[index % len(COLORS)]
            axes.barh(places + (index - (len(runs) - 1) / 2) * thickness, rates, thickness, color=color, label=run.name)
        axes.set_yticks(places, [name if len(name) < 40 else f"{name[:37]}…" for name in names])
        axes.invert_yaxis()
        axes.set(xlabel="success rate", xlim=(0, 1))
        axes.legend(frameon=False, fontsize=9, loc="lower right")


if __name__ == "__main__":
    sys.exit(main())
