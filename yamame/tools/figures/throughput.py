"""Updates per second against context length (fig. 29), from benchmarks or measured here.

Files contain JSON objects of `yamame bench learner --json`, one or many, at any depth; those of `make bench` do.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from yamame.errors import ConfigFieldError, UserError, check_range
from yamame.tools.bench.benchmarks import LearnerBench
from yamame.tools.bench.measure import format_machine
from yamame.tools.bench.separate_memories import LABELS, RecurrentSACBench
from yamame.tools.palette import color
from yamame.tools.plots import (
    HEIGHT,
    compact,
    legend_below,
    legend_height,
    line_style,
    new_figure,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BenchJson = Mapping[str, Any]
"""A result of a benchmark."""
UNITS = {
    "updates_per_second": "gradient updates per second",
    "tokens_per_second": "tokens per second",
    "peak_memory_bytes": "peak memory in GiB",
}
ENCODERS: dict[str, str] = {"transformer": "Transformer", "gru": "GRU", **LABELS}
"""Encoder -> its label."""
SETTINGS = ("size", "encoder", "batch", "lengths", "threads", "device", "dtype", "compile")
"""Settings that distinguish lines; a label has those that differ."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Flags of the figure; all but the first are for measuring here, without files."""

    metric: str = "updates_per_second"
    """updates_per_second, tokens_per_second or peak_memory_bytes."""
    context_lengths: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Transitions in a training window."""
    encoders: tuple[str, ...] = ("transformer", "gru")
    """transformer and gru: the learner with this trajectory encoder. separate-gru and shared-gru: recurrent SAC, whose
    actor and critics have a GRU each, as in earlier off-policy agents, or one together; separate-transformer and
    shared-transformer: with Transformers."""
    size: str = "popgym"
    """popgym, delivery, tmaze or crafter: the paper's network for it."""
    batch: int = 24
    """Windows in a batch."""
    repeats: int = 3
    """Measurements; the figure shows median, minimum and maximum."""
    threads: int = 0
    """PyTorch threads; 0: default."""

    def __post_init__(self) -> None:
        check_range(self, "batch", "repeats", "context_lengths", ge=1)
        check_range(self, "threads", ge=0)
        for name in self.encoders:
            if name not in ENCODERS:
                raise ConfigFieldError(self, "encoders", f"{name!r} is unknown: choose among {', '.join(ENCODERS)}")


def draw(paths: Sequence[Path], options: Options) -> "Figure":
    """A line per setting except the context length, both axes logarithmic, under the name of the machine."""
    if options.metric not in UNITS:
        raise UserError(f"--metric {options.metric}: choose one of {', '.join(UNITS)}")
    results = [result for path in paths for result in _in_file(path)] if paths else measure(options)
    lines = series(results)
    machines = {format_machine(result["machine"]) for result in results}
    machine = machines.pop() if len(machines) == 1 else f"{len(machines)} machines, see the legend"
    machine = machine if len(machine) <= 112 else machine[:111] + "…"
    batches = sorted({result["config"]["batch"] for result in results})
    figure, (axes,) = new_figure(height=HEIGHT + 0.3 + legend_height(list(lines)))
    for number, (label, by_context) in enumerate(lines.items()):
        contexts = sorted(by_context)
        middle = [median(_value(result, options.metric) for result in by_context[context]) for context in contexts]
        low, high = np.array([_spread(by_context[context], options.metric) for context in contexts]).T
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
    axes.set(xlabel="context length (transitions)", ylabel=UNITS[options.metric])
    axes.set_title(f"Throughput, batches of {', '.join(map(str, batches))} windows", pad=20)
    axes.text(0, 1.02, plain(machine), transform=axes.transAxes, fontsize=8, color="#555555")
    legend_below(axes)
    return figure


def measure(options: Options) -> list[BenchJson]:
    """Run `yamame bench learner` for every encoder and context, in this process."""
    return [
        _bench(
            encoder,
            context=context,
            size=options.size,
            batch=options.batch,
            repeats=options.repeats,
            threads=options.threads,
        )
        for encoder in options.encoders
        for context in options.context_lengths
    ]


def _bench(encoder: str, **options: Any) -> BenchJson:
    if encoder in LABELS:
        return RecurrentSACBench(encoder=encoder, **options).run().to_json()  # type: ignore[arg-type]
    return LearnerBench(encoder=encoder, **options).run().to_json()  # type: ignore[arg-type]


def series(results: Sequence[BenchJson]) -> dict[str, dict[int, list[BenchJson]]]:
    """Return results by label and context length; labels have the settings that differ, the machine included."""
    settings = [_settings_of(result) for result in results]
    differ = [name for name in settings[0] if len({each[name] for each in settings}) > 1]
    lines: dict[str, dict[int, list[BenchJson]]] = {}
    for result, of_result in zip(results, settings, strict=True):
        label = ", ".join(of_result[name] for name in differ) or of_result["encoder"]
        lines.setdefault(label, {}).setdefault(result["config"]["context"], []).append(result)
    return lines


def _settings_of(result: BenchJson) -> dict[str, str]:
    config = {**result["config"], **result["config"].get("compute", {})}
    named = {name: _label(name, config.get(name)) for name in SETTINGS}
    machine = result["machine"]
    return {**named, "machine": machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores"}


def _label(name: str, value: object) -> str:
    match name:
        case "encoder":
            return ENCODERS.get(str(value), str(value))
        case "compile":
            return "compiled" if value in (True, "on") else "not compiled"
        case "batch":
            return f"batch {value}"
        case "lengths":
            return f"{value} windows"
        case "threads":
            return f"{value or 'default'} threads"
    return str(value)


def _value(result: BenchJson, metric: str) -> float:
    return result[metric] / (2**30 if metric.endswith("bytes") else 1)


def _spread(results: Sequence[BenchJson], metric: str) -> tuple[float, float]:
    ends = [end for result in results for end in result["spread"].get(metric, [_value(result, metric)])]
    return min(ends), max(ends)


def _in_file(path: Path) -> list[BenchJson]:
    """Return all results of the learner benchmark in a file: JSON, or one JSON object per line."""
    try:
        text = path.read_text(encoding="utf-8")
        try:
            found = list(_results(json.loads(text)))
        except ValueError:
            found = [result for line in text.splitlines() if line.strip() for result in _results(json.loads(line))]
    except (OSError, ValueError, RecursionError) as problem:
        raise UserError(f"{path} cannot be read ({problem}): give output of yamame bench learner --json") from problem
    if not found:
        raise UserError(f"{path} contains no result of yamame bench learner --json")
    return found


def _results(value: object) -> Iterator[BenchJson]:
    if isinstance(value, dict) and value.get("bench") == "learner":
        if not {"config", "machine", "spread", *UNITS} <= value.keys():
            raise ValueError("a result lacks fields")
        yield value
    elif isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _results(child)
