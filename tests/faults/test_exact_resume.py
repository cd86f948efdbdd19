"""A run that is killed or stopped anywhere, and resumed, is the run that was never killed, to the bit."""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import TINY_NETWORK

from yamame.algorithms.amago.learner import Learner
from yamame.collect.collector import Collector
from yamame.data.codec import encode
from yamame.data.store import ReplayStore
from yamame.metrics.logger import MetricLogger
from yamame.metrics.progress import ProgressBar
from yamame.metrics.registry import read_metrics
from yamame.recipes import config_from_overrides, load_recipe
from yamame.run_config import RunConfig
from yamame.training.state import collect_state, ids_from_ranges
from yamame.training.trainer import Trainer

pytestmark = pytest.mark.slow

SHORT: dict[str, Any] = {
    **TINY_NETWORK,
    "env_steps": 400,
    "num_envs": 8,
    "replay.batch_size": 4,
    "eval": {"trials": 4, "final_trials": 8, "num_envs": 8, "interval_env_steps": 200, "stop_return": None},
    "checkpoint.interval_seconds": 0.0,
    "env_steps_per_iteration": 56,  # 7 steps of all environments: no multiple of a trial
    "updates_per_env_step": 0.05,
    "learning_starts": 0,
}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "passive-tmaze": ("passive-tmaze", {"env.horizon": 4}),
    "active-tmaze": ("active-tmaze", {"env.horizon": 4}),
    "dark-key-to-door": ("dark-key-to-door", {"env.size": 3, "env.horizon": 20, "env.attempt_length": 6}),
    "wind": ("wind", {"env.horizon": 10}),
    "package-delivery": (
        "package-delivery",
        {"env.road_length": 10, "env.horizon": 12, "env.max_goals": 2, "exploration.random_env_steps": 100},
    ),
    "maze-runner": ("maze-runner", {"env.size": 11, "env.horizon": 12, "context_length": 8, "env.rewired": True}),
    "dropout": ("passive-tmaze", {"env.horizon": 4, "agent.trajectory_encoder.dropout": 0.2}),
    "novelty": (
        "wind",
        {"env.horizon": 10, "novelty.trial_fraction": 0.5, "novelty.num_updates": 1_000, "novelty.hidden_sizes": (8,)},
    ),
    "small replay": ("passive-tmaze", {"env.horizon": 4, "replay.capacity_trajectories": 20}),
}
QUICK = ("passive-tmaze", "package-delivery", "novelty")
MOMENTS = {
    "acting": (Collector, "step"),
    "updating": (Learner, "update"),
    "storing": (ReplayStore, "extend"),
    "marking": (ReplayStore, "mark_checkpoint"),
    "logging": (MetricLogger, "write"),
    "saving": (MetricLogger, "flush"),
}


class Killed(BaseException):
    """What a test kills a run with."""


def config_of(task: str) -> RunConfig:
    recipe, changes = TASKS[task]
    return config_from_overrides(load_recipe(recipe), [], {**SHORT, **changes})


@contextmanager
def at(moment: str, count: int, action: Callable[[], None]) -> Iterator[None]:
    """Let something happen before the `count`-th time of a moment."""
    owner, name = MOMENTS[moment]
    original, left = getattr(owner, name), [count]

    def watched(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            action()
        return original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, watched)
        yield


def start(directory: Path, config: RunConfig) -> None:
    """What a run has before its first step."""
    run = Trainer(config, directory)
    run.save_checkpoint()
    run.close()


def train(directory: Path, config: RunConfig) -> Trainer:
    """Resume, to the end if nothing happens."""
    run = Trainer(config, directory, resume=True)
    try:
        with ProgressBar(config.env_steps, quiet=True) as progress:
            run.train(progress)
    finally:
        run.close()
    return run


def killed() -> None:
    raise Killed


def outcome(directory: Path, config: RunConfig) -> dict[str, Any]:
    """Everything that a run wrote but times and ids: ids of lost trajectories are not used again."""
    run = Trainer(config, directory, resume=True)
    rank_state = {"iteration": run.iteration.state_dict()}
    tensors, state = collect_state(run.components, run.distributed, rank_state)
    state |= {"train_state": dict(vars(run.state)), "env_steps": run.env_steps}
    replay = [encode(run.components.replay.store.get(number)) for number in run.components.replay.store.ids()]
    run.close()
    state["train_state"] = {key: value for key, value in state["train_state"].items() if key not in CLOCKS}
    rest = dict(state["rank_state"]["dict"][0][1]["dict"])
    assert rest.pop("num_appended") - sum(count for _, count in rest.pop("skipped_ids")) >= len(replay)
    assert len(ids_from_ranges(rest.pop("stored_ids"))) == len(replay)
    return {
        "tensors": {name: np.asarray(tensor).tobytes() for name, tensor in tensors.items()},
        "state": {**state, "rank_state": rest},
        "replay": replay,
        "metrics": [without_clocks(line) for line in read_metrics(directory)],
    }


CLOCKS = ("train_seconds", "wall_seconds", "restarts")


def without_clocks(line: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if "second" not in key and key != "time/learner_wait_fraction"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """What becomes of each task's run when nothing happens to it."""
    outcomes: dict[str, dict[str, Any]] = {}

    def of(task: str) -> dict[str, Any]:
        if task not in outcomes:
            directory = tmp_path_factory.mktemp("undisturbed")
            start(directory, config_of(task))
            assert train(directory, config_of(task)).is_finished()
            outcomes[task] = outcome(directory, config_of(task))
        return outcomes[task]

    return of


@pytest.mark.parametrize(
    "task", [task if task in QUICK else pytest.param(task, marks=pytest.mark.faults) for task in TASKS]
)
def test_killed_again_and_again(task: str, tmp_path: Path, undisturbed: Callable[[str], dict[str, Any]]) -> None:
    config, rng = config_of(task), np.random.default_rng(0)
    kills = 0
    start(tmp_path, config)
    for _ in range(6):
        with at(str(rng.choice(list(MOMENTS))), int(rng.integers(1, 3)), killed):
            try:
                train(tmp_path, config)
            except Killed:
                kills += 1
    run = train(tmp_path, config)
    assert run.is_finished()
    assert kills >= 3
    assert run.resume_warnings == []
    assert outcome(tmp_path, config) == undisturbed(task)


@pytest.mark.parametrize(
    ("count", "moment"),
    [
        (1, "acting"),
        (6, "updating"),
        *(pytest.param(*case, marks=pytest.mark.faults) for case in ((6, "acting"), (1, "updating"))),
        *(pytest.param(count, "logging", marks=pytest.mark.faults) for count in (1, 6)),
    ],
)
def test_stopped_by_a_signal(
    moment: str, count: int, tmp_path: Path, undisturbed: Callable[[str], dict[str, Any]]
) -> None:
    config = config_of("package-delivery")
    start(tmp_path, config)
    with at(moment, count, lambda: signal.raise_signal(signal.SIGTERM)):
        assert not train(tmp_path, config).is_finished()
    assert train(tmp_path, config).is_finished()
    assert outcome(tmp_path, config) == undisturbed("package-delivery")
