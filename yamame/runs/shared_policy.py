"""Policy folders: a run directory reduced to what acting, evaluating and playing need, to be shared.

  manifest.json    format, weights, and the SHA-256 of every file below
  config.json spaces.json metadata.json    as in the run directory
  result.json      evaluation of this policy
  metrics.jsonl    returns of training, thinned
  checkpoints/     one checkpoint without optimizer and replay

Code that reads run directories reads policy folders. Nothing is written into them. A model card and pictures may lie
beside these files and be edited; nothing reads them.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from yamame.config.serialization import from_json, parse_json
from yamame.errors import UserError
from yamame.runs.directory import CHECKPOINTS, CONFIG, METADATA, METRICS, RESULT, RUN_ENTRY, SPACES

MANIFEST = "manifest.json"
SCHEMA_VERSION = 1
_CHECKPOINT_FILE = rf"{CHECKPOINTS}/(update-\d{{9,}})/(?:manifest\.json|state\.json|tensors\.safetensors)"
_FILES = (CONFIG, SPACES, METADATA, RESULT, METRICS)
_REQUIRED = (CONFIG, SPACES, METADATA, RESULT)

Weights = Literal["all", "acting"]
"""all: those of the whole model; acting: those that choose actions, without critics and target networks."""


@dataclass(frozen=True, kw_only=True)
class SharedPolicyManifest:
    """Content of `manifest.json`."""

    schema: int
    weights: Weights
    sha256: Mapping[str, str]
    """Path of each file, with forward slashes -> its digest in hexadecimal."""


def is_policy_folder(path: Path) -> bool:
    """Return whether a folder is a policy folder, intact or not. A checkpoint has a manifest of its own."""
    return (path / MANIFEST).is_file() and (path / CHECKPOINTS).is_dir()


def read_manifest(folder: Path, source: str = "") -> SharedPolicyManifest:
    """Read the manifest of a policy folder.

    Args:
        folder: The folder.
        source: Name of the policy in errors; "": the folder.

    Raises:
        UserError: If there is none, or if it names files that a policy does not consist of.
    """
    name = source or str(folder)
    try:
        content = parse_json((folder / MANIFEST).read_text(encoding="utf-8"))
        if isinstance(content, dict) and content.get("schema") != SCHEMA_VERSION:
            raise ValueError(f"its schema is {content.get('schema')!r}, this version of yamame reads {SCHEMA_VERSION}")
        manifest = from_json(SharedPolicyManifest, {**content, "type": SharedPolicyManifest}, "manifest")
        _check_names(manifest.sha256)
    except FileNotFoundError as problem:
        raise UserError(f"{name} is not a policy that yamame push has written: it has no {MANIFEST}") from problem
    except Exception as problem:  # a corrupted file can make parsers raise anything
        raise UserError(f"{MANIFEST} of {name} cannot be read ({problem})") from problem
    return manifest


def check_policy_folder(folder: Path, source: str = "") -> SharedPolicyManifest:
    """Return the manifest of a policy folder whose files all match their digests.

    Args:
        folder: The folder.
        source: Name of the policy in errors; "": the folder.

    Raises:
        UserError: If a file is missing or differs, or if there is a file that would be read but is not in the manifest.
    """
    name = source or str(folder)
    manifest = read_manifest(folder, source)
    for path, digest in manifest.sha256.items():
        try:
            found = file_digest(folder / path)
        except OSError as problem:
            raise UserError(f"{path} of {name} cannot be read ({problem.strerror}): get the policy again") from problem
        if found != digest:
            raise UserError(f"{path} of {name} does not match its digest in {MANIFEST}: get the policy again")
    for path in foreign_files(folder, manifest):
        raise UserError(f"{path} of {name} is not in {MANIFEST}: remove it, or get the policy again")
    return manifest


def foreign_files(folder: Path, manifest: SharedPolicyManifest) -> list[str]:
    """Return the files that yamame reads in a run directory but that are not in the manifest."""
    entries = [entry for entry in folder.iterdir() if entry.name != MANIFEST and RUN_ENTRY.fullmatch(entry.name)]
    files = [file for entry in entries for file in (entry.rglob("*") if entry.is_dir() else [entry])]
    names = (file.relative_to(folder).as_posix() for file in files if not file.is_dir())
    return sorted(name for name in names if name not in manifest.sha256)


def write_manifest(folder: Path, weights: Weights) -> None:
    """Write the manifest of the files in a folder, which makes it a policy folder."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    sha256 = {name: file_digest(folder / name) for name in names}
    content: dict[str, Any] = {"schema": SCHEMA_VERSION, "weights": weights, "sha256": sha256}
    (folder / MANIFEST).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_names(sha256: Mapping[str, str]) -> None:
    """Raise `ValueError` unless the names are those of a policy with one checkpoint."""
    checkpoints = {match[1] for name in sha256 if (match := re.fullmatch(_CHECKPOINT_FILE, name))}
    for name in sha256:
        if name not in _FILES and not re.fullmatch(_CHECKPOINT_FILE, name):
            raise ValueError(f"it names {name!r}, of which a policy does not consist")
    missing = [name for name in _REQUIRED if name not in sha256]
    if missing:
        raise ValueError(f"it does not name {missing[0]}")
    if len(checkpoints) != 1:
        raise ValueError(f"it names {len(checkpoints)} checkpoints instead of one")
