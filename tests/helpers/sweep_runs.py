"""A `train` function for sweeps that trains nothing."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from results import evaluation_of, result_of

from yamame.config.serialization import to_json
from yamame.metrics.registry import EVAL_RETURN
from yamame.recipes import load_recipe, make_metadata, with_algorithm
from yamame.runs.directory import CONFIG, METADATA, REPORT_HTML, RESULT
from yamame.tools.study.execute import PlannedRun


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
        run.directory.mkdir(exist_ok=True, parents=True)
        metadata = asdict(make_metadata(with_algorithm(load_recipe(run.recipe), run.algorithm), run.config))
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
        result = result_of(
            [0.25 * score, 0.75 * score],
            return_mean=score,
            env_steps=run.config.env_steps,
            wall_seconds=2.0,
            train_seconds=1.0,
            random_baseline=evaluation_of([-0.4, -0.1]),
        )
        (run.directory / RESULT).write_text(json.dumps(result))
        (run.directory / REPORT_HTML).touch()  # else the next call would write it
        return result


def fake_return(series: str, seed: int) -> float:
    """Final return of a run that `FakeTrain` made; its best evaluation had 1.5 times as much."""
    return len(series) / 100 + seed / 10
