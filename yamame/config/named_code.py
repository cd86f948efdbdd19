"""Classes and functions that files name, as `package.module:name`.

No module is imported on a file's word: a class is one of this package or belongs to a module that the caller has named
(`caller_modules`) or that the user trusts in all commands (`trusted_modules`), a function belongs to such a module. A
package that is named includes its modules.
"""

import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from yamame.config.trusted_modules import read_trusted, untrusted_reason
from yamame.errors import FieldPathError, UserError

_caller_modules: ContextVar[Mapping[str, ModuleType]] = ContextVar("caller_modules")
_makes_environments: ContextVar[bool] = ContextVar("makes_environments")
_advice: ContextVar[str] = ContextVar("advice")
"""How the caller names a module, with `{}` in its place."""
_DEFAULT_ADVICE = "add --import {} to the command (in Python: modules=['{}'])"
_MAIN = ("__main__", "__mp_main__")
"""Names of the main script's module, in this process and in processes that `multiprocessing` starts."""
_MOVED = {"yamame.config": "yamame.run_config"}
"""Module that files of earlier versions name -> where its classes are today."""


class MissingFunction:
    """Placeholder for a function that a file names and that is not available. Calling it raises `UserError`.

    Writing the config stores `described` again.
    """

    def __init__(self, described: Mapping[str, Any], name: str, why: str) -> None:
        self.described, self.why = described, why
        self.__name__ = name if re.fullmatch(r"[\w.<>]{1,100}", name) else "function"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `UserError`."""
        raise UserError(self.why)


@contextmanager
def caller_modules(modules: Iterable[str | ModuleType], *, advice: str | None = None) -> Iterator[None]:
    """Import modules, and let config files that are read inside this context name their classes and functions.

    Args:
        modules: Modules, or their names.
        advice: What messages about other modules say to do, with `{}` for the module; None: as outside of the context.

    Raises:
        UserError: If a module cannot be imported.
    """
    imported = [import_module(module) if isinstance(module, str) else module for module in check_modules(modules)]
    named = {_module_name(module.__name__): module for module in imported}
    token = _caller_modules.set({**_caller_modules.get({}), **named})
    advice_token = _advice.set(advice or _advice.get(_DEFAULT_ADVICE))
    try:
        yield
    finally:
        _caller_modules.reset(token)
        _advice.reset(advice_token)


def check_modules(modules: Any) -> Sequence[str | ModuleType]:
    """Return a list of modules or their names. Raises `UserError` for a single one."""
    if isinstance(modules, str | ModuleType):
        name = modules if isinstance(modules, str) else modules.__name__
        raise UserError(f"modules: expected a list, got {name!r} alone: pass modules=[{name!r}]")
    return tuple(modules)


@contextmanager
def without_environments() -> Iterator[None]:
    """Read configs whose environments are never made: nobody needs to name the modules that making them imports."""
    token = _makes_environments.set(False)
    try:
        yield
    finally:
        _makes_environments.reset(token)


def caller_module_names() -> tuple[str, ...]:
    """Return the names of the modules of `caller_modules`."""
    return tuple(_caller_modules.get({}))


def modules_of(*named: Any) -> list[str | ModuleType]:
    """Return the modules of what a caller passes: of functions and classes, and of names such as `module:Name-v0`."""
    modules: dict[str, str | ModuleType] = {}
    for value in named:
        module, colon, _ = (value if isinstance(value, str) else import_name(value) or "").partition(":")
        if colon and module.partition(".")[0] not in sys.stdlib_module_names:
            modules[module] = module if isinstance(value, str) else sys.modules[value.__module__]
    return list(modules.values())


def import_name(value: Any) -> str | None:
    """Return `module:qualname` if an import finds this class or function there; None for a lambda or a local function.

    Those of the main script are found under the name of its file.
    """
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    found = value is not None and value is _nested_attribute(sys.modules.get(module), name)
    return f"{_module_name(module)}:{name}" if found and _module_name(module) not in _MAIN else None


def describe_function(function: Any) -> str:
    """Return the name of a function or class, or of the class of another callable."""
    name: str = getattr(function, "__qualname__", type(function).__qualname__)
    return name


def _module_name(module: str) -> str:
    """Return the name under which a module can be imported: for the main script that of its file, if it has one."""
    main = sys.modules.get(module)
    if module not in _MAIN or main is None:
        return module
    if main.__spec__ is not None:  # python -m package.module
        return main.__spec__.name
    stem = Path(getattr(main, "__file__", None) or "").stem
    return stem if stem.isidentifier() else module


def load_function(described: Mapping[str, Any], path: str) -> Any:
    """Return the function that a file describes, or a `MissingFunction`."""
    name = described.get("callable")
    if name is None:
        return MissingFunction(described, str(described.get("name")), f"{path}: {described.get('why')}")
    try:
        require_caller_module(str(name).partition(":")[0], path)
        return load_named(name, path)
    except UserError as problem:
        return MissingFunction(described, str(name).rpartition(":")[2], str(problem))


def load_named(name: Any, path: str) -> Any:
    """Return what an allowed module defines under `module:qualname`. Raises `FieldPathError` for any other name."""
    module, _, attribute = name.partition(":") if isinstance(name, str) else ("", "", "")
    module = _MOVED.get(module, module)
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", module) or not attribute:
        raise FieldPathError(path, f": expected module:Name, got {short(repr(name))}")
    if not re.fullmatch(r"yamame(\.[a-z]\w*)+", module):  # private modules such as __main__ are excluded
        require_caller_module(module, path)
    found = _nested_attribute(_caller_modules.get({}).get(module) or import_module(module), attribute)
    if not callable(found) or (_module_name(found.__module__), found.__qualname__) != (module, attribute):
        raise FieldPathError(path, f": module {module} defines no {attribute}: was it renamed?")
    return found


def import_function(name: str) -> Any:
    """Import the function that the caller has named `module:function`. Raises `UserError` if there is none."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise UserError(f"expected module:function, got {short(repr(name))}")
    found = _nested_attribute(import_module(module), attribute)
    if not callable(found):
        raise UserError(f"module {module} defines no function {attribute}")
    return found


