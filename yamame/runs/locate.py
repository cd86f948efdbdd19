"""What `RUN` may be in commands and in Python: a path, a policy of the zoo, or a repository of the Hugging Face Hub."""

import difflib
import importlib
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from yamame.errors import UserError, error_message
from yamame.runs.shared_policy import MANIFEST, check_policy_folder, is_policy_folder, read_manifest

ZOO, HUB = "zoo:", "hf://"
"""Prefixes of sources that are not paths."""
ZOO_FOLDER = Path(__file__).parents[1] / "zoo"
"""The policy folders of the package."""
REPO_ID = r"[\w.-]+/[\w.-]+"
"""Pattern of `user/repo`."""


@runtime_checkable
class OpenedRun(Protocol):
    """What `yamame.train` and `yamame.open` return."""

    @property
    def directory(self) -> Path:
        """Its run directory."""


Source = str | Path | OpenedRun
"""What names a run in Python."""


def locate_run(source: Source) -> Path:
    """Return the directory of a run or policy.

    Args:
        source: The path of a run directory or policy folder, `zoo:NAME`, or `hf://user/repo[@revision]`, which is
            downloaded once for each commit. The revision is a branch, a tag or a commit; the default is `main`.

    Returns:
        The path itself, unchecked, unless it is that of a policy folder; otherwise a policy folder. Its files match
        their digests. Nothing in it is executed.

    Raises:
        UserError: If there is no such policy, or one of its files is corrupted, or the Hub cannot be reached.
    """
    source = check_source(source)
    name = str(source)
    if name.startswith(ZOO):
        path = _zoo_policy(name.removeprefix(ZOO))
    elif name.startswith(HUB):
        path = _download(name)
    else:
        path = Path(source)
    if is_policy_folder(path):
        check_policy_folder(path)
    return path


def check_source(source: Any) -> str | Path:
    """Return a source of `locate_run`; that of an opened run is its directory. Raises `UserError` for anything else."""
    found = getattr(source, "directory", source)
    if not isinstance(found, str | os.PathLike):
        raise UserError(f"expected the path of a run, got {source!r} ({type(source).__name__}): pass a str or a Path")
    return Path(found) if isinstance(found, os.PathLike) else found


def zoo_names() -> list[str]:
    """Return the names of the policies in the zoo, sorted."""
    return sorted(path.name for path in ZOO_FOLDER.glob("*") if is_policy_folder(path))


def import_hub() -> ModuleType:
    """Import `huggingface_hub`. Raises `UserError` if it is not installed."""
    try:
        return importlib.import_module("huggingface_hub")
    except ModuleNotFoundError as missing:
        raise UserError("the Hugging Face Hub needs huggingface_hub: pip install 'yamame[hub]'") from missing


def hub_problem(problem: Exception) -> str:
    """Return the first line of the message of an exception that `huggingface_hub` raised."""
    lines = error_message(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0].strip()}" if lines else type(problem).__name__


def _zoo_policy(name: str) -> Path:
    names = zoo_names()
    if not names:
        raise UserError("yamame-act has no zoo, whose policies act by PyTorch: pip uninstall it and pip install yamame")
    if name not in names:
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {ZOO}{nearest[0]}?" if nearest else f"it has {', '.join(names)}"
        raise UserError(f"there is no {name!r} in the zoo: {hint}")
    return ZOO_FOLDER / name


def _download(source: str) -> Path:
    """Download the files that the manifest of a repository names; return a folder of these alone."""
    match = re.fullmatch(rf"{HUB}({REPO_ID})(?:@([\w./-]+))?", source)
    if not match:
        raise UserError(f"{source} is no repository: expected hf://user/repo or hf://user/repo@revision")
    repo, revision = match.groups()
    hub = import_hub()
    try:
        snapshot = Path(hub.snapshot_download(repo, revision=revision, allow_patterns=[MANIFEST]))
        commit = snapshot.name
        names = [MANIFEST, *read_manifest(snapshot, source).sha256]
        snapshot = Path(hub.snapshot_download(repo, revision=commit, allow_patterns=names))
        parent = Path(hub.cached_assets_path("yamame", namespace=repo, subfolder="policies"))
    except UserError:
        raise
    except Exception as problem:  # the client's own, those of its HTTP library, of the operating system
        raise UserError(f"cannot download {source} ({hub_problem(problem)})") from problem
    folder = parent / f"{repo.partition('/')[2]}-{commit[:12]}"
    if not is_policy_folder(folder):
        _copy_policy(snapshot, folder, names, source)
    return folder


def _copy_policy(snapshot: Path, folder: Path, names: list[str], source: str) -> None:
    """Copy files, of which the cache of the client has links, to a folder that appears complete and checked."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        partial = Path(temporary) / folder.name
        try:
            for name in names:
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(snapshot / name, partial / name)
        except FileNotFoundError as problem:
            raise UserError(f"{name} of {source} is missing: get the policy again") from problem
        except OSError as problem:
            raise UserError(f"cannot copy {source} to {folder} ({problem.strerror})") from problem
        check_policy_folder(partial, source)
        with suppress(OSError):  # another process was faster
            partial.rename(folder)
