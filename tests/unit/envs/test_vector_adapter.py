import itertools
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from counting_environment import CountingEnv, OpaqueVectorEnv
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError

NUM_ENVS = 3
DISABLED, SAME_STEP, NEXT_STEP = AutoresetMode.DISABLED, AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP


def sync(mode: AutoresetMode) -> VectorEnv:
    return SyncVectorEnv([CountingEnv] * NUM_ENVS, autoreset_mode=mode)


def record(environments: VectorEnv, steps: int, horizon: int = 100, attempts: int | None = 1) -> list[list[Any]]:
    """Per row the real transitions: what was seen, done, earned, ended, led to."""
    trials = TrialWrapper(GymnasiumVectorAdapter(environments, seed=5), horizon=horizon, attempts=attempts)
    seen = trials.reset()["observation"]
    rows: list[list[Any]] = [[] for _ in range(NUM_ENVS)]
    for _ in range(steps):
        action = (seen.sum(axis=1) % 2).astype(np.int64)
        step = trials.step(action)
        for row in np.flatnonzero(step.is_transition):
            ends = (step.terminated[row], step.truncated[row], step.episode_start[row])
            success = False if step.success is None else bool(step.success[row])
            led_to = tuple(step.final_observation["observation"][row])
            rows[row].append((tuple(seen[row]), action[row], step.reward[row], *ends, success, led_to))
        seen = step.observation["observation"]
    trials.close()
    return rows


MODES = {
    "sync-next": lambda: sync(NEXT_STEP),
    "sync-same": lambda: sync(SAME_STEP),
    "opaque-next": lambda: OpaqueVectorEnv(NUM_ENVS, NEXT_STEP),
    "opaque-same": lambda: OpaqueVectorEnv(NUM_ENVS, SAME_STEP),
    "async-next": lambda: AsyncVectorEnv([CountingEnv] * NUM_ENVS, autoreset_mode=NEXT_STEP),
}


@pytest.mark.parametrize("name", MODES)
def test_all_autoreset_modes_give_the_same_transitions(name):
    expected, found = record(sync(DISABLED), 40), record(MODES[name](), 40)
    for wanted_row, found_row in zip(expected, found, strict=True):
        assert len(found_row) == 40 or name == "opaque-next"  # only there a call is spent on every reset
        assert len(found_row) > 25
        assert found_row == wanted_row[: len(found_row)]
    ends = [transition[3:5] for transition in itertools.chain(*expected)]
    assert (True, False) in ends and (False, True) in ends  # both kinds of end were met


def test_recorded_transitions_follow_the_rules():
    for row in record(sync(SAME_STEP), 40):
        for (task, episode, count), action, reward, terminated, truncated, start, success, led_to in row:
            ends = count + 1 == 2 + task % 3
            assert reward == count + 1 + 10 * action and led_to == (task, episode, count + 1)
            assert (terminated, truncated) == (ends and task % 2 == 0, ends and task % 2 == 1)
            assert start == ends and success == terminated and episode == 0


@pytest.mark.parametrize("attempts", [2, None])
def test_soft_resets_are_the_same_with_and_without_autoreset(attempts):
    expected = record(sync(DISABLED), 40, horizon=8, attempts=attempts)
    assert record(sync(NEXT_STEP), 40, horizon=8, attempts=attempts) == expected
    assert any(transition[0][1] > 0 for transition in itertools.chain(*expected))  # second attempts were played


@pytest.mark.parametrize("mode", [SAME_STEP, NEXT_STEP])
def test_what_an_autoresetting_environment_cannot_do_is_said(mode):
    with pytest.raises(UserError, match="repeat a task"):
        record(OpaqueVectorEnv(NUM_ENVS, mode), 10, attempts=2)
    with pytest.raises(UserError, match="truncate an episode"):
        record(OpaqueVectorEnv(NUM_ENVS, mode), 40, horizon=3)


def test_same_step_autoreset_has_lost_the_task():
    with pytest.raises(UserError, match="repeat a task"):
        record(sync(SAME_STEP), 10, attempts=2)


@pytest.mark.parametrize("horizon", [1, 2])  # at 2 some episodes end of themselves
@pytest.mark.parametrize("mode", [SAME_STEP, NEXT_STEP])
def test_horizon_that_cuts_all_rows_at_once_is_a_full_reset(mode, horizon):
    rows = record(OpaqueVectorEnv(NUM_ENVS, mode), 40, horizon=horizon)
    assert all(len(row) == 40 for row in rows)
    for index, (seen, _, _, _, truncated, start, _, _) in enumerate(itertools.chain(*rows)):
        assert seen[2] == index % horizon and truncated == start == (index % horizon == horizon - 1)


