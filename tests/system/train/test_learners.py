"""Runs with two learners: what they come to, how they are stopped, and what becomes of them when one dies."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from processes import are_gone, descendants, named
from tiny import tiny_config

import yamame
from yamame.cli import main
from yamame.data.store import ReplayStore
from yamame.distributed.learners import launch
from yamame.errors import RunFailedError, UserError
from yamame.metrics.registry import read_metrics
from yamame.runs.checkpoint import load_latest_checkpoint
from yamame.runs.directory import CHECKPOINTS
from yamame.training.run_files import RunMetadata, read_config
from yamame.training.start import resume_run, train_run

pytestmark = pytest.mark.slow

SETTINGS = {
    "num_learners": 2,
    "num-envs": 8,
    "env.horizon": 3,
    "replay.batch-size": 4,
    "checkpoint.interval-seconds": 0,
    "agent.timestep-encoder.hidden-sizes": 8,
    "agent.timestep-encoder.output-size": 8,
    "agent.trajectory-encoder.d-model": 8,
    "agent.trajectory-encoder.num-layers": 1,
    "agent.trajectory-encoder.num-heads": 2,
    "agent.trajectory-encoder.d-ff": 16,
    "agent.actor.hidden_sizes": 8,
    "agent.critic.hidden_sizes": 8,
    "eval.trials": 8,
    "eval.final-trials": 8,
    "eval.num-envs": 8,
    "eval.interval-env-steps": 0,
}
FLAGS = [word for name, value in SETTINGS.items() for word in (f"--{name}", str(value))]
YAMAME = [sys.executable, "-m", "yamame"]
SECONDS = 120
"""More than anything here takes on a busy machine; what is promised is a minute."""


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own, which does not outlive the block."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=_environment()
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finished(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * SECONDS, check=False, env=_environment())


def _environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(yamame.__file__).parent.parent), str(Path(__file__).parents[2] / "helpers")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_saved(run: Path) -> Callable[[], bool]:
    """Whether a run has a checkpoint with updates in it."""
    return lambda: any(not path.name.endswith("-000000000") for path in run.glob(f"{CHECKPOINTS}/update-*"))


def learners_of(process: subprocess.Popen[str]) -> list[int]:
    """In their order."""
    return sorted(named(descendants(process.pid), "spawn_main"))


def stored(directory: Path) -> int:
    with ReplayStore(directory, capacity_trajectories=10_000, cache_bytes=0) as store:
        return len(store)


def test_two_learners_have_the_counters_of_one_and_half_the_replay(tmp_path: Path) -> None:
    def run(learners: int) -> dict[str, Any]:
        config = tiny_config(num_learners=learners, env_steps=200)
        return train_run(config, RunMetadata(recipe="tiny"), run_dir=tmp_path / str(learners), quiet=True)

    one, two = run(1), run(2)
    assert {key: one[key] for key in ("env_steps", "updates", "trials")} == {
        key: two[key] for key in ("env_steps", "updates", "trials")
    }
    assert json.loads((tmp_path / "2/result.json").read_text()) == two
    lines, of_one = read_metrics(tmp_path / "2"), read_metrics(tmp_path / "1")
    for key in ("env_steps", "updates", "rollout/num_trials", "replay/trajectories"):
        assert [line.get(key) for line in lines] == [line.get(key) for line in of_one]
    assert stored(tmp_path / "2/replay") == stored(tmp_path / "2/replay-1") == stored(tmp_path / "1/replay") // 2
    assert read_config(tmp_path / "2").num_learners == 2
    assert main(["data", "verify", str(tmp_path / "2")]) == 2  # whose?
    assert main(["data", "verify", str(tmp_path / "2/replay-1")]) == 0
    of_both = tiny_config(offline={"data": (str(tmp_path / "2"),), "total_updates": 1}, eval={"trials": 8})
    train_run(of_both, RunMetadata(recipe="tiny"), run_dir=tmp_path / "data", quiet=True)
    assert stored(tmp_path / "data/offline") == stored(tmp_path / "1/replay")


def test_batches_of_two_learners_may_have_windows_of_different_lengths(tmp_path: Path) -> None:
    """A batch of short windows has one segment, after which no summary is written, so that those have no gradient."""
    run = yamame.train(
        "CartPole-v1", model="recurrent_memory", run_dir=tmp_path / "run", quiet=True, num_learners=2, num_envs=4,
        env_steps=1000, context_length=30, eval={"trials": 4, "final_trials": 4, "interval_env_steps": 0},
        replay={"batch_size": 2, "min_batch_transitions": 0}, updates_per_env_step=0.2,
    )  # fmt: skip
    assert run.result["updates"] > 50


@pytest.mark.thorough
def test_a_resumed_run_restores_the_state_of_each_learner(tmp_path: Path) -> None:
    """To the bit what it would have become."""
    configs = [tiny_config(num_learners=2, env_steps=env_steps, eval={"trials": 8}) for env_steps in (96, 192)]
    train_run(configs[1], RunMetadata(recipe="tiny"), run_dir=tmp_path / "whole", quiet=True)
    train_run(configs[0], RunMetadata(recipe="tiny"), run_dir=tmp_path / "parts", quiet=True)
    resume_run(tmp_path / "parts", env_steps=192, quiet=True)
    whole, parts = (load_latest_checkpoint(tmp_path / name / CHECKPOINTS) for name in ("whole", "parts"))
    assert whole.step == parts.step > 5 and whole.tensors.keys() == parts.tensors.keys()
    different = {name for name, value in whole.tensors.items() if not bool((value == parts.tensors[name]).all())}
    assert not different
    assert any(name.startswith("other_ranks/") for name in whole.tensors)


def test_another_number_of_learners_is_refused(tmp_path: Path) -> None:
    train_run(tiny_config(env_steps=48), RunMetadata(recipe="tiny"), run_dir=tmp_path / "run", quiet=True)
    described = json.loads((tmp_path / "run/config.json").read_text())
    (tmp_path / "run/config.json").write_text(json.dumps(described | {"num_learners": 2}))
    with pytest.raises(UserError, match="saved by 1 learners, not 2"):
        resume_run(tmp_path / "run", env_steps=None, quiet=True)


@pytest.mark.thorough  # minutes, beside the signals to one learner
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_all_stops_once_with_a_checkpoint_and_resume_finishes(
    number: signal.Signals, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with running(*YAMAME, "train", "passive-tmaze", *FLAGS, "--run-dir", str(run), "--json", "--quiet") as process:
        wait_for(has_saved(run))
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert err.splitlines() == [f"stopped by {number.name}; yamame resume {run} continues"]
    (line,) = out.splitlines()
    summary = json.loads(line)
    assert summary["stopped_by"] == number.name and summary["updates"] == load_latest_checkpoint(run / CHECKPOINTS).step
    env_steps = (summary["env_steps"] // 8 + 6) * 8  # whole steps of all environments
    assert resume_run(run, env_steps=env_steps, quiet=True)["env_steps"] == env_steps


@pytest.mark.thorough
@pytest.mark.parametrize("rank", [0, 1])
def test_a_learner_that_is_killed_ends_the_run_and_resume_finishes(rank: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with running(*YAMAME, "train", "passive-tmaze", *FLAGS, "--run-dir", str(run), "--quiet") as process:
        wait_for(has_saved(run))
        learners = learners_of(process)
        assert len(learners) == 2
        os.kill(learners[rank], signal.SIGKILL)
        out, err = process.communicate(timeout=60)
        wait_for(lambda: are_gone(learners))
    assert process.returncode == 1 and not out
    said = f"was killed by SIGKILL: all learners were stopped; yamame resume {run} continues from the latest checkpoint"
    assert [line.partition(" ")[2].partition(" ")[2] for line in err.splitlines()][-1].endswith(said), err
    assert said in json.loads((run / "status.json").read_text())["reason"]
    env_steps = load_latest_checkpoint(run / CHECKPOINTS).state["env_steps"] + 48
    assert resume_run(run, env_steps=env_steps, quiet=True)["env_steps"] == env_steps


@pytest.mark.thorough
def test_without_the_command_its_learners_stop_by_themselves(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with running(*YAMAME, "train", "passive-tmaze", *FLAGS, "--run-dir", str(run), "--quiet") as process:
        wait_for(has_saved(run))
        learners = learners_of(process)
        process.kill()
        wait_for(lambda: are_gone(learners))
    assert json.loads((run / "status.json").read_text()) == {"status": "stopped", "reason": "SIGTERM"}


@pytest.mark.thorough
def test_torchrun_begins_the_learners(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "yamame"]
    train = [*torchrun, "train", "passive-tmaze", *FLAGS, "--env-steps", "96", "--json", "--quiet"]
    done = finished(*train, "--run-dir", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["env_steps"] == 96 and (tmp_path / "run/replay-1").exists()
    refused = finished(*train, "--run-dir", str(tmp_path / "other"), "--num-learners", "1")
    assert refused.returncode and "torchrun started 2 processes for a run with 1 learners" in refused.stderr
    assert not (tmp_path / "other").exists()


def test_an_error_of_all_learners_is_reported_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    flags = [*FLAGS, "--compute.device", "cuda:9", "--run-dir", str(tmp_path / "run"), "--quiet"]
    assert main(["train", "passive-tmaze", *flags]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("yamame: ")
    assert not (tmp_path / "run").exists()


def fail_and_hang(*_: object) -> dict[str, Any]:
    threading.Thread(target=time.sleep, args=(SECONDS,)).start()  # which the end of the process waits for
    raise ValueError("broken")


def test_learners_that_fail_and_hang_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yamame.distributed.learners._GRACE_SECONDS", 1.0)
    with pytest.raises(RunFailedError, match=r"^learner [01] failed \(ValueError: broken\): all learners were stopped"):
        launch(fail_and_hang, tiny_config(num_learners=2, compute={"device": "cpu"}), tmp_path)


def test_an_env_fn_that_cannot_be_pickled_is_an_error(tmp_path: Path) -> None:
    def factory() -> gymnasium.Env[Any, Any]:
        return gymnasium.make("CartPole-v1")

    with pytest.raises(UserError, match=r"cannot be pickled for other processes .*torchrun"):
        yamame.train(factory, horizon=5, num_learners=2, num_envs=2, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
