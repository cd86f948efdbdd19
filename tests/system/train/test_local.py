"""The loop: repeatable to the bit, resumable, stoppable, and with the number of updates that the config sets."""

import itertools
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
import torch
from tiny import TINY, tiny_config

from yamame.algorithms.network_policy import NetworkPolicy
from yamame.collect.collector import Collector
from yamame.data.batch import Batch
from yamame.data.trajectory import Trajectory
from yamame.distributed.signals import StopSignal
from yamame.errors import UserError
from yamame.metrics.progress import ProgressBar
from yamame.metrics.registry import read_metrics
from yamame.recipes import config_from_overrides, load_recipe
from yamame.training.run_files import RunMetadata
from yamame.training.start import resume_run, train_run
from yamame.training.trainer import Trainer

pytestmark = pytest.mark.slow


def weights_of(run: Trainer) -> torch.Tensor:
    return torch.cat([value.flatten().double() for value in run.components.algorithm.model.state_dict().values()])


def trained(directory: Path, **changes: object) -> Trainer:
    directory.mkdir()
    run = Trainer(tiny_config(**changes), directory)
    with ProgressBar(run.config.env_steps, quiet=True) as progress:
        assert run.train(progress) == ""
    run.close()
    return run


@pytest.mark.parametrize("overlap", [False, True])
def test_same_seed_same_run_to_the_bit(tmp_path: Path, overlap: bool) -> None:
    changes = {"async_collection": overlap, "env_steps": 200}
    first, second = trained(tmp_path / "a", **changes), trained(tmp_path / "b", **changes)
    other = trained(tmp_path / "c", seed=1, **changes)
    assert torch.equal(weights_of(first), weights_of(second))
    assert not torch.equal(weights_of(first), weights_of(other))

    def measured(run: Trainer) -> list[dict[str, object]]:
        lines = read_metrics(run.directory)
        return [
            {k: v for k, v in line.items() if "second" not in k and k != "time/learner_wait_fraction"} for line in lines
        ]

    assert measured(first) == measured(second)
    assert len(measured(first)) > 5


def test_the_world_model_is_built_where_it_has_a_weight(tmp_path: Path) -> None:
    with_model = trained(tmp_path / "a", **{"learner.world_model.weight": 1.0})
    without = trained(tmp_path / "b")
    names = {name.partition(".")[0] for name in with_model.components.algorithm.model.state_dict()}
    assert names - {name.partition(".")[0] for name in without.components.algorithm.model.state_dict()} == {
        "world_model"
    }
    lines = [line for line in read_metrics(with_model.directory) if "loss/world_model" in line]
    assert lines and all(line["loss/world_model"] > 0 for line in lines)


def test_relabeling_is_measured_and_survives_the_process(tmp_path: Path) -> None:
    road = load_recipe("package-delivery")
    sizes = {key: value for key, value in TINY.items() if key != "env.horizon"}
    config = config_from_overrides(road, [], {**sizes, "env": {"horizon": 40}, "env_steps": 1_600})
    run = Trainer(config, tmp_path)
    with ProgressBar(run.config.env_steps, quiet=True) as progress:
        run.train(progress)
    run.close()
    known = run.components.replay.sampler.goal_statistics
    assert known.num_sampled > 0 and read_metrics(tmp_path)[-1]["relabel/num_unique_goals"] == len(known.index) > 0
    resumed = Trainer(config, tmp_path, resume=True)
    resumed.close()
    assert resumed.components.replay.sampler.goal_statistics.to_json() == known.to_json()


def test_updates_per_env_step_is_exact(tmp_path: Path) -> None:
    run = trained(tmp_path / "a", **{"updates_per_env_step": 0.1, "env_steps_per_iteration": 64})
    assert run.components.experience.env_steps == 400
    assert run.components.algorithm.num_updates == 40
    assert len(read_metrics(run.directory)) == 7  # 6 iterations of 64 and the rest


