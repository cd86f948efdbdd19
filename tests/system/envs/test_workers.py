import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting_environment import CountingEnv
from gymnasium import spaces
from worker_environments import NestedEnv, OtherSpacesEnv, SlowEnv, StallsInResetEnv, StrictSlowEnv, UnfitEnv

from yamame.envs.base import EpisodeVectorEnv
from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.gymnasium import GymnasiumConfig
from yamame.envs.vector.autotune import autotune_num_workers, best_num_workers, make_vector_env, openmp_spin_seconds
from yamame.envs.vector.faults import WorkerError, reset_seeds
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.envs.vector.subproc import SubprocVectorEnv
from yamame.errors import UserError


def reset_all(environments: EpisodeVectorEnv) -> Any:
    everywhere = np.ones(environments.num_envs, np.bool_)
    return environments.reset(everywhere, everywhere)


def trajectory(environments: EpisodeVectorEnv, steps: int) -> list[np.ndarray]:
    """Everything that comes back, with ended rows reset on new and old tasks in turn."""
    rng, many = np.random.default_rng(5), environments.num_envs
    space = environments.action_space
    seen = list(reset_all(environments).values())
    for time_step in range(steps):
        discrete = isinstance(space, spaces.Discrete)
        action = rng.integers(2, size=many) if discrete else rng.uniform(-1.5, 1.5, (many, *space.shape))
        step = environments.step(action if discrete else action.astype(np.float32))
        seen += [step.reward, step.terminated, step.truncated, step.is_transition, *step.observation.values()]
        seen.append(np.array("none") if step.success is None else step.success)
        ended = step.terminated | step.truncated
        if ended.any():
            seen += environments.reset(ended, ended & (time_step % 2 == 0)).values()
    environments.close()
    return seen


