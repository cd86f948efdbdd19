"""Command line of `yamame trust`."""

import argparse
import json
from typing import Any

from yamame.config.trusted_modules import find_module, read_trusted, trusted_path
from yamame.errors import UserError, wrap_os_errors
from yamame.runs.durable_files import write_json
from yamame.tools.options import add_command, add_flags, reject_unknown


def register(subparsers: Any) -> None:
    """Add `yamame trust`."""
    trust = add_command(
        subparsers,
        "trust",
        _trust,
        help="trust your modules in all commands, as --import does in one; lists them without MODULE",
        description="Adds modules to a list in your config folder, each with the place where an import finds it now. "
        "Every command may then import them for runs that name them, and no module of the same name elsewhere. A "
        "package includes its modules. Nothing is imported by this command.",
    )
    trust.add_argument("modules_to_trust", metavar="MODULE", nargs="*", help="module or package, such as my_tasks")
    trust.add_argument("--remove", action="store_true", help="take the modules off the list")
    add_flags(trust, "--json")


def _trust(options: argparse.Namespace, rest: list[str]) -> int:
    reject_unknown(rest)
    trusted = read_trusted()
    for module in options.modules_to_trust:
        if options.remove:
            if trusted.pop(module, None) is None:
                raise UserError(f"{module} is not among the trusted modules: yamame trust lists them")
            continue
        if not module.isidentifier():
            raise UserError(f"expected the name of a module or of a whole package, such as my_tasks, got {module!r}")
        place = find_module(module)
        if place is None:
            raise UserError(
                f"cannot find {module} as a file or as a package with __init__.py: go to its folder, put that on "
                "PYTHONPATH, or install it"
            )
        trusted[module] = str(place)
    if options.modules_to_trust:
        with wrap_os_errors(trusted_path()):
            trusted_path().parent.mkdir(parents=True, exist_ok=True)
        write_json(trusted_path(), trusted)
    elif options.remove:
        raise UserError("--remove: name the modules")
    if options.json:
        print(json.dumps(trusted), file=options.stdout)
        return 0
    for module, path_of_module in trusted.items():
        print(f"{module:23}{path_of_module}")
    if not trusted:
        print("No module is trusted: yamame trust MODULE adds one.")
    return 0
