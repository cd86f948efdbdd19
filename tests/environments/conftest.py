"""Puts the programs of `benchmarks/` on the import path."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
