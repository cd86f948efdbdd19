"""The algorithms of this folder by name."""

import importlib
import pkgutil

from yamame import algorithms
from yamame.algorithms.base import AlgorithmConfig
from yamame.discovery import classes_in
from yamame.errors import UserError

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
