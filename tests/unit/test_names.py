"""Names of the package: one public class or function of a name."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import yamame

ROOT = Path(yamame.__file__).parent
HOOKS = {
    "config": "recipes/*.py",
    "paper": "recipes/*.py",
    "Options": "tools/figures/*.py",
    "draw": "tools/figures/*.py",
    "register": "tools/*.py",
    "routes": "tools/viewer/*.py",
}
"""Names that every module of a kind defines by contract -> the modules of this kind.

Recipes define `config` and `paper`, figures `Options` and `draw`, commands `register`, views `routes`.
"""


def public_definitions(path: Path) -> Iterator[str]:
    """The public classes and functions at the top of a module."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node.name


def modules_by_name(root: Path) -> dict[str, list[str]]:
    """Name -> the modules that define it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        for name in public_definitions(path):
            found[name].append(path.relative_to(root).as_posix())
    return found


def repeated(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """The names with several definitions, apart from hooks in the modules of their kind."""
    return {
        name: outside
        for name, modules in found.items()
        if len(modules) > 1 and (outside := [module for module in modules if not fnmatch(module, HOOKS.get(name, ""))])
    }


def test_no_two_public_classes_or_functions_have_one_name() -> None:
    found = modules_by_name(ROOT)
    assert len(found) > 500
    assert repeated(found) == {}


def test_every_exception_is_needed() -> None:
    found = modules_by_name(ROOT)
    assert all(len(found[name]) > 1 for name in HOOKS)


def test_a_repeated_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    for path, content in {
        "recipes/one.py": "def config(): ...",
        "recipes/two.py": "def config(): ...",
        "three.py": "class Curve: ...\ndef _draw(): ...",
        "four.py": "async def Curve(): ...\ndef _draw(): ...\nclass Other:\n    def Curve(self): ...",
    }.items():
        (tmp_path / path).write_text(content)
    assert repeated(modules_by_name(tmp_path)) == {"Curve": ["four.py", "three.py"]}
    (tmp_path / "five.py").write_text("def config(): ...")
    assert repeated(modules_by_name(tmp_path))["config"] == ["five.py"]
