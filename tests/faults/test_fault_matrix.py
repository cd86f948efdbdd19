"""Every way to fail, wherever environments are stepped: what is stored, what is counted, what others notice."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from failing_environments import AlwaysFailing, FailingEnv, FailingVectorEnv
from gymnasium.vector import AutoresetMode

from yamame.collect.collector import Collector, RandomPolicy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.collect.faults import FaultToleranceConfig
from yamame.data.trajectory import Trajectory
from yamame.envs.base import TrialVectorEnv
from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.vector import faults as restart
from yamame.envs.vector.autotune import make_vector_env
from yamame.envs.vector.faults import reset_seeds
from yamame.envs.vector.gymnasium_adapter import make_episode_vector_env
from yamame.envs.wrappers.restarting import RestartingVectorEnv
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError
from yamame.training.evaluate import evaluate_policy

ROWS, SEED, EPISODE, UNLUCKY = 3, 7, 4, 1
ROW_SEEDS = reset_seeds(np.random.SeedSequence(SEED), ROWS)
OnFault = Literal["drop", "truncate"]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "RETRY_DELAYS_SECONDS", (0.0, 0.0, 0.0))


def acted(
    trials: TrialVectorEnv, vector_steps: int, on_fault: OnFault = "drop", **limits: Any
) -> tuple[list[list[Trajectory]], Collector]:
    """The trajectories of each environment, and who collected them."""
    explorer = Explorer(NoExploration(), trials.action_space, trials.num_envs, np.random.default_rng(0))
    collector = Collector(trials, "task", explorer, FaultToleranceConfig(on_fault=on_fault, **limits))
    policy = RandomPolicy(trials.action_space, np.random.default_rng(3))
    of_row: list[list[Trajectory]] = [[] for _ in range(trials.num_envs)]
    for _ in range(vector_steps):
        for row, trajectory in collector.step(policy, deterministic=False):
            of_row[row].append(trajectory)
    trials.close()
    return of_row, collector


def singles(marks: Path, fault: str, at: int, workers: int, attempts: int | None = 1, **more: Any) -> TrialWrapper:
    make = FailingEnv(fault, ROW_SEEDS[UNLUCKY], at, marks, **more)
    placed = make_vector_env(make, ROWS, SEED, workers, step_timeout_seconds=1.0 if fault == "hang" else 10.0)
    return TrialWrapper(placed, horizon=EPISODE * (attempts or 1), attempts=attempts)


def assert_whole(trajectory: Trajectory) -> None:
    """The steps of one task from its beginning on, without a gap, whatever became of the others."""
    seen = trajectory.observation["observation"]
    assert np.isfinite(seen).all() and len(set(seen[:, 0])) == 1
    count = np.arange(len(trajectory) + 1)
    expected = np.stack([count // EPISODE, count % EPISODE], axis=1)
    if len(trajectory) and len(trajectory) % EPISODE == 0:
        expected[-1] = [expected[-2][0], EPISODE]  # the last observation is of the attempt that ended there
    np.testing.assert_array_equal(seen[:, 1:], expected)
    np.testing.assert_array_equal(trajectory.reward, count[:-1] % EPISODE + 1)
    assert not trajectory.terminated.any()
    is_complete = len(trajectory) == trajectory.horizon  # otherwise a fault ended it, which is no end of the task
    np.testing.assert_array_equal(trajectory.truncated, (count[:-1] == len(trajectory) - 1) & is_complete)
    np.testing.assert_array_equal(trajectory.episode_start[:-1], count[:-1] % EPISODE == 0)


def assert_same(one: list[Trajectory], other: list[Trajectory]) -> None:
    assert len(one) == len(other) > 0
    for ours, theirs in zip(one, other, strict=True):
        for field in ("reward", "terminated", "truncated", "episode_start"):
            np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field))
        np.testing.assert_array_equal(ours.observation["observation"], theirs.observation["observation"])


IN_STEPS = {
    "raise": "exception",
    "nan": "nonfinite",
    "infinite_reward": "nonfinite",
    "odd_reward": "shape_mismatch",
}
IN_WORKERS = {"hang": "timeout", "kill": "worker_died"}
CASES = [(fault, kind, workers) for fault, kind in IN_STEPS.items() for workers in (0, 1, 3)]
CASES += [(fault, kind, 3) for fault, kind in IN_WORKERS.items()]


def with_on_fault(fault: str, kind: str, workers: int, on_fault: OnFault) -> Any:
    """Trials are handled in this process: with workers, one value of `on_fault` tests how faults arrive."""
    repeated = workers and fault in IN_STEPS and on_fault == ("truncate" if workers == 1 else "drop")
    return pytest.param(fault, kind, workers, on_fault, marks=[pytest.mark.thorough] if repeated else [])


@pytest.mark.parametrize(
    ("fault", "kind", "workers", "on_fault"),
    [with_on_fault(*case, on_fault) for case in CASES for on_fault in ("drop", "truncate")],
)
def test_a_step_that_fails_costs_its_own_trial(
    fault: str, kind: str, workers: int, on_fault: OnFault, tmp_path: Path
) -> None:
    sound, _ = acted(singles(tmp_path, "none", 0, 0), 20)
    found, collector = acted(singles(tmp_path, fault, 7, workers), 20, on_fault)
    for row in set(range(ROWS)) - {UNLUCKY}:
        assert_same(found[row], sound[row])
    # its steps: 4 of a trial, 2 of the one that fails in its third, and 13 of new ones from the next step on
    lengths = [4, *([2] if on_fault == "truncate" else []), 4, 4, 4]
    assert [len(trajectory) for trajectory in found[UNLUCKY]] == lengths
    for trajectory in found[UNLUCKY]:
        assert_whole(trajectory)
    assert_same(found[UNLUCKY][:1], sound[UNLUCKY][:1])
    tasks = {trajectory.observation["observation"][0, 0] for trajectory in found[UNLUCKY]}
    assert len(tasks) == len(lengths)  # its new tasks are not those that it began with
    assert collector.env_steps == ROWS * 20 - 1
    assert collector.faults.metrics() == {"faults/restarts": 1.0, f"faults/{kind}": 1.0}


WORKERS_AND_ON_FAULT = [
    *((0, on_fault) for on_fault in ("drop", "truncate")),
    pytest.param(3, "drop", marks=pytest.mark.thorough),
    (3, "truncate"),
]


@pytest.mark.parametrize(("workers", "on_fault"), WORKERS_AND_ON_FAULT)
@pytest.mark.parametrize(("fault", "kind"), [("raise_in_reset", "exception"), ("nan_in_reset", "nonfinite")])
def test_a_reset_to_a_new_task_that_fails_costs_a_step_and_no_trial(
    fault: str, kind: str, workers: int, on_fault: OnFault, tmp_path: Path
) -> None:
    sound, _ = acted(singles(tmp_path, "none", 0, 0), 20)
    found, collector = acted(singles(tmp_path, fault, 3, workers), 20, on_fault)
    for row in set(range(ROWS)) - {UNLUCKY}:
        assert_same(found[row], sound[row])
    assert [len(trajectory) for trajectory in found[UNLUCKY]] == [4, 4, 4, 4]
    for trajectory in found[UNLUCKY]:
        assert_whole(trajectory)
    assert collector.env_steps == ROWS * 20 - 1
    assert collector.faults.metrics() == {"faults/restarts": 1.0, f"faults/{kind}": 1.0}


@pytest.mark.parametrize(("workers", "on_fault"), WORKERS_AND_ON_FAULT)
@pytest.mark.parametrize("fault", ["raise_in_reset", "nan_in_reset", "kill_in_reset"])
def test_a_soft_reset_that_fails_costs_its_trial(fault: str, workers: int, on_fault: OnFault, tmp_path: Path) -> None:
    if fault == "kill_in_reset" and not workers:
        pytest.skip("it is this process that would be killed")
    sound, _ = acted(singles(tmp_path, "none", 0, 0, attempts=3), 40)
    found, collector = acted(singles(tmp_path, fault, 3, workers, attempts=3), 40, on_fault)
    for row in set(range(ROWS)) - {UNLUCKY}:
        assert_same(found[row], sound[row])
    # 8 steps of two attempts, the third cannot start
    assert [len(trajectory) for trajectory in found[UNLUCKY]] == [*([8] if on_fault == "truncate" else []), 12, 12]
    for trajectory in found[UNLUCKY]:
        assert_whole(trajectory)
    assert collector.env_steps == ROWS * 40 - 1
    assert collector.faults.metrics()["faults/restarts"] == 1.0


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_in_closing_what_has_failed_are_of_no_interest(workers: int, tmp_path: Path) -> None:
    trials = singles(tmp_path, "raise", 2, workers, bad_close=True)
    explorer = Explorer(NoExploration(), trials.action_space, ROWS, np.random.default_rng(0))
    collector = Collector(trials, "task", explorer)
    policy = RandomPolicy(trials.action_space, np.random.default_rng(3))
    ended = [row for _ in range(8) for row, _ in collector.step(policy, deterministic=False)]
    assert sorted(ended) == [0, 0, 1, 2, 2]


def test_a_worker_that_dies_takes_all_its_rows(tmp_path: Path) -> None:
    found, collector = acted(singles(tmp_path, "kill", 7, 1), 20)
    assert [[len(trajectory) for trajectory in row] for row in found] == [[4, 4, 4, 4]] * ROWS
    assert collector.env_steps == ROWS * 19
    assert collector.faults.metrics() == {"faults/restarts": 1.0, "faults/worker_died": 1.0}


def whole(fault: str, at: int, mode: AutoresetMode, attempts: int = 1) -> TrialWrapper:
    FailingVectorEnv.made = 0
    make: Callable[[int], Any] = partial(_vectorized, fault, at, mode)
    return TrialWrapper(RestartingVectorEnv(make, SEED), horizon=EPISODE * attempts, attempts=attempts)


def _vectorized(fault: str, at: int, mode: AutoresetMode, seed: int) -> Any:
    return make_episode_vector_env(FailingVectorEnv(fault, at, mode), seed)


DISABLED, SAME_STEP = AutoresetMode.DISABLED, AutoresetMode.SAME_STEP
ALL, ONE = [0, 1, 2], [UNLUCKY]


@pytest.mark.parametrize("on_fault", ["drop", "truncate"])
@pytest.mark.parametrize(
    ("fault", "kind", "mode", "failed"),
    [
        ("raise", "exception", DISABLED, ALL),
        ("raise", "exception", SAME_STEP, ALL),
        ("odd_reward", "shape_mismatch", DISABLED, ALL),
        ("nan", "nonfinite", DISABLED, ONE),
        ("nan", "nonfinite", SAME_STEP, ALL),  # it takes no masks
        ("infinite_reward", "nonfinite", DISABLED, ONE),
    ],
)
def test_vector_environments(fault: str, kind: str, mode: AutoresetMode, failed: list[int], on_fault: OnFault) -> None:
    sound, _ = acted(whole("none", 0, DISABLED), 20)
    found, collector = acted(whole(fault, 7, mode), 20, on_fault)
    lengths = [4, *([2] if on_fault == "truncate" else []), 4, 4, 4]
    for row in range(ROWS):
        assert [len(trajectory) for trajectory in found[row]] == (lengths if row in failed else [4] * 5)
        for trajectory in found[row]:
            assert_whole(trajectory)
        assert_same(found[row][:1], sound[row][:1])
    assert collector.env_steps == ROWS * 20 - len(failed)
    assert collector.faults.metrics() == {"faults/restarts": 1.0, f"faults/{kind}": 1.0}
    assert FailingVectorEnv.made == (2 if failed == ALL else 1)


@pytest.mark.parametrize("on_fault", ["drop", "truncate"])
def test_a_reset_of_a_vector_environment_that_fails(on_fault: OnFault) -> None:
    found, collector = acted(whole("raise_in_reset", 3, DISABLED, attempts=3), 40, on_fault)
    for row in found:
        assert [len(trajectory) for trajectory in row] == [*([8] if on_fault == "truncate" else []), 12, 12]
        for trajectory in row:
            assert_whole(trajectory)
    assert collector.env_steps == ROWS * 39
    assert collector.faults.metrics() == {"faults/restarts": 1.0, "faults/exception": 1.0}


def test_a_vector_env_fn_is_called_again() -> None:
    FailingVectorEnv.made = 0
    trials = EnvFnConfig(env_fn=partial(FailingVectorEnv, "raise", 3), horizon=4, vector_size=3).build(3, SEED)
    found, _ = acted(trials, 10)
    assert FailingVectorEnv.made == 2 and [len(row) for row in found] == [1, 1, 1]


@pytest.mark.parametrize("workers", [0, 2])
def test_too_many_faults_end_it_with_the_traceback(workers: int, capfd: pytest.CaptureFixture[str]) -> None:
    trials = TrialWrapper(make_vector_env(partial(AlwaysFailing, 3), ROWS, SEED, workers), horizon=5, attempts=1)
    with pytest.raises(UserError, match=r"environment . raised ValueError: out of oil .fault 12 of this run") as caught:
        acted(trials, 1000, max_restarts=10)
    assert "fault_tolerance.max_restarts (10)" in str(caught.value) and "\n" not in str(caught.value)
    printed = capfd.readouterr().err
    assert printed.count("Traceback") == 1 and "in step" in printed


def test_without_restarts_the_first_fault_ends_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the dice fell off the table"):
        acted(singles(tmp_path, "raise", 7, 0), 20, max_restarts=0)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_never_worked_is_the_users_to_mend_at_once(workers: int) -> None:
    trials = TrialWrapper(make_vector_env(partial(AlwaysFailing, 1), ROWS, SEED, workers), horizon=5, attempts=1)
    with pytest.raises(UserError, match=r"out of oil .no environment has made a valid step"):
        acted(trials, 1)


def test_trials_that_come_to_their_end_make_up_for_restarts(tmp_path: Path) -> None:
    (tmp_path / "failed").touch()
    plan = FailingEnv("none", 0, 0, tmp_path)

    def make() -> Any:
        environment = plan()
        environment.step = partial(_raise_sometimes, environment, environment.step, np.random.default_rng(0))
        return environment

    trials = TrialWrapper(make_vector_env(make, ROWS, SEED, 0), horizon=EPISODE, attempts=1)
    _, collector = acted(trials, 400, max_restarts=20)
    assert collector.faults.metrics()["faults/restarts"] > 40


def _raise_sometimes(environment: Any, step: Any, rng: np.random.Generator, action: Any) -> Any:
    if environment.task % 3 == 0 and environment.time == 2:
        raise ValueError("an unlucky task")
    return step(action)


def test_faults_are_reported_but_not_for_ever(capsys: pytest.CaptureFixture[str]) -> None:
    trials = TrialWrapper(make_vector_env(partial(AlwaysFailing, 3), ROWS, SEED, 0), horizon=5, attempts=1)
    with pytest.raises(UserError):
        acted(trials, 1000)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "environment 0 raised ValueError: out of oil (restart 3)"
    assert sum("(restart " in line for line in lines) == 5


@pytest.mark.parametrize("on_fault", ["drop", "truncate"])
def test_an_evaluation_counts_whole_trials_only(on_fault: OnFault, tmp_path: Path) -> None:
    trials = singles(tmp_path, "raise", 3, 0)
    policy = RandomPolicy(trials.action_space, np.random.default_rng(3))
    evaluation = evaluate_policy(
        policy, trials, trials=6, deterministic=True, faults=FaultToleranceConfig(on_fault=on_fault)
    )
    assert evaluation.returns.tolist() == [10.0] * 6


def test_what_cannot_be_made_again_ends_it(tmp_path: Path) -> None:
    made = 0

    def make() -> Any:
        nonlocal made
        made += 1
        if made > ROWS:
            raise OSError("no licence is left")
        return AlwaysFailing(3)

    trials = TrialWrapper(make_vector_env(make, ROWS, SEED, 0), horizon=5, attempts=1)
    with pytest.raises(
        UserError, match=r"environment 0 failed and could not be restarted after 3 attempts.*no licence"
    ):
        acted(trials, 10)
