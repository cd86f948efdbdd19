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
    """Return module -> file or folder of its top-level package. Raises `UserError` if the list cannot be read."""
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


def find_module(module: str) -> Path | None:
    """Return the file or folder of a module's top-level package where an import finds it; None if there is none.

    Nothing is imported.
    """
    top = module.partition(".")[0]
    loaded = sys.modules.get(top)
    try:
        spec = loaded.__spec__ if loaded else importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = [spec.origin] if spec.has_location and spec.origin else list(spec.submodule_search_locations or ())
    return Path(places[0]).resolve() if places else None


def require_trusted_place(module: str, trusted: Mapping[str, str]) -> str | None:
    """Return why a module is not to be imported although the list has its name; None if it may be.

    The folder of a trusted module that no import finds is appended to the path of modules.
    """
    place = Path(trusted[module])
    if find_module(module) is None and place.exists():
        sys.path.append(str(import_folder(place)))
    found = find_module(module)
    if found == place:
        return None
    where = f"is {found}" if found else "cannot be found"
    return f"module {module} {where}, but yamame trust named {place}: run yamame trust {module} again where it is"


def search_trusted_places(modules: Sequence[str | ModuleType]) -> None:
    """Append the folders of those modules that the user trusts to the path of modules, if no import finds them yet."""
    trusted = read_trusted()
    for module in modules:
        if isinstance(module, str) and module in trusted:
            require_trusted_place(module, trusted)


def import_folder(place: Path) -> Path:
    """Return the folder on the path of modules in which a file or folder of `find_module` lies."""
    return place.parents[1] if place.name == "__init__.py" else place.parent
