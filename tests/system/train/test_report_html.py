"""`report.html`: one file that needs nothing else, says what report.md says, and takes nobody's word for markup."""

import json
import shlex
from base64 import b64decode
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from test_report import evaluation, write_metrics, write_run
from tiny import tiny_config

from yamame.tools.report import write_report, write_report_if_finished
from yamame.training.run_files import RunMetadata, read_metadata
from yamame.training.start import resume_run, train_run

HOSTILE = "<script>alert('x')</script>\"&|`"
VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """What a browser would make of a page: its elements, its words, and whether all that opens is closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def written(directory: Path, *, about: dict[str, Any] | None = None, **changes: Any) -> tuple[Page, str]:
    directory.mkdir()
    write_metrics(directory, 30)
    (directory / "config.json").write_text(json.dumps({"seed": 3, "env": {"horizon": 60, "task": HOSTILE}}))
    result = evaluation([0.5, 1.0]) | {"wall_seconds": 161.0} | changes
    metadata = {"expected": f"nine of ten {HOSTILE}"} | (about or {})
    write_run(
        directory, result, random_baseline={"return_mean": -0.5, "return_per_attempt": [-0.25, -0.25]}, **metadata
    )
    write_report(directory)
    text = (directory / "report.html").read_text(encoding="utf-8")
    return Page(text), text


ABOUT = {
    "recipe": f"tmaze{HOSTILE}",
    "command": f"yamame train tmaze --title '{HOSTILE}'",
    "overrides": {"env.horizon": [30, 60], f"env.{HOSTILE}": [None, HOSTILE]},
}


def test_it_is_one_file_with_its_pictures_inside(tmp_path: Path) -> None:
    page, text = written(tmp_path / "run", about=ABOUT)
    assert "http://" not in text and "https://" not in text
    assert {name for name, _ in page.elements}.isdisjoint({"script", "link", "iframe", "object", "a", "form", "base"})
    assert all(not name.startswith("on") for _, attributes in page.elements for name in attributes)
    images = [attributes for name, attributes in page.elements if name == "img"]
    assert [attributes["alt"] for attributes in images] == [
        "Return against environment steps",
        "Return of each attempt",
    ]
    for attributes, file in zip(images, ("learning_curve.png", "return_per_attempt.png"), strict=True):
        kind, _, inside = (attributes["src"] or "").partition(",")
        assert kind == "data:image/png;base64" and b64decode(inside) == (tmp_path / "run" / file).read_bytes()
        assert Image.open(BytesIO(b64decode(inside))).size[0] > 600
    policies = [attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text


def test_it_says_what_report_md_says(tmp_path: Path) -> None:
    page, _ = written(tmp_path / "run", about=ABOUT)
    for part in (
        "mean return 4.25 (95 % CI: 4 to 4.5)",
        "mean return of random actions -0.5",
        "first and last attempt 0.5 and 1",
        "success rate 75.0 %",
        "wall time 161 s",
        "seed 3",
        "env.horizon 60 (default 30)",
        "Python 3.",
        "torch 2.",
        f"yamame resume {tmp_path / 'run'}",
    ):
        assert part in page.text, part
    markdown = (tmp_path / "run/report.md").read_text()
    assert "| `env.horizon` | `60` (default 30) |" in markdown and "| mean return | **4.25** (95 % " in markdown
    assert markdown.count("\n## ") == sum(name in ("h2", "summary") for name, _ in page.elements)


def test_hostile_names_are_words(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    page, text = written(tmp_path / name, about=ABOUT)
    assert "<script" not in text and "<img src=x" not in text
    assert page.words.count(name) == 2  # title and heading
    assert f"tmaze{HOSTILE}" in page.words and f"Expected: nine of ten {HOSTILE}" in page.words
    rows = [line for line in (tmp_path / name / "report.md").read_text().splitlines() if line.startswith("|")]
    assert all(row.replace("\\|", "").count("|") == 3 for row in rows)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"overrides": 3}', '{"overrides": {"a": 1}}'])
def test_corrupted_files_cost_a_section_at_most(tmp_path: Path, content: str) -> None:
    (tmp_path / "run").mkdir()
    for name in ("metadata.json", "config.json"):
        (tmp_path / "run" / name).write_text(content)
    result = evaluation([1.0])
    write_run(tmp_path / "run", result)
    write_report(tmp_path / "run")
    page = Page((tmp_path / "run/report.html").read_text())
    assert "mean return 4.25" in page.text and "Expected" not in page.text


def test_commands_quote_the_path(tmp_path: Path) -> None:
    run = tmp_path / "two words; and $more"
    run.mkdir()
    write_run(run, evaluation([1.0]))
    write_report(run)
    commands = (run / "report.md").read_text().split("```")[1].strip().splitlines()
    assert [shlex.split(line)[:3] for line in commands] == [["yamame", name, str(run)] for name in ("eval", "resume")]


def test_fault_counters_are_reported_if_there_are_any(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(
        '{"env_steps": 1, "updates": 1, "faults/restarts": 3.0, "faults/hang": 2.0, "relabel/num_unique_goals": 12.0}\n'
        '{"env_steps": 2, "updates": 2, "faults/restarts": 4.0, "optim/nonfinite_updates": 0.0,'
        ' "replay/num_corrupted": null}\n'
    )
    result = evaluation([1.0])
    write_run(tmp_path, result)
    write_report(tmp_path)
    text = Page((tmp_path / "report.html").read_text()).text
    assert "Env restarts 4 " in text and "Hang 2 " in text
    assert "Unique goals 12 " in text and "Non-finite" not in text and "Corrupted" not in text


def test_a_report_that_cannot_be_written_fails_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for plot in ("plot_learning_curve", "plot_attempts"):  # they take longer than a tiny run
        monkeypatch.setattr(f"yamame.tools.report.{plot}", lambda *_: None)
    config = tiny_config(env_steps=64, eval={"final_trials": 8, "num_envs": 8, "interval_env_steps": 0})
    about = RunMetadata(recipe="x", command="yamame train x", overrides={"seed": (0, 1)})
    with monkeypatch.context() as patch:
        patch.setattr("yamame.tools.report.render_html", full)
        summary = train_run(config, about, run_dir=tmp_path / "run", quiet=True)
        write_report_if_finished(summary)
    printed = capsys.readouterr().err
    assert "cannot write the report (OSError: [Errno 28] No space left" in printed and "writes it again" in printed
    assert summary["return_mean"] is not None and (tmp_path / "run/result.json").exists()
    assert not (tmp_path / "run/report.html").exists()
    again = resume_run(tmp_path / "run", env_steps=None, quiet=True)
    write_report_if_finished(again)
    assert again["return_mean"] == summary["return_mean"]
    page = Page((tmp_path / "run/report.html").read_text())
    assert "command yamame train x" in page.text and "seed 1 (default 0)" in page.text
    assert read_metadata(tmp_path / "run").overrides == {"seed": (0, 1)}
    assert [path.name for path in (tmp_path / "run").glob(".partial*")] == []