def test_async_collection_makes_the_same_updates_one_iteration_later(tmp_path: Path) -> None:
    changes = {"updates_per_env_step": 0.1, "env_steps_per_iteration": 64, "learning_starts": 100}
    in_turn, at_once = trained(tmp_path / "a", **changes), trained(tmp_path / "b", **changes, async_collection=True)
    assert at_once.components.algorithm.num_updates == in_turn.components.algorithm.num_updates == 30
    lines, late = read_metrics(in_turn.directory), read_metrics(at_once.directory)
    counts = [(line["env_steps"], line["updates"]) for line in lines]
    steps = [steps for steps, _ in counts]
    updates = [updates for _, updates in counts]
    assert [(line["env_steps"], line["updates"]) for line in late] == [
        *zip(steps, [0, *updates[:-1]], strict=True),
        (400, 30),  # the updates that are left when all is collected
    ]


def test_async_collection_uses_weights_and_replay_from_the_start_of_the_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    run = Trainer(tiny_config(async_collection=True, env_steps=128, **{"env_steps_per_iteration": 32}), tmp_path / "a")
    stored_at_updates: list[int] = []
    update = run.components.algorithm.update

    def watched(batch: Batch) -> dict[str, torch.Tensor]:
        stored_at_updates.append(len(run.components.replay.store))
        return update(batch)

    monkeypatch.setattr(run.components.algorithm, "update", watched)
    with ProgressBar(128, quiet=True) as progress:
        run.train(progress)
    lines = read_metrics(run.directory)
    assert [line["replay/trajectories"] for line in lines] == [8, 16, 24, 32, 32]  # trials last for just an iteration
    zero, one, two, three, four = (line["updates"] for line in lines)
    assert 0 == zero < one < two < three < four
    versions = [run.components.replay.store.get(number).policy_version for number in run.components.replay.store.ids()]
    assert versions == [0] * 8 + [0] * 8 + [one] * 8 + [two] * 8
    assert stored_at_updates == [8] * one + [16] * (two - one) + [24] * (three - two) + [32] * (four - three)
    run.close()


