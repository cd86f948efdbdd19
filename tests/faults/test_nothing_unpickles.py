"""Nothing in the package unpickles, or runs what a file says."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import yamame

PACKAGE = Path(yamame.__file__).parent
BETWEEN_OUR_OWN = {"envs/vector/worker.py", "training/start.py"}
"""May pickle: a socket to worker processes that this process started itself, and callbacks, to see whether processes
could get them. No file's bytes ever go through it."""

UNPICKLERS = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
FORBIDDEN_CALLS = {"torch.load", "numpy.load", "yaml.load", "os.system", "eval", "exec", "__import__"}


def dangers(source: str) -> set[str]:
    """Imports and calls in a program that can run what a file says."""
    tree = ast.parse(source)
    aliases = dict(_imported(tree))
    found = {
        name for name in aliases.values() if name.split(".")[0] in UNPICKLERS or name.endswith("CloudpickleWrapper")
    }
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = _called(call.func, aliases)
        if name in FORBIDDEN_CALLS:
            found.add(name)
        if any(keyword.arg == "allow_pickle" for keyword in call.keywords):
            found.add(f"{name}(allow_pickle)")
        named = {part.value for part in call.args if isinstance(part, ast.Constant)}
        if name == "importlib.import_module" and named & UNPICKLERS:
            found |= named
    return found


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(name in the program, what it stands for)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
                yield alias.name, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _called(function: ast.expr, aliases: dict[str, str]) -> str:
    if isinstance(function, ast.Attribute):
        return f"{_called(function.value, aliases)}.{function.attr}"
    return aliases.get(function.id, function.id) if isinstance(function, ast.Name) else ""


def test_no_code_unpickles_or_evaluates() -> None:
    files = {str(path.relative_to(PACKAGE)): dangers(path.read_text()) for path in PACKAGE.rglob("*.py")}
    assert len(files) > 100
    assert {name for name, found in files.items() if found} == BETWEEN_OUR_OWN


@pytest.mark.parametrize(
    ("snippet", "danger"),
    [
        ("import pickle", "pickle"),
        ("import joblib.externals", "joblib.externals"),
        ("def f():\n    from cloudpickle import loads as load", "cloudpickle.loads"),
        ("from gymnasium.vector.utils import CloudpickleWrapper", "gymnasium.vector.utils.CloudpickleWrapper"),
        ("import importlib\nimportlib.import_module('dill')", "dill"),
        ("import torch\ntorch.load('x', weights_only=True)", "torch.load"),
        ("import torch as t\nt.load('x')", "torch.load"),
        ("import torch.nn\ntorch.load('x')", "torch.load"),
        ("from torch import load\nload('x')", "torch.load"),
        ("import numpy as np\nnp.load('x')", "numpy.load"),
        ("from numpy.lib import format\nformat.read_array(x, allow_pickle=True)", "allow_pickle"),
        ("import yaml\nyaml.load(text)", "yaml.load"),
        ("import os\nos.system('ls')", "os.system"),
        ("eval('1')", "eval"),
        ("exec('1')", "exec"),
    ],
)
def test_the_search_finds_its_patterns(snippet: str, danger: str) -> None:
    assert any(danger in found for found in dangers(snippet))


def test_the_search_lets_the_harmless_pass() -> None:
    assert (
        dangers("import safetensors.torch as s, json, re\ns.load(x)\njson.loads(x)\nmodule.eval()\nre.compile(x)")
        == set()
    )