@pytest.mark.parametrize("make", [CountingEnv, NestedEnv])
def test_the_same_trajectories_whatever_the_number_of_workers(make: Any) -> None:
    def at(workers: int) -> list[np.ndarray]:
        return trajectory(make_vector_env(make, 5, 11, workers), 25)

    alone = at(0)
    for workers in (1, 3):
        together = at(workers)
        assert len(together) == len(alone)
        for one, other in zip(alone, together, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_more_workers_than_environments_and_functions_that_no_import_finds() -> None:
    size = 7.0

    class Local(CountingEnv):
        def reset(self, **arguments: Any) -> Any:
            super().reset(**arguments)
            return np.full(3, size, np.float32), {}

    environments = SubprocVectorEnv(lambda: Local(), 2, 0, 8)
    assert isinstance(environments, EpisodeVectorEnv)
    np.testing.assert_array_equal(reset_all(environments)["observation"], np.full((2, 3), 7.0))
    environments.close()


def test_what_comes_back_is_the_callers_to_keep() -> None:
    environments = SubprocVectorEnv(CountingEnv, 2, 0, 1)
    first = reset_all(environments)["observation"]
    step = environments.step(np.array([0, 1]))
    kept = first.copy(), step.reward.copy()
    environments.step(np.array([1, 1]))
    np.testing.assert_array_equal(first, kept[0])
    np.testing.assert_array_equal(step.reward, kept[1])
    environments.close()


def unfit(fault: str, workers: int) -> EpisodeVectorEnv:
    seeds = reset_seeds(np.random.SeedSequence(4), 4)
    return make_vector_env(partial(UnfitEnv, seeds[2], fault), 4, 4, workers)


@pytest.mark.parametrize("fault", ["nan", "user"])
def test_errors_for_the_user_are_the_same_as_in_this_process(fault: str) -> None:
    messages = []
    for workers in (0, 2):
        environments = unfit(fault, workers)
        with pytest.raises(UserError) as caught:
            reset_all(environments)
        messages.append(str(caught.value))
        environments.close()
    assert messages[0] == messages[1]
    assert fault == "user" or "environment 2 returned NaN" in messages[0]


def test_an_exception_in_the_first_reset_has_its_traceback_and_names_the_environment() -> None:
    environments = unfit("raise", 2)
    with pytest.raises(WorkerError, match="a worker process raised ValueError: the dice fell") as caught:
        reset_all(environments)
    assert "in reset" in str(caught.value) and "Traceback" in str(caught.value)
    assert "(environment 2)" in str(caught.value)
    environments.close()


@pytest.mark.parametrize(("fault", "how"), [("exit", "ended with exit code 3"), ("kill", "was killed by SIGKILL")])
def test_a_worker_that_dies_in_the_first_reset_is_an_error_and_never_a_wait(fault: str, how: str) -> None:
    environments = unfit(fault, 2)
    for _ in range(2):
        with pytest.raises(WorkerError, match=f"environments 2 to 3 {how}"):
            reset_all(environments)
    environments.close()


@pytest.mark.slow
def test_a_worker_that_hangs_in_a_reset_is_replaced_at_the_next_step(tmp_path: Path) -> None:
    make = partial(StallsInResetEnv, tmp_path / "met")
    environments = SubprocVectorEnv(make, 3, 0, 3, step_timeout_seconds=0.5)  # a reset may take 5 seconds
    reset_all(environments)
    reset_all(environments)
    steps = [environments.step(np.zeros(3, np.int64)) for _ in range(2)]
    assert steps[0].failed is not None and np.count_nonzero(steps[0].failed) == 1 and steps[1].failed is None
    (fault,) = steps[0].faults
    assert fault.kind == "timeout" and "did not reply in time" in fault.message
    environments.close()


def test_a_user_error_is_never_survived() -> None:
    environments = unfit("user-later", 2)
    reset_all(environments)
    with pytest.raises(UserError, match="buy new dice"):
        environments.step(np.zeros(4, np.int64))
    environments.close()


def test_environments_that_cannot_start_are_errors() -> None:
    lock = threading.Lock()

    def locked() -> CountingEnv:
        with lock:
            return CountingEnv()

    with pytest.raises(UserError, match=r"set env\.num_workers to 0"):
        make_vector_env(locked, 2, 0, 2)
    with pytest.raises(UserError, match="CartPole-v1"):
        GymnasiumConfig(id="CartPole-v7", horizon=5, num_workers=2).build(2, 0)
    with pytest.raises(UserError, match="environment 1 has other spaces than environment 0"):
        make_vector_env(OtherSpacesEnv, 2, 0, 2)
    one = CountingEnv()
    with pytest.raises(UserError, match="same environment twice"):
        EnvFnConfig(env_fn=lambda: one, horizon=5, num_workers=1).build(2, 0)
    with pytest.raises(UserError, match="workers must be at least 0"):
        EnvFnConfig(env_fn=CountingEnv, horizon=5, num_workers=-1)


def test_chosen_workers_that_cannot_begin_cost_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = threading.Lock()
    monkeypatch.setattr("yamame.envs.vector.autotune.autotune_num_workers", lambda *_: 2)
    environments = make_vector_env(lambda: CountingEnv() if lock else None, 2, 0, None)
    assert isinstance(environments, SerialVectorEnv)
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1 and "not using worker processes" in printed.err


def test_an_interrupted_step_leaves_nothing_behind() -> None:
    environments = SubprocVectorEnv(partial(SlowEnv, 0.3), 2, 0, 2)
    reset_all(environments)

    def interrupt(*_: Any) -> None:
        raise InterruptedError

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(InterruptedError):
            environments.step(np.ones(2, np.int64))
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert (reset_all(environments)["observation"][:, 2] == 0).all()
    assert environments.step(np.zeros(2, np.int64)).reward.tolist() == [1, 1]
    environments.close()


def test_closing_twice_and_forgetting_to_end_the_processes() -> None:
    closed, dropped = (SubprocVectorEnv(CountingEnv, 2, 0, 2) for _ in range(2))
    processes = [worker._process for each in (closed, dropped) for worker in each._workers]
    assert all(process.poll() is None for process in processes)
    closed.close()
    closed.close()
    del dropped
    assert [process.returncode for process in processes] == [0] * 4


PARENT = """
import os, signal, sys, time
import gymnasium, numpy as np
from yamame.envs.vector.subproc import SubprocVectorEnv

class Env(gymnasium.Env):  # is in the main script, which has no guard
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        return np.zeros(1, np.float32), {}
    def step(self, action):
        print("stepped")
        assert "torch" not in sys.modules and os.environ["OMP_NUM_THREADS"] == "1"
        if action:
            time.sleep(0.5)
        return np.zeros(1, np.float32), 0.0, False, False, {}

environments = SubprocVectorEnv(Env, 4, 0, 2)
everywhere = np.ones(4, bool)
environments.reset(everywhere, everywhere)
environments.step(np.zeros(4, int))
print("ready", flush=True)
how = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
if how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
if how == "interrupt":
    os.killpg(0, signal.SIGINT)
    time.sleep(60)
"""


@pytest.mark.parametrize("how", ["leave", "kill", "interrupt"])
def test_workers_end_with_their_parent_however_that_ends(how: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, "-W", "error", str(script), how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    # workers hold the other end of stderr: it ends when the last of them has
    out, err = parent.communicate(timeout=60)
    assert out == "ready\n"
    assert parent.returncode == {"leave": 0, "kill": -signal.SIGKILL, "interrupt": -signal.SIGINT}[how]
    rest = err.replace("stepped\n", "")
    assert rest.count("Traceback") == (how == "interrupt") and "leaked" not in rest, err


@pytest.mark.parametrize(
    ("microseconds", "num_envs", "cores", "workers"),
    [
        (5, 24, 2, 0),  # too cheap
        (200, 24, 2, 2),
        (200, 24, 1, 0),
        (200, 1, 16, 0),
        (2000, 3, 16, 3),  # never more workers than environments
        (500, 24, 16, 12),  # 12 have no more rows each than 16
        (5000, 64, 16, 16),
    ],
)
def test_placement(microseconds: float, num_envs: int, cores: int, workers: int) -> None:
    assert best_num_workers(microseconds / 1e6, num_envs, cores) == workers


def test_placement_minds_threads_that_keep_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        best_num_workers(2e-4, 24, 2),
        best_num_workers(2e-4, 24, 2, 0.03),
        best_num_workers(2e-4, 24, 16, 0.03),
    ) == (2, 0, 12)
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    by_default = openmp_spin_seconds()
    monkeypatch.setenv("GOMP_SPINCOUNT", "3000")
    assert openmp_spin_seconds() == pytest.approx(by_default / 100)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    assert openmp_spin_seconds() == 0.0


def test_choosing_leaves_the_random_streams_and_closes_its_environment() -> None:
    closed = []

    class Global(CountingEnv):
        def step(self, action: int) -> Any:
            np.random.random()
            return super().step(action)

        def close(self) -> None:
            closed.append(self)

    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    assert autotune_num_workers(Global, 24) == 0
    assert len(closed) == 1 or not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) == 1
    assert np.random.random() == expected


def test_choosing_leaves_errors_to_those_who_use_the_environment() -> None:
    def broken() -> gymnasium.Env[Any, Any]:
        raise UserError("no such game")

    assert autotune_num_workers(broken, 4) == 0
    with pytest.raises(UserError, match="no such game"):
        make_vector_env(broken, 4, 0, None)


@pytest.mark.parametrize("kind", [SlowEnv, StrictSlowEnv])
def test_slow_environments_go_to_workers_by_themselves(kind: type[SlowEnv], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yamame.envs.vector.autotune.available_cores", lambda: 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    trials = EnvFnConfig(env_fn=partial(kind, 0.005), horizon=5).build(4, seed=0)
    assert isinstance(trials.env, SubprocVectorEnv)
    trials.close()