def test_same_step_environment_that_takes_masks_can_repeat_a_task_it_has_started():
    adapter = GymnasiumVectorAdapter(sync(SAME_STEP), seed=5)
    everywhere = np.ones(NUM_ENVS, np.bool_)
    adapter.reset(everywhere, everywhere)
    ended = ~everywhere
    while not ended.any():
        step = adapter.step(np.zeros(NUM_ENVS, np.int64))
        ended = step.terminated | step.truncated
    started = adapter.reset(ended, ended)["observation"]
    again = adapter.reset(ended, ~everywhere)["observation"]
    np.testing.assert_array_equal(again[ended], started[ended] + [0, 1, 0])


def test_mode_is_the_environments_own_though_gymnasium_shares_metadata():
    same_step = sync(SAME_STEP)
    expected = record(sync(DISABLED), 30)  # writes its mode into the metadata of the class
    assert record(same_step, 30) == expected


def test_late_reset_is_not_a_transition():
    trials = TrialWrapper(GymnasiumVectorAdapter(OpaqueVectorEnv(NUM_ENVS, NEXT_STEP), seed=5), horizon=100, attempts=1)
    trials.reset()
    late = np.zeros(NUM_ENVS, np.bool_)
    for _ in range(30):
        step = trials.step(np.ones(NUM_ENVS, np.int64))
        np.testing.assert_array_equal(step.is_transition, ~late)
        assert (step.reward[late] == 0).all() and not (step.terminated | step.truncated)[late].any()
        assert step.episode_start[late].all() and (step.observation["observation"][late, 2] == 0).all()
        late = step.terminated | step.truncated


def test_full_reset_calls_off_late_ones():
    trials = TrialWrapper(GymnasiumVectorAdapter(OpaqueVectorEnv(NUM_ENVS, NEXT_STEP), seed=5), horizon=100, attempts=1)
    trials.reset()
    for _ in range(10):
        step = trials.step(np.zeros(NUM_ENVS, np.int64))
        ends = step.terminated | step.truncated
        if ends.any() and not ends.all():
            break
    else:
        raise AssertionError("no row ended alone: choose another seed")
    trials.reset()
    assert trials.step(np.zeros(NUM_ENVS, np.int64)).is_transition.all()


def test_masked_reset_passes_a_mask_and_which_tasks_are_repeated():
    class Masked(OpaqueVectorEnv):
        seen: list[Any]

        def reset(self, *, seed=None, options=None):
            self.seen = [*getattr(self, "seen", []), (seed, options)]
            return self.inner.reset(seed=seed)  # resets all, as a careless environment may

    environments = Masked(NUM_ENVS, DISABLED)
    adapter = GymnasiumVectorAdapter(environments, seed=5)
    everywhere = np.ones(NUM_ENVS, np.bool_)
    first = adapter.reset(everywhere, everywhere)["observation"]
    mask, new_task = np.array([True, False, True]), np.array([True, False, False])
    second = adapter.reset(mask, new_task)["observation"]
    adapter.reset(mask, everywhere)
    (seed, first_options), (no_seed, options), (_, last_options) = environments.seen
    assert isinstance(seed, int) and no_seed is None
    assert first_options is None and list(last_options) == ["reset_mask"]
    np.testing.assert_array_equal(options["reset_mask"], mask)
    np.testing.assert_array_equal(options["new_task"], new_task)
    np.testing.assert_array_equal(second[1], first[1])  # a row outside of the mask stays


@pytest.mark.parametrize("mode", [DISABLED, SAME_STEP, NEXT_STEP])
def test_environments_that_refuse_unknown_options_work(mode: AutoresetMode):
    class Strict(CountingEnv):
        def reset(self, *, seed=None, options=None):
            assert not options, options
            return super().reset(seed=seed)

    environments = SyncVectorEnv([Strict] * NUM_ENVS, autoreset_mode=mode)
    assert record(environments, 40) == record(sync(mode), 40)


