"""Helpers of the sweep tests: a `train` function that trains nothing, and how commands answer."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from yamame.cli import main
from yamame.config_io import to_json
from yamame.metrics import EVAL_RETURN
from yamame.recipe_loader import about_run, load_recipe
from yamame.run_dir import CONFIG, METADATA, RESULT
from yamame.tools.sweep.plan import PlannedRun


class FakeTrain:
    """Writes the files of a run at once; its returns follow from the seed and the length of its name."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        """Of the runs that were trained, in their order."""
        self.errors: dict[str, BaseException] = {}
        """Title -> what is raised."""
        self.stop_at = ""
        """Title of the run that a signal stops."""

    def __call__(self, run: PlannedRun, quiet: bool) -> Mapping[str, Any]:
        self.titles.append(run.title)
        if run.title in self.errors:
            raise self.errors[run.title]
        run.directory.mkdir(exist_ok=True)
        metadata = asdict(about_run(load_recipe(run.recipe), run.config))
        for name, content in ((METADATA, metadata), (CONFIG, to_json(run.config))):
            (run.directory / name).write_text(json.dumps(content))
        score = fake_return(run.series, run.config.seed)
        (run.directory / "metrics.jsonl").write_text(
            "".join(
                json.dumps(
                    {"env_steps": part * run.config.env_steps, "updates": 1, "wall_seconds": 1, EVAL_RETURN: score * by}
                )
                + "\n"
                for part, by in ((0.2, 0.5), (0.4, 1.5))
            )
        )
        if run.title == self.stop_at:
            return {"stopped_by": "SIGINT"}
        result = {"return_mean": score, "success_rate": None, "env_steps": run.config.env_steps, "wall_seconds": 2.0}
        (run.directory / RESULT).write_text(json.dumps(result))
        return result


def fake_return(series: str, seed: int) -> float:
    """Final return of a run that `FakeTrain` made; its best evaluation had 1.5 times as much."""
    return len(series) / 100 + seed / 10


def output_json(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """Run a command; return the JSON object that it prints, and stderr."""
    capsys.readouterr()
    assert main([*args, "--json", "--quiet"]) == code
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    return json.loads(out), err


def error_line(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    """Run a command with a mistake; return its one line on stderr."""
    capsys.readouterr()
    assert main(list(args)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def modified_times(directory: Path) -> dict[str, int]:
    """Return when each file was written last."""
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}
