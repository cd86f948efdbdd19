"""What a study is: panels of arms, with what the paper and others published of them."""

import csv
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

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
    algorithm: str | None = None
    """Name of the algorithm, as in `yamame train --algorithm`; None: that of the recipe."""
    histories: int = 0
    """Learning histories of a scripted learner that are written before the run, as its `--offline.data`."""
    flags: tuple[str, ...] = ()
    """Flags of the recipe, such as `("--env.size", "9")`."""
    variants: tuple[str, ...] = ()
    published: float | None = None
    """Score in the paper; None: unknown."""
    published_curve: tuple[tuple[float, float], ...] = ()
    """Points of the learning curve in the paper, in units of the panel's axes."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Scale of standardized scores."""

    lower: float
    """Score that counts as 0."""
    upper: float | None
    """Score that counts as 1; None: unknown."""
    is_exact: bool = True
    """Whether both bounds are those that the paper used."""

    def standardized(self, score: float) -> float | None:
        """Return the score on the scale from `lower` (0) to `upper` (1); it may lie outside. None: unknown bound."""
        return None if self.upper is None else (score - self.lower) / (self.upper - self.lower)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Arms that are compared on one task, and drawn in one pair of axes or one group of bars."""

    title: str
    arms: tuple[Arm, ...]
    score: Score = "return"
    x_axis: Literal["env_steps", "updates", "attempts"] = "env_steps"
    """Horizontal axis of learning curves, or `attempts`: returns of the attempts of a trial, after training."""
    instructions: tuple[str, ...] = ()
    """An evaluation after training for each, the score is their mean; empty: those that the task samples."""
    references: tuple[tuple[str, float | None], ...] = ()
    """Published scores of other methods, by name; None: unknown."""
    bounds: Bounds | None = None
    """Scale of standardized scores, if they are published."""
    difficulty: str = ""
    """Of the environment of a benchmark."""
    known_budget: str = ""
    """Smallest `--budget` of the small preset at which the full agent is known to learn, with what it reached
    (docs/results.md); "": not known."""

    def published(self, method: str) -> float | None:
        """Return the published score of another method; None: unknown."""
        return dict(self.references).get(method)


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
class Study:
    """A figure or table of the paper, or the runs of a sweep."""

    name: str
    """As `yamame reproduce NAME` has it."""
    title: str
    source: str = ""
    """Where the paper has it, and where its numbers are from."""
    panels: tuple[Panel, ...] = ()
    style: Literal["curves", "bars"] = "curves"
    """Learning curves in a panel each, or one chart of final scores with a group of bars for each panel."""
    analyses: tuple[Analysis, ...] = ()
    notes: tuple[str, ...] = ()
    """What differs from the paper, and what is not known of it."""
    benchmark: str = ""
    """Name in `yamame sweep NAME`, where the panels are environments of one recipe, by the title of the panel."""
    variants: tuple[str, ...] = ()
    """Arms of the benchmark beside the unmodified recipe, unless the user names others."""

    @property
    def arms(self) -> list[Arm]:
        """All arms that are trained, those of analyses included."""
        of_analyses = [each.arm for each in self.analyses if each.arm is not None]
        return [*(arm for panel in self.panels for arm in panel.arms), *of_analyses]


def read_table(name: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file of `data/`."""
    text = (files("yamame.studies") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