def test_batched_final_observations_are_read():
    class Batched(OpaqueVectorEnv):
        def step(self, actions):
            observation, *middle, info = self.inner.step(actions)
            if "final_obs" in info:
                final = [observation[row] if each is None else each for row, each in enumerate(info["final_obs"])]
                info = {"final_obs": np.array(final), "final_info": info["final_info"]}
            return observation, *middle, info

    assert record(Batched(NUM_ENVS, SAME_STEP), 30) == record(sync(DISABLED), 30)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_observations_do_not_share_memory_with_the_environment(dtype):
    class Typed(CountingEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = spaces.Box(0, 255, (3,), dtype)

        def _observe(self):
            return super()._observe().astype(dtype)

    def build(copy):
        return SyncVectorEnv([Typed] * NUM_ENVS, copy=copy, autoreset_mode=DISABLED)

    assert record(build(copy=False), 30) == record(build(copy=True), 30)


def test_success_is_absent_until_announced_and_an_array_from_then_on():
    adapter = GymnasiumVectorAdapter(sync(DISABLED), seed=5)
    everywhere = np.ones(NUM_ENVS, np.bool_)
    adapter.reset(everywhere, everywhere)
    assert adapter.step(np.zeros(NUM_ENVS, np.int64)).success is None
    found = []
    for _ in range(10):
        step = adapter.step(np.zeros(NUM_ENVS, np.int64))
        ended = step.terminated | step.truncated
        if ended.any():
            adapter.reset(ended, ended)
        found.append(step.success)
        if step.success is not None:
            np.testing.assert_array_equal(step.success, step.terminated)
    first = next(index for index, success in enumerate(found) if success is not None)
    assert all(success is not None for success in found[first:])


class _Walk(gymnasium.Env):
    """Three steps; the observation counts them. One array for all steps, unless `copies`."""

    observation_space = spaces.Box(0.0, 3.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, *, copies: bool, counts: bool = True) -> None:
        self.copies, self.count = copies, float(counts)
        self.array = np.zeros(2, np.float32)

    def reset(self, *, seed=None, options=None):
        self.array[:] = 0
        return self._observe(), {}

    def step(self, action):
        self.array += self.count
        return self._observe(), 0.0, False, bool(self.array[0] == 3) or not self.count, {}

    def _observe(self):
        return self.array.copy() if self.copies else self.array


@pytest.mark.parametrize(
    ("settings", "mode", "is_named"),
    [
        ({"copies": False}, SAME_STEP, True),
        ({"copies": True}, SAME_STEP, False),
        ({"copies": False}, DISABLED, False),
        ({"copies": True, "counts": False}, SAME_STEP, False),
    ],
    ids=["reused", "copied", "reset by mask", "constant"],
)
def test_last_observations_that_a_reset_overwrites_are_named_once(settings, mode, is_named, capsys):
    walks = SyncVectorEnv([partial(_Walk, **settings)] * NUM_ENVS, autoreset_mode=mode)
    record(walks, 40)
    line = "the last observations of 9 episodes equal the first one of the next"
    assert capsys.readouterr().err.count(line) == int(is_named)


class _MaskedPairs(VectorEnv):
    """Two environments whose episodes of two steps end together, with a mask in info except at the end."""

    num_envs, metadata = 2, {"autoreset_mode": DISABLED}
    single_observation_space, single_action_space = spaces.Box(0.0, 2.0, (1,), np.float32), spaces.Discrete(2)

    def __init__(self) -> None:
        self.count = np.zeros((2, 1), np.float32)

    def reset(self, *, seed=None, options=None):
        self.count = self.count * 0
        return self.count, {"action_mask": np.eye(2)}

    def step(self, actions):
        self.count = self.count + 1
        ended = self.count[:, 0] == 2
        return self.count, np.zeros(2), ended, ~ended & ended, {} if ended.all() else {"action_mask": np.eye(2)}

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def test_a_restored_adapter_has_the_masks_of_the_one_that_was_never_stopped():
    everywhere, action = np.ones(2, np.bool_), np.zeros(2, np.int64)
    first, second = (GymnasiumVectorAdapter(_MaskedPairs(), seed=5) for _ in range(2))
    first.reset(everywhere, everywhere)
    first.step(action)
    second.load_state_dict(first.state_dict())
    ends = [adapter.step(action) for adapter in (first, second)]
    assert ends[0].terminated.all() and ends[1].terminated.all()
    for observations in (
        [end.final_observation for end in ends],
        [a.reset(everywhere, everywhere) for a in (first, second)],
    ):
        assert [*observations[0]] == [*observations[1]] == ["observation", "action_mask"]
        np.testing.assert_array_equal(observations[0]["action_mask"], observations[1]["action_mask"])
