"""Updates a second against context (fig. 29), from answers of `yamame bench`, or measured here.

Files hold what `yamame bench learner --json` prints. Any JSON will do that has such objects in it, one or many: that of
`make bench` too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from yamame.errors import UserError, check_range
from yamame.tools.bench.learner import LearnerBench
from yamame.tools.bench.measure import format_machine
from yamame.tools.plots import (
    HEIGHT,
    color,
    compact,
    finish,
    legend_below,
    legend_height,
    line_style,
    new_figure,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Answer = Mapping[str, Any]
"""What a bench says, as JSON."""
UNITS = {
    "updates_per_second": "gradient updates a second",
    "tokens_per_second": "tokens learned from a second",
    "peak_memory_bytes": "peak memory in GiB",
}
SETTINGS = ("size", "encoder", "batch", "lengths", "threads", "device", "dtype", "compile")
"""What sets lines apart; a label has those that differ."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the picture; all but the first are for measuring here, where no file is named."""

    figure: str = "updates_per_second"
    """What is drawn: updates_per_second, tokens_per_second or peak_memory_bytes."""
    contexts: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Transitions in a training window."""
    encoders: tuple[str, ...] = ("transformer", "gru")
    """Trajectory encoders."""
    size: str = "popgym"
    """popgym, delivery, tmaze or crafter: the paper's network for it."""
    batch: int = 24
    """Windows in a batch."""
    repeats: int = 3
    """Measurements, of which the median is drawn, with the least and the greatest."""
    threads: int = 0
    """Threads of PyTorch; 0: as it chooses."""

    def __post_init__(self) -> None:
        check_range(self, "batch", "repeats", "context_lengths", ge=1)
        check_range(self, "threads", ge=0)


def draw(paths: Sequence[Path], options: Options) -> "Figure":
    """A line for each setting but the context, both axes logarithmic; the machine stands above it."""
    if options.figure not in UNITS:
        raise UserError(f"--metric {options.figure}: choose among {', '.join(UNITS)}")
    answers = [answer for path in paths for answer in _in_file(path)] if paths else measure(options)
    lines = series(answers)
    machines = sorted({format_machine(answer["machine"]) for answer in answers})
    figure, (axes,) = new_figure(height=HEIGHT + 0.3 + legend_height(list(lines)))
    for number, (label, by_context) in enumerate(lines.items()):
        contexts = sorted(by_context)
        middle = [median(_value(answer, options.figure) for answer in by_context[context]) for context in contexts]
        low, high = np.array([_spread(by_context[context], options.figure) for context in contexts]).T
        whiskers = np.maximum(0, [np.array(middle) - low, high - np.array(middle)])
        axes.errorbar(
            contexts, middle, whiskers, color=color(number), linestyle=line_style(number), marker="o", markersize=5,
            linewidth=2, capsize=3, label=plain(label),
        )  # fmt: skip
    contexts = sorted({context for by_context in lines.values() for context in by_context})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(contexts, [f"{context:,}" for context in contexts])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(compact)
    axes.set(xlabel="context: transitions in a training window", ylabel=UNITS[options.figure])
    axes.set_title(f"Throughput, batches of {_batches(answers)} windows", pad=20)
    axes.text(0, 1.02, plain(_short_machines(machines)), transform=axes.transAxes, fontsize=8, color="#555555")
    legend_below(axes)
    return finish(figure)


def measure(options: Options) -> list[Answer]:
    """Run `yamame bench learner` for every encoder and context, in this process."""
    return [
        LearnerBench(
            encoder=encoder,  # type: ignore[arg-type]
            context=context,
            size=options.size,
            batch=options.batch,
            repeats=options.repeats,
            threads=options.threads,
        )
        .run()
        .to_json()
        for encoder in options.encoders
        for context in options.contexts
    ]


def series(answers: Sequence[Answer]) -> dict[str, dict[int, list[Answer]]]:
    """Label -> context -> what was said of it; labels have what differs, the machine included."""
    facts = [_facts(answer) for answer in answers]
    differ = [name for name in facts[0] if len({each[name] for each in facts}) > 1]
    lines: dict[str, dict[int, list[Answer]]] = {}
    for answer, fact in zip(answers, facts, strict=True):
        label = ", ".join(fact[name] for name in differ) or fact["encoder"]
        lines.setdefault(label, {}).setdefault(answer["config"]["context"], []).append(answer)
    return lines


def _facts(answer: Answer) -> dict[str, str]:
    config = {**answer["config"], **answer["config"].get("compute", {})}
    said = {name: _word(name, config.get(name)) for name in SETTINGS}
    machine = answer["machine"]
    return {**said, "machine": machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores"}


def _word(name: str, value: object) -> str:
    match name:
        case "encoder":
            return {"transformer": "Transformer", "gru": "GRU"}.get(str(value), str(value))
        case "compile":
            return "compiled" if value in (True, "on") else "not compiled"
        case "batch":
            return f"batch {value}"
        case "lengths":
            return f"{value} windows"
        case "threads":
            return f"{value or 'default'} threads"
    return str(value)


def _value(answer: Answer, figure: str) -> float:
    return answer[figure] / (2**30 if figure.endswith("bytes") else 1)


def _spread(answers: Sequence[Answer], figure: str) -> tuple[float, float]:
    ends = [end for answer in answers for end in answer["spread"].get(figure, [_value(answer, figure)])]
    return min(ends), max(ends)


def _batches(answers: Sequence[Answer]) -> str:
    return ", ".join(map(str, sorted({answer["config"]["batch"] for answer in answers})))


def _short_machines(machines: Sequence[str]) -> str:
    shown = machines[0] if len(machines) == 1 else f"{len(machines)} machines: see the labels"
    return shown if len(shown) <= 112 else shown[:111] + "…"


def _in_file(path: Path) -> list[Answer]:
    """All answers of the learner's bench in a file: one object, one a line, or any nest of lists and objects."""
    try:
        text = path.read_text(encoding="utf-8")
        try:
            found = list(_answers(json.loads(text)))
        except ValueError:
            found = [answer for line in text.splitlines() if line.strip() for answer in _answers(json.loads(line))]
    except (OSError, ValueError, RecursionError) as problem:
        raise UserError(f"{path} cannot be read ({problem}): give what yamame bench learner --json prints") from problem
    if not found:
        raise UserError(f"{path} has no answer of yamame bench learner --json in it: give one that has")
    return found


def _answers(value: object) -> Iterator[Answer]:
    if isinstance(value, dict) and value.get("bench") == "learner":
        if not {"config", "machine", "spread", *UNITS} <= value.keys():
            raise ValueError("an answer lacks what benches say today")
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _answers(part)
