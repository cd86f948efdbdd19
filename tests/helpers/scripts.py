"""Programs of benchmarks/ and tiny runs for them to look into, each in a process of its own with one thread."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What benchmarks/`name`.py did."""
    command = [sys.executable, f"benchmarks/{name}.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=ONE_THREAD, capture_output=True, text=True, check=False)


def train(recipe: str, run: Path, flags: str) -> Path:
    """The run directory."""
    command = [sys.executable, "-m", "yamame", "train", recipe, "--run-dir", str(run), *flags.split()]
    subprocess.run(command, cwd=ROOT, env=ONE_THREAD, check=True, capture_output=True)
    return run
