"""Find the classes that the files of a folder define, so that a new component is one new file."""

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")


def module_names(package: ModuleType) -> list[str]:
    """Return the names of a package's modules in alphabetical order, without importing them."""
    return sorted(info.name for info in pkgutil.iter_modules(package.__path__))


def classes_in(package: ModuleType, module_name: str, base: type[T]) -> list[type[T]]:
    """Import one module of a package and return the concrete subclasses of `base` that it defines."""
    module = importlib.import_module(f"{package.__name__}.{module_name}")
    return [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, base)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    ]