def at_collecting_step(number: int, action: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let something happen when training, not an evaluation, makes its vector step of that number."""
    steps = itertools.count(1)
    original = Collector.step

    def step(self: Collector, policy: NetworkPolicy, *, deterministic: bool) -> list[tuple[int, Trajectory]]:
        if self.task and next(steps) == number:
            action()
        return original(self, policy, deterministic=deterministic)

    monkeypatch.setattr(Collector, "step", step)


@pytest.mark.parametrize("overlap", [False, True])
def test_an_error_while_collecting_ends_the_run_and_leaves_it_resumable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlap: bool
) -> None:
    threads = torch.get_num_threads()

    def fail() -> None:
        raise UserError("the simulator has gone")

    with monkeypatch.context() as patch:
        at_collecting_step(14, fail, patch)
        config = tiny_config(async_collection=overlap, env_steps=128, **{"updates_per_env_step": 0.1})
        with pytest.raises(UserError, match=r"the simulator has gone .*resume"):
            train_run(config, RunMetadata(recipe="x"), run_dir=tmp_path / "run", quiet=True)
    assert torch.get_num_threads() == threads
    assert resume_run(tmp_path / "run", env_steps=None, quiet=True)["env_steps"] == 128


@pytest.mark.parametrize("round_env_steps", [240, 32])
def test_a_signal_stops_async_collection_at_once_and_resume_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, round_env_steps: int
) -> None:
    changes = {"env_steps_per_iteration": round_env_steps, "updates_per_env_step": 0.1}
    config = tiny_config(async_collection=True, env_steps=240, **changes)
    heard, handle = threading.Event(), StopSignal._handle

    def hear(self: StopSignal, number: int, frame: FrameType | None) -> None:
        handle(self, number, frame)
        heard.set()

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert heard.wait(60), "the main thread has not heard of it"

    with monkeypatch.context() as patch:
        patch.setattr(StopSignal, "_handle", hear)
        at_collecting_step(20, interrupt, patch)
        stopped = train_run(config, RunMetadata(recipe="passive-tmaze"), run_dir=tmp_path / "run", quiet=True)
    assert stopped["stopped_by"] == "SIGINT"
    assert stopped["env_steps"] == 160
    assert read_metrics(tmp_path / "run")[-1]["env_steps"] < stopped["env_steps"] if round_env_steps < 240 else True
    finished = resume_run(tmp_path / "run", env_steps=None, quiet=True)
    assert (finished["env_steps"], finished["updates"]) == (240, 24)


@pytest.mark.parametrize(
    ("env_steps", "updates", "due"), [(0, 0, 0), (100, 0, 0), (199, 0, 9), (200, 0, 10), (200, 7, 3), (200, 12, 0)]
)
def test_updates_due(env_steps: int, updates: int, due: int) -> None:
    config = tiny_config(updates_per_env_step=0.1, learning_starts=100)
    assert config.updates_due(env_steps=env_steps, updates=updates) == due


def test_a_signal_stops_cleanly_and_resume_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config()
    handler = signal.getsignal(signal.SIGTERM)
    at_collecting_step(14, lambda: signal.raise_signal(signal.SIGTERM), monkeypatch)
    stopped = train_run(config, RunMetadata(recipe="passive-tmaze"), run_dir=tmp_path / "run", quiet=True)
    assert stopped["stopped_by"] == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is handler
    before = read_metrics(tmp_path / "run")
    assert len(before) == 3  # iterations of four steps
    finished = resume_run(tmp_path / "run", env_steps=None, quiet=True)
    assert finished["env_steps"] == 400
    assert "stopped_by" not in finished
    after = read_metrics(tmp_path / "run")
    assert after[: len(before)] == before
    steps = [line["env_steps"] for line in after]
    assert steps == sorted(set(steps))
    assert finished["updates"] == int(400 * config.updates_per_env_step)


def test_resume_of_a_finished_run_can_make_it_longer(tmp_path: Path) -> None:
    train_run(tiny_config(), RunMetadata(recipe="passive-tmaze"), run_dir=tmp_path / "run", quiet=True)
    again = resume_run(tmp_path / "run", env_steps=None, quiet=True)
    assert again["env_steps"] == 400
    longer = resume_run(tmp_path / "run", env_steps=600, quiet=True)
    assert longer["env_steps"] == 600
    assert json.loads((tmp_path / "run" / "config.json").read_text())["env_steps"] == 600


def test_resumed_state_is_what_was_saved(tmp_path: Path) -> None:
    first = trained(tmp_path / "a")
    second = Trainer(first.config, first.directory, resume=True)
    assert torch.equal(weights_of(first), weights_of(second))
    assert second.components.experience.env_steps == first.components.experience.env_steps
    assert second.components.algorithm.num_updates == first.components.algorithm.num_updates
    assert second.components.replay.sampler.state_dict() == first.components.replay.sampler.state_dict()
    exploring, before = (run.experience.state_dict()["exploration_rng"] for run in (second, first))
    assert exploring == before
    assert second.components.statistics.metrics() == first.components.statistics.metrics()
    assert second.state.restarts == first.state.restarts + 1
    batch, other = (
        next(iter(second.components.replay.sampler.iter_batches(1))),
        next(iter(second.components.replay.sampler.iter_batches(1))),
    )
    assert not torch.equal(batch.reward, other.reward) or not torch.equal(batch.action, other.action)
    second.close()


def test_a_solved_task_ends_the_run_early(tmp_path: Path) -> None:
    run = trained(tmp_path / "a", **{"eval.stop_return": -10.0})
    assert run.is_finished()
    assert run.components.experience.env_steps < 400


def test_an_existing_run_is_never_written_over(tmp_path: Path) -> None:
    config, about = tiny_config(), RunMetadata(recipe="passive-tmaze")
    train_run(config, about, run_dir=tmp_path / "run", quiet=True)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match="has a run: resume it"):
        train_run(config, about, run_dir=tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_a_config_that_cannot_run_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="longer than a trial"):
        train_run(tiny_config(context_length=99), RunMetadata(recipe="x"), run_dir=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
