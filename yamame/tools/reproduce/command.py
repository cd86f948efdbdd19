"""Command-line interface of `yamame reproduce`."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yamame.errors import UserError
from yamame.tools.options import add_command, add_flags

if TYPE_CHECKING:
    from yamame.experiments import Analysis, Experiment
    from yamame.tools.reproduce.plan import PlannedArm

DEFAULT_DIR = Path("reproductions")
"""Parent of the results without `--output-dir`."""


def register(subparsers: Any) -> None:
    """Add the command to a parser."""
    reproduce = add_command(
        subparsers,
        "reproduce",
        _reproduce,
        help="train the runs of a figure or table of the paper and draw it; lists them if NAME is omitted; resumes",
        usage="yamame reproduce NAME [--preset small|paper] [--seeds 0,1,2] [--budget FRACTION] [--panels A,B] "
        "[--size SIZE] [--output-dir DIR] [--cost | --report-only] [--json] [--quiet] [--FIELD VALUE]",
        description="Other flags are fields of the recipes, for all runs. Experiments in one directory share the runs "
        "that they have in common. Run the same command again to resume.",
    )
    reproduce.add_argument("name", metavar="NAME", nargs="?", help="figure or table, such as fig7; omitted: list all")
    reproduce.add_argument("--preset", metavar="NAME", default="small", help="small: for a CPU; paper: as in the paper")
    reproduce.add_argument("--seeds", metavar="0,1,2", default="0", help="seeds of each arm (default: 0)")
    reproduce.add_argument(
        "--budget", type=float, metavar="FRACTION", default=1.0, help="fraction of the environment steps (default: 1)"
    )
    reproduce.add_argument("--panels", metavar="A,B", help="titles of some panels or analyses (default: all)")
    reproduce.add_argument("--size", metavar="SIZE", help="network size: tiny, small, base or large (default: preset)")
    reproduce.add_argument(
        "--output-dir", type=Path, metavar="DIR", help="directory of runs and results (default: reproductions/PRESET)"
    )
    only = reproduce.add_mutually_exclusive_group()
    only.add_argument("--cost", action="store_true", help="print what the runs will cost, without training")
    only.add_argument("--report-only", action="store_true", help="draw the finished runs, without training")
    add_flags(reproduce, "--json", "--quiet")


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Results of an experiment, and what became of its runs."""

    results: dict[str, Any]
    text: str
    exit_code: int
    """1 if a run failed."""


def reproduce(
    name: str,
    *,
    preset: str = "small",
    seeds: str = "0",
    budget: float = 1.0,
    panels: str | None = None,
    size: str | None = None,
    output_dir: Path | None = None,
    cost: bool = False,
    report_only: bool = False,
    flags: Sequence[str] = (),
    quiet: bool = False,
    train: Any = None,
) -> Reproduction:
    """Train the runs of an experiment that are missing; write its plot, its table and its results.

    The arguments are those of `yamame reproduce`; `train` trains one planned run (default: `train_or_resume`). Raises
    `UserError` for an unknown name, bad flags, or a directory that holds other runs.
    """
    from yamame.experiments import load_experiment
    from yamame.runs.durable_files import replace_atomically, write_json
    from yamame.tools.reproduce import report
    from yamame.tools.reproduce.cost import estimate
    from yamame.tools.reproduce.plan import plan_arms
    from yamame.tools.reproduce.results import collect_scores
    from yamame.tools.sweep import runs
    from yamame.tools.sweep.command import make_directory

    if not 0 < budget <= 1:
        raise UserError(f"--budget {budget:g}: give a fraction above 0 and at most 1")
    experiment = _choose_panels(load_experiment(name), panels)
    directory = output_dir or DEFAULT_DIR / (preset if budget == 1 else f"{preset}-{budget:g}")
    arms = plan_arms(
        experiment,
        directory,
        preset=preset,
        seeds=runs.choose_seeds(seeds),
        budget=budget,
        flags=flags,
        size=size,
    )
    planned = [run for arm in arms for run in arm.runs]
    outcome = runs.Outcome()
    if report_only and not directory.is_dir():
        raise UserError(f"{directory} does not exist: yamame reproduce {name} makes it, or name another --output-dir")
    if not (report_only or cost):
        make_directory(directory)
    if not report_only:
        price = estimate(arms)
        if cost:
            as_json = {"experiment": name, **vars(price)}
            return Reproduction(results=as_json, text=f"{name}: {price.to_text()}", exit_code=0)
        print(f"{name}: {price.to_text()}", file=sys.stderr, flush=True)
        outcome = runs.execute(planned, quiet=quiet, train=train or runs.train_or_resume)
    if outcome.stopped_by:
        text = f"Stopped by {outcome.stopped_by}; run the same command again to resume."
        return Reproduction(
            results={"experiment": name, "stopped_by": outcome.stopped_by}, text=text, exit_code=bool(outcome.failed)
        )
    scores = collect_scores(experiment, arms, directory)
    plots = _draw(name, experiment, arms, scores, directory)
    results = {
        "experiment": name,
        "preset": preset,
        "budget": budget,
        "panels": [panel.to_json() for panel in scores],
        "plots": [str(path) for path in plots],
        "failed": outcome.failed,
    }
    table = report.to_markdown(experiment, scores)
    write_json(directory / f"{name}.json", results)
    images = "\n".join(f"![{path.name}]({path.name})" for path in plots)
    with replace_atomically(directory / f"{name}.md") as partial:
        partial.write_text(f"{table}\n{images}\n", encoding="utf-8")
    lines = [table, *(f"Plot: {path}" for path in plots)]
    lines += [f"Failed: {title}: {error}" for title, error in outcome.failed.items()]
    lines += [f"In progress in another process: {title}" for title in outcome.in_progress]
    return Reproduction(results=results, text="\n".join(lines), exit_code=1 if outcome.failed else 0)


