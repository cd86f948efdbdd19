"""The optional package, and where its datasets lie. Creating datasets through its own collector would need JAX."""

import re
from pathlib import Path
from typing import Any

from yamame.records.errors import UserError

_METADATA = "metadata.json"
_NAME = re.compile(r"(?:[-\w]+/)*[-\w]+-v\d+")


def minari() -> Any:
    """The package; `UserError` where it is not installed."""
    try:
        import h5py  # noqa: F401
        import minari
    except ImportError as error:
        raise UserError("Minari datasets need the packages minari and h5py: pip install 'yamame[minari]'") from error
    return minari


def is_dataset(name_or_directory: str) -> bool:
    """Whether a Minari dataset of this name, or in this directory, is on this machine."""
    return _data_of(name_or_directory) is not None


def open_dataset(name_or_directory: str) -> Any:
    """The dataset; `UserError` where there is none, or none that this version of Minari can read."""
    package, data = minari(), _data_of(name_or_directory)
    if data is None:
        raise UserError(f"{name_or_directory} is no Minari dataset: give the name of a local one, or its directory")
    try:
        return package.MinariDataset(data)
    except Exception as error:  # whatever Minari and HDF5 say of a damaged one
        raise UserError(f"the Minari dataset {name_or_directory} cannot be opened ({error})") from error


def create_dataset_dir(name_or_directory: str) -> tuple[Path, str]:
    """Where the data of a new dataset goes, and its Minari name; `UserError` where there is something already.

    A name such as `maze/expert-v0` goes among Minari's own datasets; what begins with `.`, `/` or `~`, or has no
    version at its end, is a directory.
    """
    if _is_name(name_or_directory):
        data, name = _in_minari(name_or_directory), name_or_directory
    else:
        data = Path(name_or_directory).expanduser().resolve()  # Minari takes a relative path twice
        name = re.sub(r"[^-\w]", "-", data.name)
        name = name if _NAME.fullmatch(name) else f"{name}-v0"
    if data.is_file() or (data.is_dir() and any(data.iterdir())):
        raise UserError(f"{data} is there already: choose another name or directory")
    return data, name


def _data_of(name_or_directory: str) -> Path | None:
    directory = Path(name_or_directory).expanduser().resolve()
    places = [directory, directory / "data"]
    places += [_in_minari(name_or_directory)] if _is_name(name_or_directory) else []
    return next((place for place in places if (place / _METADATA).is_file()), None)


def _in_minari(name: str) -> Path:
    minari()
    from minari.storage import get_dataset_path

    return Path(get_dataset_path(name)) / "data"


def _is_name(name_or_directory: str) -> bool:
    return _NAME.fullmatch(name_or_directory) is not None
