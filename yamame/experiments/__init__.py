"""Experiments of the paper: every module of this package is one figure or table, with its runs and published numbers.

A module defines `EXPERIMENT`; `yamame reproduce NAME` trains its runs and draws it.
"""

import csv
import difflib
import importlib
import pkgutil
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from yamame.errors import UserError

Score = Literal["return", "best_return", "success_rate", "progress"]
"""Final mean return; the maximum over all evaluations (MMER); fraction of completed trials; return per sub-goal."""
AMAGO = "AMAGO"
"""Label of the full agent, as in the paper."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One agent on one task, with what the paper says of it."""

    label: str
    """As in the paper."""
    recipe: str
    flags: tuple[str, ...] = ()
    """Flags of the recipe, such as `("--env.size", "9")`."""
    variants: tuple[str, ...] = ()
    published: float | None = None
    """Score in the paper; None: unknown."""
    published_curve: tuple[tuple[float, float], ...] = ()
    """Points of the learning curve in the paper, in units of the panel's axes."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Arms that are compared on one task, and drawn in one pair of axes or one group of bars."""

    title: str
    arms: tuple[Arm, ...]
    score: Score = "return"
    x_axis: Literal["env_steps", "updates"] = "env_steps"
    """Horizontal axis of learning curves."""
    instructions: tuple[str, ...] = ()
    """An evaluation after training for each, the score is their mean; empty: those that the task samples."""
    references: tuple[tuple[str, float], ...] = ()
    """Scores of other methods in the paper, by name."""


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """A figure of `yamame figure` from the first seed of an arm."""

    title: str
    figure: str
    """Name of the figure; one without an arm makes its own measurements."""
    arm: Arm | None = None
    flags: tuple[str, ...] = ()
    """Flags of the figure."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A figure or table of the paper."""

    title: str
    source: str
    """Where the paper has it, and where its numbers are from."""
    panels: tuple[Panel, ...] = ()
    style: Literal["curves", "bars"] = "curves"
    """Learning curves in a panel each, or one chart of final scores with a group of bars for each panel."""
    analyses: tuple[Analysis, ...] = ()
    notes: tuple[str, ...] = ()
    """What differs from the paper, and what is not known of it."""

    @property
    def arms(self) -> list[Arm]:
        """All arms that are trained, those of analyses included."""
        of_analyses = [each.arm for each in self.analyses if each.arm is not None]
        return [*(arm for panel in self.panels for arm in panel.arms), *of_analyses]


def experiment_names() -> tuple[str, ...]:
    """Return the names of all experiments, figures first, in the order of their numbers."""
    modules = [module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg]
    return tuple(sorted((name.replace("_", "-") for name in modules), key=_by_number))


def load_experiment(name: str) -> Experiment:
    """Return an experiment by name. Raises `UserError` with the nearest name if there is none."""
    if name not in experiment_names():
        nearest = difflib.get_close_matches(name, experiment_names(), n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else "yamame reproduce lists them"
        raise UserError(f"unknown experiment {name!r}: {hint}")
    experiment: Experiment = importlib.import_module(f"{__name__}.{name.replace('-', '_')}").EXPERIMENT
    return experiment


def read_table(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file of `data/`."""
    text = (files("yamame.experiments") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def figure_5_curve(panel: str, series: str, unit: float) -> tuple[tuple[float, float], ...]:
    """Return points of a curve of figure 5, its x values multiplied by `unit`."""
    rows = (row for row in read_table("fig5_curves.csv") if (row["panel"], row["series"]) == (panel, series))
    return tuple((max(0.0, float(row["x"]) * unit), float(row["y"])) for row in rows)


def _by_number(name: str) -> tuple[bool, int, str]:
    digits = "".join(filter(str.isdigit, name))
    return not name.startswith("fig"), int(digits or 0), name
