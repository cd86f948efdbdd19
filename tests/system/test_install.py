"""The sdist and the wheel are whole, and the wheel needs no extra; the files about installing are consistent."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from documents import ROOT
from packaging.requirements import Requirement
from solved_tmaze import solved_tmaze

import yamame

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


ACT = ROOT / "packages" / "yamame-act"


def test_the_package_without_pytorch_is_the_same_package() -> None:
    """Version, license and the versions of what both need."""
    whole, acting = (
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"] for folder in (ROOT, ACT)
    )
    assert (ACT / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    for name in ("version", "license", "requires-python", "scripts", "authors"):
        assert acting[name] == whole[name]
    assert acting["optional-dependencies"]["serve"] == whole["optional-dependencies"]["serve"]
    assert set(acting["dependencies"]) < {*whole["dependencies"], *whole["optional-dependencies"]["onnx"]}
    assert not any("torch" in each for each in acting["dependencies"])


WITHOUT_PYTORCH = """
import importlib.util, subprocess, sys
import numpy as np
import yamame

assert importlib.util.find_spec("torch") is None
policy = yamame.load("policy.onnx", num_envs=2)
for time in range(16):
    observations = np.array([[time == 15, cue * (time == 0)] for cue in (-1, 1)], np.float32)
    actions = policy.act(observations, deterministic=True)
print(actions.tolist(), [round(float(row.max())) for row in policy.distribution().probability])
for name in ("train", "open", "resume", "check_env"):
    try:
        getattr(yamame, name)
        sys.exit(f"yamame.{name} is there")
    except yamame.UserError as error:
        assert "pip install yamame" in str(error), error
try:
    yamame.load("solved-tmaze")
    sys.exit("the run is there")
except yamame.UserError as error:
    print(error)
"""
COMMANDS = (
    "train CartPole-v1",
    "eval solved-tmaze",
    "serve solved-tmaze",
    "serve zoo:passive-tmaze",
    "view .",
    "recipes",
)


@pytest.mark.thorough
def test_an_environment_without_pytorch_acts_and_serves(tmp_path: Path) -> None:
    """From a wheel in a new virtual environment. It downloads 50 MB from the package index."""
    yamame.open(solved_tmaze(tmp_path)).export(tmp_path / "policy.onnx", num_envs="dynamic")
    source = tmp_path / "source"
    shutil.copytree(ACT, source / "packages" / "yamame-act", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    shutil.copytree(ROOT / "yamame", source / "yamame")
    wheel = built("wheel", source / "packages" / "yamame-act", tmp_path)
    venv.create(tmp_path / "venv", with_pip=True)
    folder = tmp_path / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
    python, command = folder / "python", folder / "yamame"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*map(str, words)], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=280
        )

    installed = run(python, "-m", "pip", "install", "--constraint", ROOT / "constraints.txt", f"{wheel}[serve]")
    assert installed.returncode == 0, installed.stderr
    acted = run(python, "-W", "error", "-c", WITHOUT_PYTORCH)
    assert acted.returncode == 0, acted.stderr
    first, second = acted.stdout.splitlines()
    assert first == "[3, 1] [1, 1]" and "the policy of solved-tmaze needs PyTorch" in second
    for words in COMMANDS:
        refused = run(command, *words.split())
        assert refused.returncode == 2 and "pip install yamame" in refused.stderr, refused
        assert len(refused.stderr.splitlines()) == 1
    assert run(command, "--version").stdout.startswith("yamame ")
    serving = subprocess.Popen(
        [str(command), "serve", "policy.onnx", "--port", "0"],
        cwd=tmp_path,
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
    )
    try:
        assert serving.stdout is not None
        address = next(word for word in serving.stdout.readline().split() if word.startswith("http"))
        code = "import sys, client; policy = client.PolicyClient(sys.argv[1]); print(policy.act([0, 1]), policy.time)"
        shutil.copy(ROOT / "examples" / "serving" / "client.py", tmp_path)
        assert run(python, "-c", code, address).stdout == "0 0\n"
    finally:
        serving.kill()
        serving.communicate()
    kilobytes = sum(path.stat().st_size for path in (tmp_path / "venv").rglob("*") if path.is_file()) // 1024
    assert kilobytes < 250 * 1024, "MB are documented in docs/installation.md"


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
