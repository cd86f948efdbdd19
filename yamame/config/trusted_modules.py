"""Modules that the user trusts in all commands: a file in the user's config folder, which `yamame trust` writes.

A module is trusted with the place where it was found. A module of the same name elsewhere, such as in the working
directory beside a run that someone else made, is not.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from yamame.errors import UserError

TRUSTED_FILE = "trusted_modules.json"


def trusted_path() -> Path:
    """Return the path of the list: `yamame/trusted_modules.json` in the user's config folder."""
    variable, default = ("APPDATA", "AppData/Roaming") if os.name == "nt" else ("XDG_CONFIG_HOME", ".config")
    return Path(os.environ.get(variable) or Path.home() / default) / "yamame" / TRUSTED_FILE


def read_trusted() -> dict[str, str]:
    """Return top-level module -> its file. Raises `UserError` if the list cannot be read."""
    path = trusted_path()
    try:
        trusted: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        if not (isinstance(trusted, dict) and all(isinstance(place, str) for place in trusted.values())):
            raise ValueError("it is not an object of strings")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as problem:
        raise UserError(f"{path} cannot be read ({problem}): correct or remove it") from problem
    return trusted


def find_module(name: str) -> Path | None:
    """Return the file of a top-level module, or of the `__init__.py` of a package, where an import finds it.

    None if there is none; a folder without `__init__.py` is none: an import merges all folders of its name. Links are
    not followed, since the cache of compiled code lies beside the link. Nothing is imported.
    """
    loaded = sys.modules.get(name)
    try:
        spec = loaded.__spec__ if loaded else importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).absolute() if spec and spec.has_location and spec.origin else None


def untrusted_reason(name: str, trusted: Mapping[str, str]) -> str | None:
    """Return why a top-level module is not to be imported although the list has its name; None if it may be.

    The folder of a trusted module that no import finds is appended to the path of modules.
    """
    place = Path(trusted[name])
    if find_module(name) is None and place.exists():
        sys.path.append(str(place.parents[1] if place.name == "__init__.py" else place.parent))
    found = find_module(name)
    if found == place:
        return None
    where = f"is {found}" if found else "cannot be found"
    return f"module {name} {where}, but yamame trust named {place}: run yamame trust {name} again where it is"


def search_trusted_places(named: Sequence[str | ModuleType]) -> None:
    """Append the folders of all trusted modules that no import finds yet to the path of modules.

    Called before other folders are appended, in which modules of these names, or of those that they import, may lie.
    Raises `UserError` if a command names a trusted module that an import finds elsewhere.
    """
    trusted = read_trusted()
    reasons = {name: untrusted_reason(name, trusted) for name in trusted}
    for module in named:
        if isinstance(module, str) and (reason := reasons.get(module.partition(".")[0])):
            raise UserError(reason)
