"""`yamame figure`: what it lists, writes and refuses."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_runs import refused

from yamame.cli import main
from yamame.tools.figure import figure_names, load_figure

pytestmark = pytest.mark.slow

ALL = (
    "ablation-bars",
    "activations",
    "attention",
    "exploration-schedule",
    "learning-curves",
    "q-by-discount",
    "relabeling-priorities",
    "throughput",
)


def test_every_figure_is_listed_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert figure_names() == ALL
    assert main(["figure"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(ALL)
    assert all(load_figure(name).about in line for name, line in zip(ALL, listed, strict=True))
    assert max(map(len, listed)) <= 120
    assert main(["figure", "--help"]) == 0
    assert capsys.readouterr().out.count("attention ") >= 1


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_a_file_of_every_kind(tmaze: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / f"out.{kind}"
    words = ["--x-axis", "updates", str(tmaze / "full-seed-0"), "--title=Two words", str(tmaze / "full-seed-1")]
    assert main(["figure", "learning-curves", *words, "--output", str(output), "--json"]) == 0
    assert '"output"' in capsys.readouterr().out
    content = output.read_bytes()
    assert content.startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind]) and len(content) > 2000
    if kind == "svg":
        assert ElementTree.fromstring(content).tag.endswith("svg")
    assert [path.name for path in tmp_path.iterdir()] == [output.name]


def test_help_names_the_flags_of_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["figure", "attention", "--help"])
    assert done.value.code == 0
    out = capsys.readouterr().out
    assert "--step" in out and "--num-frames" in out and "--output" in out


def test_mistakes_take_a_line(tmaze: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, output = str(tmaze / "full-seed-0"), str(tmp_path / "x.png")
    for words, expected in (
        (["atention", run], "did you mean 'attention'?"),
        (["attention", run], "--output is missing: name a file, such as --output attention.png"),
        (["attention", run, "--output", "x.gif"], "give a file that ends in .png, .svg, .pdf"),
        (["attention", "--output", output], "no run was named"),
        (["attention", str(tmp_path / "none"), "--output", output], "does not exist"),
        (["attention", run, "--output", output, "--stepp", "3"], "did you mean --step?"),
        (["attention", run, "--output", output, "--step", "x"], "--step: 'x' is not"),
        (["exploration-schedule", run, "--output", str(tmp_path / "no/x.png")], "name another file with --output"),
        (["--output", output], "no figure was named"),
    ):
        assert expected in refused(capsys, "figure", *words), words
    assert list(tmp_path.iterdir()) == []
