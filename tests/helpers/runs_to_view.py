"""Runs for tests of the viewer: real ones, made by training, and folders as they should not be."""

import json
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from command_runs import SMALL

from yamame.cli import main
from yamame.tools.viewer.app import Access, build_viewer_app
from yamame.tools.viewer.run_index import RunIndex

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette prefers a successor of httpx
    from starlette.testclient import TestClient


def train(run: Path, *flags: str) -> Path:
    """A real run in its own folder, a second of training."""
    steps = () if "--env-steps" in flags else ("--env-steps", "256")
    command = ["train", "passive-tmaze", "--env.horizon", "3", *steps, *SMALL, *flags]
    assert main([*command, "--run-dir", str(run), "--quiet"]) == 0
    return run


def write_run(run: Path, lines: Sequence[dict[str, Any]] = (), **config: Any) -> Path:
    """A directory with the files of a run."""
    run.mkdir(parents=True)
    config = {"type": "yamame.run_config:RunConfig", "env_steps": 1000, "seed": 0, **config}
    (run / "config.json").write_text(json.dumps(config))
    (run / "metadata.json").write_text(json.dumps({"recipe": "made-up", "expected": ""}))
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def line(step: int, **values: float) -> dict[str, Any]:
    """What a run logs: `loss__td` stands for `loss/td`."""
    named = {key.replace("__", "/"): value for key, value in values.items()}
    return {"env_steps": step, "updates": step // 2, "wall_seconds": step / 10, **named}


@contextmanager
def client(*roots: Path, access: Access | None = None, host: str = "127.0.0.1") -> Iterator[TestClient]:
    """A client of a viewer over these folders, without a network; every request reads the folders again."""
    ticks = iter(range(1_000_000))
    app = build_viewer_app(RunIndex(roots, clock=lambda: 10.0 * next(ticks)), access or Access())
    with TestClient(app, base_url=f"http://{host}:8000", follow_redirects=False) as asking:
        yield asking


def ids(asking: TestClient) -> dict[str, str]:
    """Name -> id of every run."""
    return {run["name"]: run["id"] for run in asking.get("/api/runs").json()["runs"]}


def row(asking: TestClient, name: str) -> dict[str, Any]:
    """The row of one run."""
    return next(run for run in asking.get("/api/runs").json()["runs"] if run["name"] == name)


def same(one: Sequence[float], other: Sequence[float]) -> bool:
    """As near as six digits are."""
    return len(one) == len(other) and all(
        math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-12) for a, b in zip(one, other, strict=True)
    )
