"""What pages say about recipes and commands comes from the recipes and commands, each time the site is built."""

import argparse
import contextlib
import io
import json
import os
import re
from collections.abc import Iterator
from typing import Any

from yamame.cli import _parser, main
from yamame.config.differences import diff_configs
from yamame.metrics.registry import get_metric
from yamame.recipes import PAPER, load_recipe, recipe_names
from yamame.studies import load_study, study_names
from yamame.tools.bench.benchmarks import BENCHES

_LESS_INTERESTING = re.compile(
    r"eval\.|agent\.timestep_encoder\.(image|text|tokens|instruction)|env_steps_per_iteration"
)
EXAMPLE = "passive-tmaze"
"""The recipe whose flags are listed."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with what its marks stand for."""
    for mark, generate in {
        "<!-- recipes -->": recipes,
        "<!-- commands -->": commands,
        "<!-- experiments -->": studies,
        "<!-- zoo -->": zoo,
    }.items():
        if mark in markdown:
            markdown = markdown.replace(mark, "\n".join(generate()))
    return metrics(markdown) if "<!-- metrics -->" in markdown else markdown


def metrics(markdown: str) -> str:
    """Add the registry's description and unit of every metric as second and third column to tables of metrics."""

    def cells(row: re.Match[str]) -> str:
        found = [get_metric(key) for key in re.findall(r"`(.+?)`", row[1])]
        descriptions = "; ".join(metric.description for metric in found)
        return f"| {row[1]} | {descriptions} | {found[0].unit} | {row[2]}"

    markdown = markdown.replace(
        "| metric | healthy | otherwise |\n|---|",
        "| metric | description | unit | healthy | otherwise |\n|---|---|---|",
    )
    return re.sub(r"^\| (`\w+/[^|]*`) \| (.*)$", cells, markdown, flags=re.MULTILINE)


def recipes() -> Iterator[str]:
    """A table of all recipes, and what each one says of itself."""
    yield from ("| recipe | task |", "|---|---|")
    for name in recipe_names():
        yield f"| [`{name}`](#{name}) | {load_recipe(name).info.summary} |"
    for name in recipe_names():
        yield from ("", f"## {name}", "")
        yield from recipe(name)


def recipe(name: str) -> Iterator[str]:
    """One recipe's command, cost, results, docstring and settings."""
    about = load_recipe(name)
    yield from (f"**{about.info.summary}**", "", "```sh", about.info.command, "```", "")
    yield from (f"* Cost: {about.info.cost}", f"* Expected: {about.info.expected_text}", "", about.notes)
    yield from ("", '??? note "All settings that differ from `--preset paper` on the same task"', "")
    yield from ("    | setting | paper | small |", "    |---|---|---|")
    for path, (paper, small) in differences_from_paper(name).items():
        yield f"    | `{path}` | {_shown(paper)} | {_shown(small)} |"


def differences_from_paper(name: str) -> dict[str, Any]:
    """Path -> values in the presets paper and small, without evaluations and encoders of leaves."""
    small, paper = load_recipe(name), load_recipe(name, PAPER)
    found = diff_configs(paper.make_config(small.env), small.make_config(small.env))
    return {path: pair for path, pair in found.items() if not _LESS_INTERESTING.match(path)}


def _shown(value: Any) -> str:
    return "-" if value is None else str(value).rpartition(":")[2].replace("[]", "default")


def studies() -> Iterator[str]:
    """A table of all figures and tables of the paper."""
    yield from ("| name | content | in the paper | runs of one seed |", "|---|---|---|---|")
    for name in study_names():
        study = load_study(name)
        runs = {(arm.recipe, arm.flags, arm.variants) for arm in study.arms}
        yield f"| `{name}` | {study.title} | {study.source} | {len(runs)} |"


def zoo() -> Iterator[str]:
    """A table of the policies of the zoo."""
    yield from ("| name | mean return, 95 % interval | success | kB | command |", "|---|---|---|---|---|")
    for policy in json.loads(_printed(["zoo", "--json"])):
        low, high = policy["return_ci95"]
        success = "-" if policy["success_rate"] is None else f"{policy['success_rate']:.3g}"
        score = f"{policy['return_mean']:.3g} [{low:.3g}, {high:.3g}]"
        yield f"| `{policy['name']}` | {score} | {success} | {policy['num_bytes'] / 1e3:.0f} | `{policy['command']}` |"


def commands() -> Iterator[str]:
    """The help of every command, of every bench, and every flag of one recipe."""
    with _columns(78):
        for name, parser in _parsers("yamame", _parser()):
            yield from ("", f"## {name}", "", "```text", parser.format_help().rstrip(), "```")
            if name == "yamame train":
                yield from ("", f"Every field of a recipe's config is a flag. Those of `{EXAMPLE}`:", "")
                yield from _folded(f"yamame train {EXAMPLE} --help", ["train", EXAMPLE, "--help"])
            if name == "yamame bench":
                for bench in BENCHES:
                    yield from _folded(f"yamame bench {bench} --help", ["bench", bench, "--help"])


def _parsers(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, below in action.choices.items():
                yield from _parsers(f"{name} {word}", below)


def _folded(title: str, args: list[str]) -> Iterator[str]:
    yield from ("", f'??? note "{title}"', "", "    ```text")
    yield from (f"    {line}".rstrip() for line in _printed(args).strip().splitlines())
    yield "    ```"


def _printed(args: list[str]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main(args)
    return printed.getvalue()


@contextlib.contextmanager
def _columns(width: int) -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(width)
    try:
        yield
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
