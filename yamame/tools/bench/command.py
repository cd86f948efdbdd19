"""Arguments of `yamame bench`."""

from collections.abc import Callable, Sequence
from functools import partial

from yamame.errors import UserError
from yamame.flags import list_flags, parse_flags
from yamame.tools.bench.collector import CollectorBench
from yamame.tools.bench.end_to_end import EndToEndBench
from yamame.tools.bench.learner import LearnerBench
from yamame.tools.bench.measure import BenchResult
from yamame.tools.bench.options import spell_out_switches, suggest
from yamame.tools.bench.replay import ReplayBench

BENCHES = ("learner", "collector", "replay", "end-to-end")


def parse_benchmark(name: str, flags: Sequence[str]) -> Callable[[], BenchResult]:
    """Return a function that runs the benchmark. Raises `UserError` for an unknown benchmark or flag."""
    flags, prog = spell_out_switches(flags), f"yamame bench {name}"
    match name:
        case "learner":
            return parse_flags(LearnerBench(), flags, prog).run
        case "collector":
            return parse_flags(CollectorBench(), flags, prog).run
        case "replay":
            return parse_flags(ReplayBench(), flags, prog).run
        case "end-to-end":
            own, of_recipe = _split(flags)
            return partial(parse_flags(EndToEndBench(), own, prog).run, of_recipe)
    raise UserError(f"unknown benchmark {name!r}: {suggest(name, BENCHES)}")


def _split(flags: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate the flags of the benchmark from those of its recipe."""
    known = {*list_flags(EndToEndBench()), "--help", "-h"}
    own: list[str] = []
    of_recipe: list[str] = []
    goes_to = own
    for flag in flags:
        if flag.startswith("-"):
            goes_to = own if flag.partition("=")[0].replace("_", "-") in known else of_recipe
        goes_to.append(flag)
    return own, of_recipe
