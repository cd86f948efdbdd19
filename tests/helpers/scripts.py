"""Programs of benchmarks/, in this process."""

import contextlib
import io
import runpy
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run benchmarks/`name`.py as a program; return its exit code and output."""
    command = [str(BENCHMARKS / f"{name}.py"), *arguments]
    out, err = io.StringIO(), io.StringIO()
    with patch.object(sys, "argv", command), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(command[0], run_name="__main__")
            code = 0
        except SystemExit as exit_:
            code = exit_.code or 0
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())
