"""A module that the user trusts is imported from its place only, whatever lies in the working directory."""

import os
import sys
from pathlib import Path

import pytest

from yamame.cli import main
from yamame.config.named_code import load_named
from yamame.errors import UserError

CODE = "def make():\n    return {!r}\n"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The user's folder, and a download that is the working directory."""
    home, download = tmp_path / "home", tmp_path / "download"
    for folder in (home, download):
        folder.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("APPDATA", str(tmp_path / "config"))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    before = set(sys.modules)
    yield home, download  # type: ignore[misc]
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(folder: Path, name: str, code: str = "") -> Path:
    """Write a module; `package/module` makes a package."""
    path = folder / f"{name}.py"
    path.parent.mkdir(exist_ok=True)
    if path.parent != folder:
        (path.parent / "__init__.py").touch()
    path.write_text(code or CODE.format(folder.name))
    return path


def trust(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.chdir(folder)
    code = main(["trust", name])
    sys.path[:] = [entry for entry in sys.path if entry != str(folder)]
    return code


def found(name: str, *command: str) -> str:
    """What a config's name makes after a command in the working directory has searched its folders."""
    assert main(["eval", "nowhere", *command]) == 2
    return str(load_named(name, "env.env_fn")())


def test_a_module_of_a_trusted_package_is_that_of_its_place(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, download = places
    for folder in places:
        write(folder, "trusted_package/tasks")
    assert trust("trusted_package", home, monkeypatch) == 0
    monkeypatch.chdir(download)
    assert found("trusted_package.tasks:make", "--env", "trusted_package.tasks:make") == "home"


def test_what_a_trusted_module_imports_is_that_of_its_place(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, download = places
    for folder in places:
        write(folder, "sibling_of_trusted")
    write(home, "trusted_tasks", "from sibling_of_trusted import make as other\n\n\ndef make():\n    return other()\n")
    write(download, "named_by_the_command")
    assert trust("trusted_tasks", home, monkeypatch) == 0
    monkeypatch.chdir(download)
    assert found("trusted_tasks:make", "--import", "named_by_the_command") == "home"


def test_a_module_elsewhere_is_refused_also_if_the_command_names_it(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, download = places
    place = write(home, "moved_tasks")
    assert trust("moved_tasks", home, monkeypatch) == 0
    place.unlink()
    write(download, "moved_tasks", "raise SystemExit('executed')\n")
    monkeypatch.chdir(download)
    sys.path.append(str(download))
    assert main(["train", "--env", "moved_tasks:make"]) == 2
    assert "but yamame trust named" in capsys.readouterr().err
    with pytest.raises(UserError, match="but yamame trust named"):
        load_named("moved_tasks:make", "env.env_fn")


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_to_a_trusted_module_is_another_place(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled code is read from beside the link."""
    home, download = places
    place = write(home, "linked_tasks")
    assert trust("linked_tasks", home, monkeypatch) == 0
    (download / "linked_tasks.py").symlink_to(place)
    sys.path.append(str(download))
    with pytest.raises(UserError, match="but yamame trust named"):
        load_named("linked_tasks:make", "env.env_fn")


def test_only_files_and_packages_are_trusted(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """An import merges all folders of one name that have no __init__.py."""
    home, _ = places
    write(home, "whole_package/tasks")
    (home / "merged").mkdir()
    for name in ("whole_package.tasks", "merged", "missing_tasks", "whole_package/tasks.py"):
        assert trust(name, home, monkeypatch) == 2, name
