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
    from yamame.studies.base import Study

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
        "[--size SIZE] [--output-dir DIR] [--runs DIR] [--list | --cost | --report-only] [--json] [--quiet] "
        "[--FIELD VALUE]",
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
        "--output-dir",
        type=Path,
        metavar="DIR",
        help="directory of runs and results (default: reproductions/PRESET, or "
        "reproductions/PRESET-FRACTION with --budget FRACTION)",
    )
    reproduce.add_argument(
        "--runs",
        type=Path,
        metavar="DIR",
        help="take over finished runs of this directory that have the settings of an arm, of any length and seed",
    )
    only = reproduce.add_mutually_exclusive_group()
    only.add_argument(
        "--list",
        action="store_true",
        dest="list_only",
        help="print panels, arms, the steps and updates of each, and the smallest budget that is known to be enough",
    )
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
    runs: Path | None = None,
    list_only: bool = False,
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
    from yamame.runs.durable_files import write_json
    from yamame.studies import load_study
    from yamame.tools.study import listing, plan, reproduce_report
    from yamame.tools.study.cost import estimate_cost
    from yamame.tools.study.execute import Outcome, execute, make_directory, require_planned, train_or_resume
    from yamame.tools.study.report import image_links, report_lock, write_texts

    if not 0 < budget <= 1:
        raise UserError(f"--budget {budget:g}: give a fraction above 0 and at most 1")
    study = _choose_panels(load_study(name), panels)
    directory = output_dir or DEFAULT_DIR / (preset if budget == 1 else f"{preset}-{budget:g}")
    chosen = plan.choose_seeds(seeds)
    arms = plan.plan(study, directory, preset=preset, seeds=chosen, budget=budget, flags=flags, size=size)
    if runs is not None:
        arms = plan.take_over(arms, runs)
    if report_only and runs is None and not directory.is_dir():
        raise UserError(f"{directory} does not exist: yamame reproduce {name} makes it, or name another --output-dir")
    if list_only:
        rows = listing.list_arms(study, arms)
        text = listing.listing_text(study, rows, preset)
        return Reproduction(results={"experiment": name, "arms": rows}, text=text, exit_code=0)
    if report_only:
        require_planned(plan.runs_in_order(arms))
    if not cost:
        make_directory(directory)
    outcome = Outcome()
    if not report_only:
        price = estimate_cost(arms)
        if cost:
            as_json = {"experiment": name, **vars(price)}
            return Reproduction(results=as_json, text=f"{name}: {price.to_text()}", exit_code=0)
        print(f"{name}: {price.to_text()}", file=sys.stderr, flush=True)
        outcome = execute(plan.runs_in_order(arms), quiet=quiet, train=train or train_or_resume)
    if outcome.stopped_by:
        stopped = {"experiment": name, "stopped_by": outcome.stopped_by}
        return Reproduction(results=stopped, text="\n".join(outcome.to_lines()), exit_code=bool(outcome.failed))
    with report_lock(directory):
        scores = reproduce_report.collect_panels(study, arms, directory)
        note = reproduce_report.budget_note(budget)
        plots = reproduce_report.draw_study(study, arms, scores, directory, note=note)
        results = {
            "experiment": name,
            "preset": preset,
            "budget": budget,
            "panels": [reproduce_report.panel_to_json(panel) for panel in scores],
            "plots": [str(path) for path in plots],
            "failed": outcome.failed,
        }
        table = reproduce_report.to_markdown(study, scores, note=note)
        write_json(directory / f"{name}.json", results)
        write_texts(directory, {f"{name}.md": f"{table}\n{image_links(plots)}\n"})
    lines = [table, *(f"Plot: {path}" for path in plots), *outcome.to_lines()]
    return Reproduction(results=results, text="\n".join(lines), exit_code=1 if outcome.failed else 0)


def _choose_panels(study: "Study", titles: str | None) -> "Study":
    """Return the study with some of its panels and analyses. Raises `UserError` for an unknown title."""
    if titles is None:
        return study
    known = [*(panel.title for panel in study.panels), *(each.title for each in study.analyses)]
    chosen = [title.strip() for title in titles.split(",") if title.strip()]
    if not chosen:
        raise UserError(f"--panels is empty: choose among {'; '.join(known)}")
    found = [title for title in known if any(title.lower().startswith(name.lower()) for name in chosen)]
    for name in chosen:
        if not any(title.lower().startswith(name.lower()) for title in known):
            raise UserError(f"--panels: no panel starts with {name!r}: choose among {'; '.join(known)}")
    return replace(
        study,
        panels=tuple(panel for panel in study.panels if panel.title in found),
        analyses=tuple(each for each in study.analyses if each.title in found),
    )


def _reproduce(options: argparse.Namespace, rest: list[str]) -> int:
    from yamame.studies import load_study, study_names

    if options.name is None:
        if rest:
            raise UserError("NAME is missing: yamame reproduce lists the experiments")
        studies = [load_study(name) for name in study_names()]
        rows = [{"experiment": study.name, "title": study.title, "source": study.source} for study in studies]
        lines = (f"{row['experiment']:7}  {row['title']} ({row['source']})" for row in rows)
        print(json.dumps(rows) if options.json else "\n".join(lines), file=options.stdout)
        return 0
    of_commands = ("command", "parser", "json", "stdout", "modules")
    arguments = {name: value for name, value in vars(options).items() if name not in of_commands}
    result = reproduce(flags=rest, **arguments)
    print(json.dumps(result.results) if options.json else result.text, file=options.stdout)
    return result.exit_code
