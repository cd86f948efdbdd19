"""Whole runs of distillation: killed and resumed to the bit, with every kind of action, evaluated and exported."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from action_environments import ReachPoint, RepeatParts
from tiny import TINY_NETWORK

import yamame
from yamame.algorithms.distillation.learner import Distillation
from yamame.envs.dark_key_to_door import DarkKeyToDoorConfig
from yamame.metrics.progress import ProgressBar
from yamame.metrics.registry import METRICS, read_metrics
from yamame.recipes import config_from_overrides, load_recipe, with_algorithm
from yamame.run_config import RunConfig, resolve_offline_length
from yamame.tools.histories import ScriptedLearner, scripted_histories, write_histories
from yamame.training.state import collect_state
from yamame.training.trainer import Trainer

pytestmark = pytest.mark.slow

ROOM = DarkKeyToDoorConfig(size=3, horizon=24, attempt_length=8)
NETWORK = {name: value for name, value in TINY_NETWORK.items() if "critic" not in name}
TINY: dict[str, Any] = {
    **NETWORK,
    "num_envs": 4,
    "replay.batch_size": 2,
    "replay.min_batch_transitions": 0,
    "checkpoint.interval_seconds": 0.0,
    "eval": {"trials": 4, "final_trials": 4, "num_envs": 4, "interval_env_steps": 0},
}


@pytest.fixture
def histories(tmp_path: Path) -> Path:
    """Histories of a small room."""
    write_histories(tmp_path / "histories", scripted_histories(ROOM, ScriptedLearner(), count=12, seed=0), ROOM)
    return tmp_path / "histories"


def tiny_distillation(histories: Path) -> RunConfig:
    recipe = with_algorithm(load_recipe("dark-key-to-door"), "distillation")
    offline = {"offline.data": (str(histories),), "offline.total_updates": 12}
    return resolve_offline_length(config_from_overrides(recipe, [], {"env": ROOM, **TINY, **offline}))


class Killed(BaseException):
    """What the test kills a run with."""


def train(directory: Path, config: RunConfig) -> Trainer:
    run = Trainer(config, directory, resume=(directory / "checkpoints").exists())
    try:
        with ProgressBar(config.env_steps, quiet=True) as progress:
            run.train(progress)
    finally:
        run.close()
    return run


def outcome(directory: Path, config: RunConfig) -> dict[str, bytes]:
    run = Trainer(config, directory, resume=True)
    tensors, _ = collect_state(run.components, run.distributed, {})
    run.close()
    assert run.components.algorithm.num_updates == 12
    return {name: np.asarray(tensor).tobytes() for name, tensor in tensors.items()}


def test_killed_between_updates_it_is_the_same_run(histories: Path, tmp_path: Path) -> None:
    config = tiny_distillation(histories)
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    train(tmp_path / "one", config)
    original, kills = Distillation.update, 0
    for count in (5, 3, 4):
        left = [count]

        def update(self: Distillation, batch: Any, left: list[int] = left) -> Any:
            left[0] -= 1
            if not left[0]:
                raise Killed
            return original(self, batch)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Distillation, "update", update)
            try:
                train(tmp_path / "other", config)
            except Killed:
                kills += 1
    assert kills > 0
    train(tmp_path / "other", config)
    assert outcome(tmp_path / "other", config) == outcome(tmp_path / "one", config)


def test_a_run_evaluates_attempts_is_exported_and_logs_known_metrics(histories: Path, tmp_path: Path) -> None:
    run = yamame.train(
        "dark-key-to-door",
        algorithm="distillation",
        offline={"data": (str(histories),), "total_updates": 12},
        learner={"label_smoothing": 0.1},
        env={"size": 3, "horizon": 24, "attempt_length": 8},
        run_dir=tmp_path / "run",
        quiet=True,
        **TINY,
    )
    assert run.result is not None and (run.result["updates"], run.result["env_steps"]) == (12, 0)
    assert len(run.evaluate(trials=4)["return_per_attempt"]) >= 3
    run.export(tmp_path / "policy.pt2")
    assert (tmp_path / "policy.pt2").exists()
    logged = {name for row in read_metrics(tmp_path / "run") for name in row if name.startswith(("loss/", "optim/"))}
    assert "loss/imitation" in logged and logged <= {metric.key for metric in METRICS}
    observation = np.zeros(4, np.float32)
    assert run.load().act(observation) in range(5)


@pytest.mark.parametrize("env", [RepeatParts, ReachPoint])
def test_masked_and_continuous_actions_are_imitated_and_the_run_resumes(env: Any, tmp_path: Path) -> None:
    """Ordinary trials of another run are histories, too, of a single attempt."""
    tiny = {**TINY, "eval": {**TINY["eval"], "choose_policy": False}, "env.num_workers": 0, "env.horizon": 4}
    source = yamame.train(env, run_dir=tmp_path / "source", quiet=True, horizon=4, env_steps=64, **tiny)
    run = yamame.train(
        env,
        algorithm="distillation",
        offline={"data": (str(source.directory),), "total_updates": 6},
        run_dir=tmp_path / "run",
        quiet=True,
        horizon=4,
        **tiny,
    )
    assert run.result is not None and run.result["updates"] == 6
    assert run.evaluate(trials=4)["trials"] == 4
    env_steps = yamame.open(run.directory, env_fn=env).config.env_steps  # those that the updates were converted to
    resumed = yamame.resume(run.directory, env_steps=2 * env_steps, env_fn=env, quiet=True)
    assert resumed.result is not None and resumed.result["updates"] == 12
