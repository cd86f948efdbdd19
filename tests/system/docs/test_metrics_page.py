"""Every metric that runs log is in the registry, and every metric of the registry is on the page of metrics."""

import importlib
import re
from collections.abc import Iterator
from typing import Any, get_args

import gymnasium
import numpy as np
import pytest
from documents import SMALL_RUN
from guide_reader import DOCS, OF_AMAGO
from gymnasium import spaces

import yamame
from yamame.metrics.registry import METRICS, get_metric, read_metrics
from yamame.types import FaultKind

pytestmark = pytest.mark.slow

PAGE = (DOCS / "metrics.md").read_text(encoding="utf-8")
ON_PAGE = [key for row in re.findall(r"^\| (`\w+/.*?) \|", PAGE, re.MULTILINE) for key in re.findall(r"`(.+?)`", row)]
REGISTERED = {metric.key for metric in METRICS}
SHORT: dict[str, Any] = {
    **SMALL_RUN,
    "num_envs": 8,
    "env_steps_per_iteration": 200,
    "updates_per_env_step": 0.02,
    "eval": {"trials": 8, "final_trials": 8, "num_envs": 8, "interval_env_steps": 200},
}
COUNTERS = {"env_steps", "updates", "wall_seconds"}


class Moody(gymnasium.Env[np.ndarray, int]):
    """Raises at every twentieth step."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self.np_random.random() < 0.05:
            raise RuntimeError("not today")
        return np.zeros(1, np.float32), 0.0, False, False, {}


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What eleven runs log that have, between them, everything there is to measure."""

    def runs() -> Iterator[yamame.Run]:
        folder = tmp_path_factory.mktemp("runs")
        options = {**SHORT, "run_dir": folder / "attempts"}
        yield yamame.train("dark-key-to-door", horizon=20, env_steps=400, **options, **{"env.attempt_length": 5})
        options = {**SHORT, "run_dir": folder / "instructions"}  # with a world model
        yield yamame.train("package-delivery", horizon=20, env_steps=400, **options)
        options = {**SHORT, "run_dir": folder / "test-tasks", "learning_starts": 0}
        yield yamame.train("wind", horizon=20, env_steps=400, context_length=16, **options)
        options = {name: value for name, value in SHORT.items() if name not in OF_AMAGO}
        yield yamame.train(
            "passive-tmaze", horizon=5, env_steps=400, algorithm="ppo", run_dir=folder / "ppo", **options
        )
        options = {**SHORT, "run_dir": folder / "faults", "env.num_workers": 0}
        yield yamame.train(Moody, horizon=5, env_steps=400, **options)
        options = {**SHORT, "run_dir": folder / "cluster", "ray.address": "local", "ray.num_collectors": 2}
        yield yamame.train("passive-tmaze", horizon=5, env_steps=800, **options)
        own = {"env_steps": 400, "run_dir": folder / "recurrent-sac", "eval": SHORT["eval"]}
        yield yamame.train("passive-tmaze", horizon=5, algorithm="recurrent_sac", size="tiny", **own)
        own = {"env_steps": 400, "run_dir": folder / "classification", "eval": SHORT["eval"]}
        yield yamame.train("passive-tmaze", horizon=5, variants=["amago-2"], size="tiny", **own)
        own = {"env_steps": 400, "run_dir": folder / "varibad", "eval": SHORT["eval"]}
        yield yamame.train("passive-tmaze", horizon=5, algorithm="varibad", size="tiny", **own)
        own = {"env_steps": 400, "run_dir": folder / "hyperx", "eval": SHORT["eval"]}
        yield yamame.train("passive-tmaze", horizon=5, algorithm="hyperx", size="tiny", **own)
        data = {"offline": {"data": (str(folder / "attempts"),), "total_updates": 2}}
        own = {"run_dir": folder / "distillation", "eval": SHORT["eval"], "size": "tiny", "env.attempt_length": 5}
        yield yamame.train("dark-key-to-door", horizon=20, algorithm="distillation", **own, **data)

    return {get_metric(key).key for run in runs() for line in read_metrics(run.directory) for key in line} - COUNTERS


def test_all_that_is_logged_is_registered(logged: set[str]) -> None:
    assert logged <= REGISTERED


def test_all_that_is_registered_is_logged(logged: set[str]) -> None:
    faults = {f"faults/{kind}" for kind in get_args(FaultKind)}  # of these the runs meet one
    test_tasks_with_success = {"eval_train_tasks/success_rate"}
    assert REGISTERED - logged - faults <= test_tasks_with_success


def test_the_page_has_every_metric_once_in_the_order_of_the_registry() -> None:
    assert [metric.key for metric in METRICS] == ON_PAGE
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)[1:]
    assert headings == list(dict.fromkeys(metric.group for metric in METRICS))


def test_descriptions_and_units_come_from_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS.parent / "docs_hooks"))
    page = importlib.import_module("generated").on_page_markdown(PAGE)
    for metric in METRICS:
        assert re.search(rf"^\|[^|]*`{re.escape(metric.key)}`[^|]*\|[^|]*{re.escape(metric.description)}", page, re.M)
    rows = re.findall(r"^\| `\w+/.*$", page, re.MULTILINE)
    assert rows and all(row.strip("|").count("|") == 4 for row in rows)
