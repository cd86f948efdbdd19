"""`yamame figure`: what it lists, writes and refuses."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_runs import refused

import yamame.tools.figures
from yamame.cli import main
from yamame.tools.figure import figure_names, load_figure

pytestmark = pytest.mark.slow

ALL = (
    "ablation-bars",
    "activations",
    "attention",
    "exploration-schedule",
    "learning-curves",
    "q-by-gamma",
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
        (["attention", run], "--output is missing: give a file, such as --output attention.png"),
        (["attention", run, "--output", "x.gif"], "give a file that ends in .png, .svg, .pdf"),
        (["attention", "--output", output], "no run was given"),
        (["attention", str(tmp_path / "none"), "--output", output], "does not exist"),
        (["attention", run, "--output", output, "--stepp", "3"], "did you mean --step?"),
        (["attention", run, "--output", output, "--step", "x"], "--step: expected int | None, got 'x'"),
        (["exploration-schedule", run, "--output", str(tmp_path / "no/x.png")], "choose another --output"),
        (["--output", output], "NAME is missing"),
    ):
        assert expected in refused(capsys, "figure", *words), words
    assert list(tmp_path.iterdir()) == []


def test_a_new_figure_is_one_new_file(
    tmaze: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "figures"
    folder.mkdir()
    (folder / "num_runs.py").write_text(
        '"""Number of runs."""\n'
        "from dataclasses import dataclass\n"
        "from yamame.tools.plots import new_figure\n"
        "from yamame.tools.run_groups import resolve_runs\n\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Options:\n"
        '    title: str = "Runs"\n'
        '    """Title of the figure."""\n\n'
        "def draw(paths, options):\n"
        "    figure, (axes,) = new_figure()\n"
        "    axes.set_title(options.title)\n"
        '    axes.bar(["runs"], [len(resolve_runs(paths))])\n'
        "    return figure\n"
    )
    monkeypatch.setattr(yamame.tools.figures, "__path__", [*yamame.tools.figures.__path__, str(folder)])
    assert main(["figure"]) == 0
    assert "num-runs" in capsys.readouterr().out
    output = tmp_path / "runs.svg"
    assert main(["figure", "num-runs", str(tmaze), "--title", "All runs", "--output", str(output)]) == 0
    assert output.read_text().startswith("<?xml")