def require_caller_module(module: str, path: str) -> None:
    """Raise `UserError` for a module that the caller has not named."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise FieldPathError(path, f": module {module} is part of Python, which no config needs: the file was altered")
    parts = module.split(".")
    packages = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    if any(name in _caller_modules.get({}) for name in packages):
        return
    trusted = read_trusted()
    if parts[0] in trusted:
        if reason := untrusted_reason(parts[0], trusted):
            raise FieldPathError(path, f": {reason}")
        return
    how = "name it"
    if len(module) < 80:
        how = f"{_advice.get(_DEFAULT_ADVICE).replace('{}', module)}, or once for all: yamame trust {parts[0]}"
    raise FieldPathError(path, f": module {short(repr(module))} is not part of yamame: if you trust its code, {how}")


def require_importable(modules: Iterable[str], path: str) -> None:
    """Raise `UserError` for a module that making an environment imports and that the caller has not named."""
    for module in modules if _makes_environments.get(True) else ():
        require_caller_module(module, path)


def import_module(module: str) -> ModuleType:
    """Import a module that the caller has named. Raises `UserError` if that fails."""
    try:
        return importlib.import_module(module)
    except Exception as problem:  # a module can raise anything
        raise UserError(f"cannot import {module} ({problem}): put its folder on PYTHONPATH or install it") from problem


def import_trusted_modules() -> bool:
    """Import the modules that the user trusts in all commands; return whether any was not imported before."""
    trusted = read_trusted()
    new = [name for name in trusted if name not in sys.modules and not untrusted_reason(name, trusted)]
    for name in new:
        import_module(name)
    return bool(new)


def short(text: str) -> str:
    """Return the first 80 characters of a text, with an ellipsis if there are more."""
    return text if len(text) <= 80 else f"{text[:77]}..."


def _nested_attribute(found: Any, qualified_name: str) -> Any:
    for part in qualified_name.split("."):
        found = getattr(found, part, None)
    return found
