"""Figures and tables of the paper and benchmarks, by theme: every module of this package defines some of them.

A study is a `Study` in a module of this package; `yamame reproduce NAME` trains its runs and draws it. Importing all of
them imports no PyTorch.
"""

import difflib
import importlib
import pkgutil

from yamame.errors import UserError
from yamame.studies.base import Study


def study_names() -> tuple[str, ...]:
    """Return the names of all studies, figures first, in the order of their numbers."""
    return tuple(_all_studies())


def load_study(name: str) -> Study:
    """Return a study by name. Raises `UserError` with the nearest name if there is none."""
    studies = _all_studies()
    if name not in studies:
        nearest = difflib.get_close_matches(name, studies, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else "yamame reproduce lists them"
        raise UserError(f"unknown experiment {name!r}: {hint}")
    return studies[name]


def find_benchmark(name: str) -> Study | None:
    """Return the study that is the benchmark of this name, for `yamame sweep NAME`; None if there is none."""
    return next((study for study in _all_studies().values() if study.benchmark == name), None)


def _all_studies() -> dict[str, Study]:
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    found = {value.name: value for module in modules for value in vars(module).values() if isinstance(value, Study)}
    return dict(sorted(found.items(), key=lambda item: _by_number(item[0])))


def _by_number(name: str) -> tuple[bool, int, str]:
    digits = "".join(filter(str.isdigit, name))
    return not name.startswith("fig"), int(digits or 0), name
