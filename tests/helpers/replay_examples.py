"""Trajectories for the tests of replay: any at all, and ones whose numbers identify their source."""

import random
import time
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from yamame.data.goals import Goals
from yamame.data.store import ReplayStore
from yamame.data.trajectory import Trajectory


class ListStore(ReplayStore):
    """Trajectories in a list; `get` takes a random time, or raises one of `failures`."""

    def __init__(self, trajectories: list[Trajectory], *, slow: bool = False) -> None:
        self.trajectories = trajectories
        self.slow = slow
        self.failures: dict[int, Exception] = {}
        self.reads = 0

    def append(self, trajectory: Trajectory) -> int:
        self.trajectories.append(trajectory)
        return len(self.trajectories) - 1

    def ids(self) -> tuple[int, ...]:
        return tuple(range(len(self.trajectories)))

    def get(self, trajectory_id: int, *, lazy: bool = False) -> Trajectory:
        self.reads += 1
        if trajectory_id in self.failures:
            raise self.failures[trajectory_id]
        if self.slow and random.random() < 0.2:
            time.sleep(random.random() * 0.003)
        return self.trajectories[trajectory_id]


def numbered(length: int, *, tag: int = 0, discrete: bool = True) -> Trajectory:
    """Step t has reward 1000 tag + t + 1 and an observation of the same schema, which identify every token."""
    step = 1000.0 * tag + np.arange(length + 1) + 1
    start = np.zeros(length + 1, bool)
    start[0] = True
    return Trajectory(
        reward=step[:-1].astype(np.float32),
        action=step[:-1].astype(np.int64) if discrete else np.stack([step[:-1], -step[:-1]], 1).astype(np.float32),
        terminated=np.arange(length) == length - 1,
        truncated=np.arange(length) % 3 == 1,
        episode_start=start,
        observation={"observation": step[:, None].astype(np.float32)},
        horizon=length + tag + 1,
    )


@st.composite
def trajectories(
    draw: st.DrawFn, *, discrete: bool | None = None, has_extras: bool | None = None, min_length: int = 0
) -> Trajectory:
    length = draw(st.integers(min_length, 9))
    discrete = draw(st.booleans()) if discrete is None else discrete
    has_extras = draw(st.booleans()) if has_extras is None else has_extras

    def array(dtype: Any, *shape: int) -> np.ndarray:
        return draw(hnp.arrays(dtype, shape))

    return Trajectory(
        reward=array(np.float32, length),
        action=array(draw(st.sampled_from([np.int64, np.int32])), length) if discrete else array(np.float32, length, 2),
        terminated=array(bool, length),
        truncated=array(bool, length),
        episode_start=array(bool, length + 1),
        observation={
            "z/pixels": array(np.uint8, length + 1, 2, 3, 3),
            "a": array(np.float32, length + 1, 3),
            "token": array(np.int64, length + 1),
            "flag": array(bool, length + 1, 1),
        },
        success=draw(st.none() | hnp.arrays(bool, length)),
        goals=draw(st.none() | goals(length)),
        task=draw(st.text(max_size=8)),
        horizon=draw(st.integers(1, 2**40)),
        policy_version=draw(st.integers(0, 2**60)),
        noise_scale=draw(st.floats(0, 1)),
        extras={"z/log_prob": array(np.float32, length), "a": array(np.float64, length, 2)} if has_extras else {},
    )


@st.composite
def goals(draw: st.DrawFn, length: int) -> Goals:
    achieved = draw(st.integers(0, 4)) if length else 0
    return Goals(
        instruction=draw(hnp.arrays(np.float32, (draw(st.integers(1, 3)), 2))),
        achieved_step=draw(hnp.arrays(np.int64, achieved, elements=st.integers(0, max(0, length - 1)))),
        achieved_goal=draw(hnp.arrays(np.float32, (achieved, 2))),
        tolerance=draw(st.floats(0, 1)),
        hide_future_goals=draw(st.booleans()),
    )


def assert_same(left: Any, right: Any) -> None:
    """Equal to the bit: types, dtypes, shapes, values (NaN and signs of zero included), order of leaves."""
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        assert (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for name in left:
            assert_same(left[name], right[name])
    elif isinstance(left, Trajectory | Goals):
        assert_same(vars(left), vars(right))
    else:
        assert left == right
