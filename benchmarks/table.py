"""The table of this machine's speed, each row by a command of its own: `make bench`.

python benchmarks/table.py [--rows 'learner-*' replay-popgym ...] [--folder benchmarks] [--list]

Writes DATE-MACHINE.md and DATE-MACHINE.json with the results of the commands. Rows that are measured again
on the same day take the place of the old ones, so that the table can be made in parts. Run it on a quiet machine.
"""

import argparse
import datetime
import json
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from rows import CPU, GPU, Row

from yamame.tools.bench.measure import describe_machine, format_machine

HERE = Path(__file__).parent
Answers = dict[str, list[dict[str, Any]]]
"""Row -> the results of its command in each run."""


ABOUT = """Medians; the spread is the range of the repeats. *Of peak*: of the fastest matrix product,
measured in the same process and type. *Authors*: their code at its best on two cores with AMX (410 GFLOP/s in float32,
3,650 in bfloat16). *Target*: minimum (seconds: maximum), there or on a GPU."""


def main() -> int:
    rows = GPU if torch.cuda.is_available() else CPU
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=["*"], metavar="NAME", help="names or patterns of rows")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the table goes (default: benchmarks)")
    parser.add_argument("--list", action="store_true", help="name the rows, measure nothing")
    options = parser.parse_args()
    chosen = [row for row in rows if any(fnmatchcase(row.name, pattern) for pattern in options.rows)]
    if options.list or not chosen:
        print("\n".join(f"{row.name:28} {row.command}" for row in rows))
        return 0 if chosen else 2

    machine = describe_machine(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    record = options.folder / f"{datetime.date.today().isoformat()}-{slug(machine)}.json"
    answers: Answers = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    failed = 0
    for row in chosen:
        try:
            answers[row.name] = [ask(row, seed) for seed in range(row.runs)]
            print(f"{row.name}: {figures(row, answers[row.name])[0]:.4g} {row.unit}", flush=True)
        except subprocess.CalledProcessError as error:
            failed += 1
            answers.pop(row.name, None)
            print(f"{row.name} failed: {(error.stderr.strip().splitlines() or [''])[-1]}", file=sys.stderr, flush=True)
        record.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
        record.with_suffix(".md").write_text(table(rows, answers, machine), encoding="utf-8")
    print(record.with_suffix(".md"))
    return 1 if failed else 0


def ask(row: Row, seed: int) -> dict[str, Any]:
    """The JSON object that the row's command prints last, with `wall_seconds`; raises where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        program, *words = shlex.split(row.command.format(seed=seed, folder=folder))
        began = time.monotonic()
        done = subprocess.run(
            [str(Path(sys.executable).parent / program), *words],
            cwd=HERE.parent,
            capture_output=True,
            text=True,
            check=True,
        )
        return {**json.loads(done.stdout.splitlines()[-1]), "wall_seconds": time.monotonic() - began}


def figures(row: Row, answers: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Median, minimum and maximum: of the repeats of one run, or of the runs."""
    values = [float(answer[row.figure]) for answer in answers]
    low, high = answers[0].get("spread", {}).get(row.figure, (min(values), max(values)))
    return statistics.median(values), low, high


def table(rows: tuple[Row, ...], answers: Answers, machine: Mapping[str, Any]) -> str:
    """The page."""
    of_memory = [row for row in rows if row.name.startswith("memory-") and row.name in answers]
    others = [row for row in rows if not row.name.startswith("memory-") and row.name in answers]
    lines = [
        f"# {datetime.date.today().isoformat()}: `make bench`",
        "",
        f"{format_machine(machine)}.",
        "",
        ABOUT,
        "",
        "| work | median | spread | of peak | peak memory | authors | target |",
        "|---|---|---|---|---|---|---|",
        *(line(row, answers[row.name]) for row in others),
    ]
    if of_memory:
        lines += ["", "## Memory against context (tmaze size, batch 24)", ""]
        lines += ["| context | peak memory | updates/s | spread |", "|---|---|---|---|"]
        lines += [memory_line(row, answers[row.name]) for row in of_memory]
    lines += ["", "## Commands", "", *(f"    {row.command}" for row in (*others, *of_memory)), ""]
    return "\n".join(lines)


def line(row: Row, answers: list[dict[str, Any]]) -> str:
    median, low, high = figures(row, answers)
    fraction = answers[0].get("matmul_peak_fraction")
    cells = (
        row.title + reached(answers),
        f"**{short(median)}** {row.unit}",
        f"{short(low)}-{short(high)}",
        "" if fraction is None else f"{fraction:.0%} of {answers[0]['matmul_peak_gflops']:,.0f} GFLOP/s",
        gigabytes(answers[0]),
        "" if row.authors is None else short(row.authors),
        "" if row.target is None else short(row.target),
    )
    return "| " + " | ".join(cells) + " |"


def memory_line(row: Row, answers: list[dict[str, Any]]) -> str:
    median, low, high = figures(row, answers)
    return f"| {row.title} | {gigabytes(answers[0])} | {short(median)} | {short(low)}-{short(high)} |"


def reached(answers: list[dict[str, Any]]) -> str:
    """What trained agents can, in the order of their seeds."""
    if "return_mean" not in answers[0]:
        return ""
    rates = [answer["success_rate"] for answer in answers]
    kind, values = ("return", [answer["return_mean"] for answer in answers]) if None in rates else ("success", rates)
    return f" ({kind} {', '.join(f'{value:.3f}' for value in values)})"


def gigabytes(answer: Mapping[str, Any]) -> str:
    return f"{answer['peak_memory_bytes'] / 1e9:.2f} GB" if "peak_memory_bytes" in answer else ""


def short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def slug(machine: Mapping[str, Any]) -> str:
    """Such as `2-cores-amd-epyc-avx2`."""
    kind = machine["gpu"] or f"{machine['cores']}-cores-{machine['cpu']}-{(machine['isa'] or [''])[-1]}"
    return re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-")


if __name__ == "__main__":
    sys.exit(main())
