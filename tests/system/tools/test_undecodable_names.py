"""Names of files that are not UTF-8, as file systems of Linux allow: commands write them, and print escapes."""

import html
import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from command_runs import SMALL
from matplotlib.figure import Figure
from solved_tmaze import solved_tmaze

import yamame
from yamame.cli import main
from yamame.tools import plots

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="other file systems refuse such names"),
]

NAME = os.fsdecode(b"run\xff")
SHOWN = r"run\udcff"


@pytest.fixture(autouse=True)
def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with such a name in the working directory."""
    solved_tmaze(tmp_path).rename(tmp_path / NAME)
    monkeypatch.chdir(tmp_path)


def output_of(*command: str) -> str:
    """What a command prints on a standard output that takes UTF-8 alone."""
    written = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(written, encoding="utf-8", errors="strict", write_through=True)):
        assert main(list(command)) == 0
        return written.getvalue().decode()


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (["play", NAME], f"{NAME}.gif"),
        (["figure", "learning-curves", NAME], f"{NAME}.svg"),
        (["push", NAME, "--trials", "2", "--quiet"], f"{NAME}-policy"),
        (["push", NAME, "ada/policy", "--trials", "2", "--quiet"], f"{NAME}-policy"),
        (["export", NAME], f"{NAME}.onnx"),
        (["export", NAME], f"{NAME}.pt2"),
    ],
)
def test_commands_write_files_with_such_names(command: list[str], output: str) -> None:
    if output.endswith(".onnx"):
        pytest.importorskip("onnxruntime")
    if "ada/policy" in command:
        pytest.importorskip("huggingface_hub")
        metadata = json.loads((Path(NAME) / "metadata.json").read_text())
        text = json.dumps(metadata | {"command": f"yamame train --init-from {NAME}"})
        (Path(NAME) / "metadata.json").write_text(text)
    assert SHOWN in output_of(*command, "--output", output) and Path(output).exists()
    if output.endswith(".onnx"):
        yamame.load(output).reset()


def test_a_run_with_such_a_name_is_trained_and_reported() -> None:
    small = ["passive-tmaze", "--env.horizon", "3", "--env-steps", "64", "--quiet", *SMALL]
    assert f"{SHOWN}/new/report.md" in output_of("train", *small, "--run-dir", f"{NAME}/new")
    command = f"yamame eval '{SHOWN}/new'"
    for report, shown in (("report.md", command), ("report.html", html.escape(command))):
        assert shown in (Path(NAME) / "new" / report).read_text(encoding="utf-8")
    assert f"{SHOWN}/sweep/curves.png" in output_of("sweep", *small, "--seeds", "0", "--output-dir", f"{NAME}/sweep")


@pytest.mark.parametrize("locale", [{"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "ascii"}, {}])
def test_a_pipe_in_the_locale_c(locale: dict[str, str]) -> None:
    environment = {**os.environ, **locale, "LC_ALL": "C"}
    command = [sys.executable, "-m", "yamame", "figure", "learning-curves", NAME, "--output", f"{NAME}é.png"]
    made = subprocess.run(command, env=environment, capture_output=True)
    assert made.returncode == 0 and made.stdout.count(b"\n") == 1, made.stderr
    assert Path(f"{NAME}é.png").exists()


def test_labels_of_such_names_are_drawn(tmp_path: Path) -> None:
    figure = Figure()
    figure.subplots().set_title(plots.plain(f"{NAME} $"))
    plots.save(figure, tmp_path / "figure.svg")
    assert plots.plain(f"{NAME} $") == rf"{SHOWN} \$"
