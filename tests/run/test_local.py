"""The loop: repeatable to the bit, resumable, stoppable, and at the pace that the config says."""

import json
import signal
from pathlib import Path

import pytest
import torch
from tiny import tiny_config

from yamame.records.errors import UserError
from yamame.run.local import LocalRun
from yamame.run.metrics import read_metrics
from yamame.run.pace import PaceConfig
from yamame.run.progress import Progress
from yamame.run.session import About, go_on, start


def weights_of(run: LocalRun) -> torch.Tensor:
    return torch.cat([value.flatten().double() for value in run.parts.learner.agent.state_dict().values()])


def trained(directory: Path, **changes: object) -> LocalRun:
    directory.mkdir()
    run = LocalRun(tiny_config(**changes), directory)
    with Progress(run.config.env_steps, quiet=True) as progress:
        assert run.train(progress) == ""
    run.close()
    return run


def test_same_seed_same_run_to_the_bit(tmp_path: Path) -> None:
    first, second = trained(tmp_path / "a"), trained(tmp_path / "b")
    other = trained(tmp_path / "c", seed=1)
    assert torch.equal(weights_of(first), weights_of(second))
    assert not torch.equal(weights_of(first), weights_of(other))

    def measured(run: LocalRun) -> list[dict[str, object]]:
        lines = read_metrics(run.directory)
        return [{k: v for k, v in line.items() if "second" not in k} for line in lines]

    assert measured(first) == measured(second)
    assert len(measured(first)) > 5


def test_pace_is_a_setting_and_counts_are_exact(tmp_path: Path) -> None:
    run = trained(tmp_path / "a", **{"pace.updates_per_env_step": 0.1, "pace.round_env_steps": 64})
    assert run.parts.collector.env_steps == 400
    assert run.parts.learner.updates == 40
    assert len(read_metrics(run.directory)) == 7  # 6 rounds of 64 and what was left


@pytest.mark.parametrize(
    ("env_steps", "updates", "due"), [(0, 0, 0), (100, 0, 0), (199, 0, 9), (200, 0, 10), (200, 7, 3), (200, 12, 0)]
)
def test_updates_due(env_steps: int, updates: int, due: int) -> None:
    pace = PaceConfig(updates_per_env_step=0.1, start_env_steps=100)
    assert pace.updates_due(env_steps=env_steps, updates=updates) == due


def test_a_signal_stops_cleanly_and_resume_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny_config()
    original = LocalRun._round
    rounds = 0

    def interrupted(self: LocalRun, progress: Progress, stop: object) -> dict[str, float]:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            signal.raise_signal(signal.SIGTERM)
        return original(self, progress, stop)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalRun, "_round", interrupted)
    stopped = start(config, About(recipe="passive-tmaze"), run_dir=tmp_path / "run", quiet=True)
    assert stopped["stopped_by"] == "SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    before = read_metrics(tmp_path / "run")
    finished = go_on(tmp_path / "run", env_steps=None, quiet=True)
    assert finished["env_steps"] == 400
    assert "stopped_by" not in finished
    after = read_metrics(tmp_path / "run")
    assert after[: len(before)] == before
    steps = [line["env_steps"] for line in after]
    assert steps == sorted(set(steps))
    assert finished["updates"] == int(400 * config.pace.updates_per_env_step)


def test_resume_of_a_finished_run_can_make_it_longer(tmp_path: Path) -> None:
    start(tiny_config(), About(recipe="passive-tmaze"), run_dir=tmp_path / "run", quiet=True)
    again = go_on(tmp_path / "run", env_steps=None, quiet=True)
    assert again["env_steps"] == 400
    longer = go_on(tmp_path / "run", env_steps=600, quiet=True)
    assert longer["env_steps"] == 600
    assert json.loads((tmp_path / "run" / "config.json").read_text())["env_steps"] == 600


def test_resumed_state_is_what_was_saved(tmp_path: Path) -> None:
    first = trained(tmp_path / "a")
    second = LocalRun(first.config, first.directory, resume=True)
    assert torch.equal(weights_of(first), weights_of(second))
    assert second.parts.collector.env_steps == first.parts.collector.env_steps
    assert second.parts.learner.updates == first.parts.learner.updates
    assert second.parts.sampler.state_dict() == first.parts.sampler.state_dict()
    assert second.parts.rng.bit_generator.state == first.parts.rng.bit_generator.state
    assert torch.equal(second.parts.generator.get_state(), first.parts.generator.get_state())
    assert second.parts.statistics.metrics() == first.parts.statistics.metrics()
    assert second.standing.restarts == first.standing.restarts + 1
    batch, other = next(iter(second.parts.sampler.batches(1))), next(iter(second.parts.sampler.batches(1)))
    assert not torch.equal(batch.reward, other.reward) or not torch.equal(batch.action, other.action)
    second.close()


def test_a_solved_task_ends_the_run_early(tmp_path: Path) -> None:
    run = trained(tmp_path / "a", **{"evaluation.solved_return": -10.0})
    assert run.finished
    assert run.parts.collector.env_steps < 400


def test_an_existing_run_is_never_written_over(tmp_path: Path) -> None:
    config, about = tiny_config(), About(recipe="passive-tmaze")
    start(config, about, run_dir=tmp_path / "run", quiet=True)
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match="already holds a run"):
        start(config, about, run_dir=tmp_path / "run", quiet=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_a_config_that_cannot_run_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="longer than a trial"):
        start(tiny_config(context_length=99), About(recipe="x"), run_dir=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
