"""The algorithms of this folder by name."""

import importlib
import pkgutil
from typing import TypeVar

from yamame import algorithms
from yamame.algorithms.base import AlgorithmConfig
from yamame.discovery import classes_in
from yamame.errors import UserError

A = TypeVar("A", bound=AlgorithmConfig)

_CONFIG = "config"
"""Module of an algorithm's folder that defines its `AlgorithmConfig`."""


def available_algorithms() -> list[str]:
    """Return the names of the algorithms, those of their folders, without importing them."""
    return sorted(info.name for info in pkgutil.iter_modules(algorithms.__path__) if info.ispkg)


def algorithm_config(name: str) -> AlgorithmConfig:
    """Return the config of the algorithm in `yamame/algorithms/<name>/`, with the defaults of its class.

    Raises `UserError` if there is no such folder, or if its file `config.py` does not define exactly one config.
    """
    if name not in available_algorithms():
        raise UserError(f"unknown algorithm {name!r}: choose among {', '.join(available_algorithms())}")
    package = importlib.import_module(f"{algorithms.__name__}.{name}")
    classes = classes_in(package, _CONFIG, AlgorithmConfig)  # type: ignore[type-abstract]
    if len(classes) != 1:
        raise UserError(f"{package.__name__}.{_CONFIG} must define one AlgorithmConfig, but it defines {len(classes)}")
    return classes[0]()


def require_algorithm(algorithm: AlgorithmConfig, kind: type[A], name: str) -> A:
    """Return the config if it is of a class; for variants of one algorithm.

    Args:
        algorithm: Config of any algorithm.
        kind: Class that the variant requires.
        name: Name of the algorithm of that class, for the message.

    Raises:
        UserError: If it is the config of another algorithm.
    """
    if not isinstance(algorithm, kind):
        raise UserError(f"this variant requires --algorithm {name}, not {algorithm_name(algorithm)}")
    return algorithm


def algorithm_name(algorithm: AlgorithmConfig) -> str:
    """Return the name of an algorithm's folder, or of its class if it is in no such folder."""
    folder = type(algorithm).__module__.removeprefix(f"{algorithms.__name__}.").removesuffix(f".{_CONFIG}")
    return folder if folder in available_algorithms() else type(algorithm).__name__
