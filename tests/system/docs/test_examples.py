"""What the documents and examples show works, at a small size."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from documents import ROOT, SMALL_RUN, blocks

import yamame
from yamame import api, cli
from yamame.config.flags import parse_flags
from yamame.recipes import config_from_flags, load_recipe
from yamame.tools import figure as figures
from yamame.tools import train
from yamame.tools.bench.benchmarks import parse_benchmark
from yamame.tools.figure import load_figure

pytestmark = pytest.mark.slow

DOCUMENTS = sorted(path.name for path in ROOT.glob("*.md"))
SMALL: dict[str, Any] = {**SMALL_RUN, "env_steps": 200, "num_envs": 4}


def commands(program: str) -> list[str]:
    lines = [line for name in DOCUMENTS for block in blocks(ROOT / name, "sh", "bash") for line in block.splitlines()]
    return sorted({line for line in lines if line.startswith(f"{program} ")})


@pytest.fixture(autouse=True)
def _small_runs_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def train_briefly(task: Any, **settings: Any) -> yamame.Run:
        return api.train(task, **{**settings, **SMALL, "quiet": True})

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(yamame, "train", train_briefly)


def imported(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_own_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    imported("own_environment", monkeypatch).main()
    assert re.search(r"return \d\.\d\d .*\nit was [01], the policy says [01]\n", capsys.readouterr().out)


def test_demo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    imported("demo", monkeypatch).main()
    out = capsys.readouterr().out
    assert re.search(r"^      8 +\d+% .*\d+%", out, re.MULTILINE)
    assert re.search(r"opens the door \d+\.\d times as often", out)
    assert len(list(Path("runs").glob("demo-*/trial.gif"))) == 1


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_in_documents_runs(document: str) -> None:
    names: dict[str, Any] = {}
    for block in blocks(ROOT / document, "python"):
        exec(compile(block, document, "exec"), names)


@pytest.mark.parametrize("line", commands("yamame"))
def test_commands_in_documents_can_be_read(line: str) -> None:
    options, rest = cli._parser().parse_known_args(shlex.split(line, comments=True)[1:])
    if options.command is train._train and options.recipe is None:
        assert options.env
    elif options.command is train._train:
        config_from_flags(load_recipe(options.recipe), options.variant, rest)
    elif options.command is cli._bench:
        parse_benchmark(options.what, rest)
    elif options.command is figures._figure:
        figure = load_figure(options.name)
        paths, flags = figures._split(rest, figure.options)
        assert paths and parse_flags(figure.options, flags, line)
    else:
        assert rest == []


@pytest.mark.parametrize("line", commands("make"))
def test_make_targets_in_documents_exist(line: str) -> None:
    targets = [word for word in shlex.split(line, comments=True)[1:] if "=" not in word]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_there_is_something_to_read() -> None:
    assert len(commands("yamame")) >= 5 and len(commands("make")) >= 2
    assert blocks(ROOT / "README.md", "python")