def _choose_panels(experiment: "Experiment", titles: str | None) -> "Experiment":
    """Return the experiment with some of its panels and analyses. Raises `UserError` for an unknown title."""
    if titles is None:
        return experiment
    known = [*(panel.title for panel in experiment.panels), *(each.title for each in experiment.analyses)]
    chosen = [title.strip() for title in titles.split(",") if title.strip()]
    if not chosen:
        raise UserError(f"--panels is empty: choose among {'; '.join(known)}")
    found = [title for title in known if any(title.lower().startswith(name.lower()) for name in chosen)]
    for name in chosen:
        if not any(title.lower().startswith(name.lower()) for title in known):
            raise UserError(f"--panels: no panel starts with {name!r}: choose among {'; '.join(known)}")
    return replace(
        experiment,
        panels=tuple(panel for panel in experiment.panels if panel.title in found),
        analyses=tuple(each for each in experiment.analyses if each.title in found),
    )


def _draw(
    name: str, experiment: "Experiment", arms: "Sequence[PlannedArm]", scores: Any, directory: Path
) -> list[Path]:
    """Write the plots of panels and analyses; return their paths."""
    from yamame.tools.plots import save
    from yamame.tools.reproduce import report

    plots = []
    if scores:
        plots.append(directory / f"{name}.png")
        save(report.plot(experiment, scores), plots[-1])
    for analysis in experiment.analyses:
        run = _run_of(analysis, arms)
        if analysis.arm is not None and run is None:
            continue
        suffix = analysis.title.lower().replace(" ", "-")
        plots.append(directory / f"{name}-{suffix}.png")
        save(_draw_analysis(analysis, run), plots[-1])
    return plots


def _run_of(analysis: "Analysis", arms: "Sequence[PlannedArm]") -> Path | None:
    """Return the directory of the first finished seed of the analysis's arm; None without one."""
    from yamame.tools.reproduce.plan import finished_result

    of_arm = [run for each in arms if each.arm == analysis.arm for run in each.runs]
    return next((run.directory for run in of_arm if finished_result(run) is not None), None)


def _draw_analysis(analysis: "Analysis", run: Path | None) -> Any:
    from yamame.config.flags import parse_flags
    from yamame.tools.figure import load_figure

    spec = load_figure(analysis.figure)
    options = parse_flags(spec.options, list(analysis.flags), f"yamame figure {spec.name}")
    return spec.draw([] if run is None else [run], options)


def _reproduce(options: argparse.Namespace, rest: list[str]) -> int:
    from yamame.experiments import experiment_names, load_experiment

    if options.name is None:
        if rest:
            raise UserError("NAME is missing: yamame reproduce lists the experiments")
        for name in experiment_names():
            experiment = load_experiment(name)
            print(f"{name:7}  {experiment.title} ({experiment.source})")
        return 0
    of_commands = ("command", "parser", "json", "modules")
    arguments = {name: value for name, value in vars(options).items() if name not in of_commands}
    result = reproduce(flags=rest, **arguments)
    print(json.dumps(result.results) if options.json else result.text)
    return result.exit_code
