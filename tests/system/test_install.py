"""The sdist and the wheel are whole, and the wheel needs no extra; the files about installing are consistent."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from documents import ROOT
from packaging.requirements import Requirement

BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "yamame")
BUILD = "from setuptools import build_meta; print(build_meta.build_{kind}({folder!r}))"

WITHOUT_EXTRAS = """
import sys
from importlib.machinery import PathFinder

class WithoutExtras(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in {missing!r} else super().find_spec(name, path, target)

sys.meta_path = [finder for finder in sys.meta_path if getattr(finder, "__module__", "").startswith("_frozen")]
sys.meta_path[sys.meta_path.index(PathFinder)] = WithoutExtras
sys.path.insert(0, {wheel!r})

import yamame
assert yamame.__file__.startswith({wheel!r}), yamame.__file__
from yamame import cli

for command in [
    "recipes",
    "train passive-tmaze --size tiny --env-steps 400 --eval.final-trials 4 --compute.device cpu --run-dir run --quiet",
    "play run --output trial.gif",
]:
    assert cli.main(command.split()) == 0, command
assert cli.main("train popgym --env.name AutoencodeEasy".split()) == 2  # which names the extra
"""


def run_python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done


def built(kind: str, source: Path, folder: Path) -> Path:
    code = BUILD.format(kind=kind, folder=str(folder))
    return folder / run_python(code, source).stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel that the sdist makes, in a folder whose path has no checkout in it."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in BUILT_FROM:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    with tarfile.open(built("sdist", source, folder)) as sdist:
        sdist.extractall(folder, filter="data")
    (unpacked,) = [path for path in folder.iterdir() if path.is_dir()]
    with zipfile.ZipFile(built("wheel", unpacked, folder)) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def core_distributions() -> set[str]:
    """Names of what is installed with Yamame alone, without extras."""
    found: set[str] = set()
    waiting = ["yamame"]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name not in found:
            found.add(name)
            needs = map(Requirement, importlib.metadata.requires(name) or ())
            waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


@pytest.mark.slow
def test_the_wheel_of_the_sdist_has_every_file(wheel: Path) -> None:
    def files(folder: Path) -> set[str]:
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}

    assert files(wheel / "yamame") == files(ROOT / "yamame")
    assert list(wheel.glob("*.dist-info/licenses/LICENSE"))


@pytest.mark.slow
def test_the_wheel_trains_without_extras(wheel: Path, tmp_path: Path) -> None:
    core = core_distributions()
    missing = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} & core
    }
    assert "pytest" in missing and not {"torch", "gymnasium", "yamame"} & missing
    done = run_python(WITHOUT_EXTRAS.format(missing=missing, wheel=str(wheel)), tmp_path)
    assert "pip install 'yamame[popgym]'" in done.stderr
    assert (tmp_path / "trial.gif").stat().st_size > 0


def test_the_citation_has_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {project['version']}\n" in citation and f"\nlicense: {project['license']}\n" in citation


def test_the_image_copies_what_the_build_needs() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = {name for line in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE) for name in line.split()}
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[0] == "!"}
    assert copied == sent == {*BUILT_FROM, "constraints.txt"}
    assert all((ROOT / name).exists() for name in copied)


def test_the_workflow_runs_targets_and_tests_that_exist() -> None:
    workflow = (ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"run: make (\S+)", workflow)
    assert targets == ["quick", "test"] and all(f"\n{target}: " in makefile for target in targets)
    paths = re.findall(r" (tests/\S+)", workflow)
    assert paths and all((ROOT / path).exists() for path in paths)
