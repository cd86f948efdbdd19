"""Batches: a session acts as a policy of its own would, whatever the others do."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from solved_tmaze import JUNCTION, solved_tmaze

from yamame.policy.loaded import LoadedPolicy
from yamame.tools.serve.batcher import Batcher
from yamame.tools.serve.protocol import ActRequest, RequestError
from yamame.training.trained_run import load_trained_run

SLOTS = 5


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return solved_tmaze(tmp_path_factory.mktemp("runs"))


def request(observation: Any, **values: Any) -> ActRequest:
    return ActRequest(observation=np.asarray(observation, np.float32), **{"deterministic": True, **values})


def recorded(policy: LoadedPolicy) -> list[np.ndarray]:
    """The probabilities of all environments at each call, as the policy computes them."""
    calls: list[np.ndarray] = []
    distribution = policy._policy.distribution

    def record(step: Any) -> Any:
        found = distribution(step)
        calls.append(found.probability_NGA[:, 0].numpy())
        return found

    policy._policy.distribution = record  # type: ignore[attr-defined]
    return calls


def test_environments_that_do_not_step_keep_their_memory(run: Path) -> None:
    """Whatever is passed for them: NaN, and numbers of another trial."""
    rng = np.random.default_rng(0)
    together, alone = (
        LoadedPolicy.from_run(load_trained_run(run), num_envs=SLOTS),
        [LoadedPolicy.from_run(load_trained_run(run), num_envs=None) for _ in range(SLOTS)],
    )
    calls, single = recorded(together), [recorded(policy) for policy in alone]
    times = np.zeros(SLOTS, int)
    for _ in range(80):
        steps, resets = rng.random(SLOTS) < 0.5, (rng.random(SLOTS) < 0.05) | (times == JUNCTION)
        if not steps.any():
            continue
        times[resets] = 0
        together.reset(resets)
        observation = rng.uniform(-1, 1, (SLOTS, 2)).astype(np.float32)
        reward = rng.normal(size=SLOTS)
        passed = np.where(steps[:, None], observation, np.nan)
        actions = together.act(passed, reward, deterministic=True, step_mask=steps)
        for slot in range(SLOTS):
            if resets[slot]:
                alone[slot].reset()
            if steps[slot]:
                action = alone[slot].act(observation[slot], reward[slot], deterministic=True)
                assert action == actions[slot]
                np.testing.assert_allclose(calls[-1][slot], single[slot][-1][0], rtol=0, atol=1e-5)
        times += steps


def test_requests_that_arrive_together_are_one_batch_and_find_their_own_memory(run: Path) -> None:
    """The agent has solved the maze: it turns at the junction to where the first observation pointed."""
    policy = LoadedPolicy.from_run(load_trained_run(run), num_envs=SLOTS)
    expected = {}
    for cue in (-1.0, 1.0):
        alone = LoadedPolicy.from_run(load_trained_run(run), num_envs=None)
        expected[cue] = [int(alone.act(observation, deterministic=True)) for observation in corridor(cue)]
    assert expected[-1.0][-1] != expected[1.0][-1]

    async def play() -> tuple[list[list[int]], Batcher]:
        batcher = Batcher(policy, num_slots=SLOTS, timeout_seconds=30.0)

        async def walk(slot: int, cue: float) -> list[int]:
            actions = []
            for time, observation in enumerate(corridor(cue)):
                actions.append(await batcher.act(slot, request(observation), resets=time == 0))
                if slot == 0:  # the slowest one
                    await asyncio.sleep(0.002)
            return actions

        cues = [-1.0, 1.0, -1.0, 1.0]
        return await asyncio.gather(*(walk(slot, cue) for slot, cue in enumerate(cues))), batcher

    walks, batcher = asyncio.run(play())
    assert walks == [expected[-1.0], expected[1.0], expected[-1.0], expected[1.0]]
    assert batcher.num_requests == 4 * (JUNCTION + 1)
    assert JUNCTION + 1 <= batcher.num_batches < 3 * (JUNCTION + 1)


def corridor(cue: float) -> list[np.ndarray]:
    """What is seen on the way to the junction: the cue at its start, and the junction at its end."""
    return [np.array([float(time == JUNCTION), cue if time == 0 else 0.0], np.float32) for time in range(JUNCTION + 1)]


def test_samples_and_modes_are_batches_of_their_own(run: Path) -> None:
    policy = LoadedPolicy.from_run(load_trained_run(run), num_envs=SLOTS)
    modes: list[Any] = []
    act = policy._policy.act
    policy._policy.act = lambda step, *, deterministic: (
        modes.append(deterministic),
        act(step, deterministic=deterministic),
    )[1]  # type: ignore

    async def play() -> None:
        batcher = Batcher(policy, num_slots=SLOTS, timeout_seconds=30.0)
        choices = (True, False, True, False)
        await asyncio.gather(
            *(batcher.act(n, request([0.0, 1.0], deterministic=mode), resets=True) for n, mode in enumerate(choices))
        )

    asyncio.run(play())
    assert modes == [True, False]
    assert policy._time.tolist() == [1, 1, 1, 1, 0]


def test_a_request_that_waits_for_too_long_changes_nothing(run: Path) -> None:
    policy = LoadedPolicy.from_run(load_trained_run(run), num_envs=SLOTS)
    goes_on, act = threading.Event(), policy._policy.act

    def slow(step: Any, **options: Any) -> Any:
        assert goes_on.wait(30)
        return act(step, **options)

    policy._policy.act = slow  # type: ignore[method-assign]

    async def play() -> Any:
        batcher = Batcher(policy, num_slots=SLOTS, timeout_seconds=0.2)
        first = asyncio.create_task(batcher.act(0, request([0.0, 1.0]), resets=True))
        await asyncio.sleep(0.1)
        with pytest.raises(RequestError, match="no action within") as late:
            await batcher.act(1, request([0.0, 1.0]), resets=True)
        assert late.value.status == 503
        goes_on.set()
        return await first

    assert isinstance(asyncio.run(play()), int)
    assert policy._time.tolist() == [1, 0, 0, 0, 0]


def test_a_policy_that_fails_fails_its_batch_only(run: Path) -> None:
    policy = LoadedPolicy.from_run(load_trained_run(run), num_envs=SLOTS)
    act = policy._policy.act

    async def play() -> None:
        batcher = Batcher(policy, num_slots=SLOTS, timeout_seconds=30.0)

        def fails(step: Any, **options: Any) -> Any:
            raise RuntimeError("one\ntwo")

        policy._policy.act = fails  # type: ignore[method-assign]
        with pytest.raises(RequestError, match="the policy failed: RuntimeError: one two") as failed:
            await batcher.act(0, request([0.0, 1.0]), resets=True)
        assert failed.value.status == 500
        policy._policy.act = act  # type: ignore[method-assign]
        await batcher.act(0, request([0.0, 1.0]), resets=True)

    asyncio.run(play())
