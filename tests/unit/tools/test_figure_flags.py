"""Flags of figures with several values, between paths of runs."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from yamame.config.flags import parse_flags
from yamame.tools import figure
from yamame.tools.figures import ablation_bars, throughput


@dataclass(frozen=True, kw_only=True)
class Options:
    """Of a figure."""

    texts: tuple[str, ...] = ()
    numbers: tuple[int, ...] = (1, 2)
    title: str = ""
    wide: bool = False


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a", "--texts", "collect wood", "make a pickaxe"], Options(texts=("collect wood", "make a pickaxe"))),
        (["a", "--texts", "one", "--title", "T", "--texts", "two"], Options(texts=("one", "two"), title="T")),
        (["--texts=one", "two", "--numbers", "3", "4", "--title=--T", "a"], None),
        (["--wide", "a", "--numbers", "3"], Options(wide=True, numbers=(3,))),
        (["a", "--texts"], Options()),
    ],
)
def test_a_flag_takes_all_values_of_a_sequence(
    words: list[str], expected: Options | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure, "locate_run", Path)
    expected = expected or Options(texts=("one", "two"), numbers=(3, 4), title="--T")
    paths, flags = figure._split(words, Options())
    assert paths == [Path("a")] and parse_flags(Options(), flags, "figure") == expected


def test_directories_are_runs_wherever_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure, "locate_run", Path)
    runs = [tmp_path / name for name in ("a", "b", "c")]
    for run in runs:
        run.mkdir()
    first, *others = map(str, runs)
    paths, flags = figure._split([first, "--texts", "one", *others], Options())
    assert paths == runs and parse_flags(Options(), flags, "figure") == Options(texts=("one",))


def test_the_figures_take_what_their_help_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure, "locate_run", Path)
    bars = ["run", "--instructions", "collect wood", "make wood pickaxe", "--metrics", "return_mean", "success_rate"]
    paths, flags = figure._split(bars, ablation_bars.Options())
    options = parse_flags(ablation_bars.Options(), flags, "figure")
    assert paths == [Path("run")] and options.metrics == ("return_mean", "success_rate")
    assert options.instructions == ("collect wood", "make wood pickaxe")
    _, flags = figure._split(["--context-lengths", "8", "16", "--encoders", "gru"], throughput.Options())
    measured = parse_flags(throughput.Options(), flags, "figure")
    assert (measured.context_lengths, measured.encoders) == ((8, 16), ("gru",))
