from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from goal_trajectories import made, random_trajectories
from hypothesis import given
from hypothesis import strategies as st
from replay_examples import assert_same, numbered
from scipy import stats

from yamame.data.codec import decode, encode, frozen_copy
from yamame.data.goals import COMPLETED, INSTRUCTION_KEY, NO_GOAL
from yamame.data.relabeling import GoalStatistics, RelabelConfig, Relabeler, relabel_trajectory
from yamame.data.trajectory import Trajectory
from yamame.envs.crafter.config import CrafterConfig
from yamame.envs.maze_runner import MazeRunnerConfig
from yamame.envs.package_delivery import PackageDeliveryConfig

ENVIRONMENTS = {
    "package-delivery": PackageDeliveryConfig(),
    "package-delivery, hidden": PackageDeliveryConfig(hide_future_goals=True, horizon=60),
    "maze-runner": MazeRunnerConfig(),
    "crafter": CrafterConfig(horizon=60, num_workers=0),
    "crafter, expanded tech tree": CrafterConfig(
        instruction_source="tech-tree", expanded=True, horizon=60, num_workers=0
    ),
    "maze-runner, rewired and continuous": MazeRunnerConfig(actions="continuous", rewired=True, horizon=50),
}


def relabeled(trajectory: Trajectory, seed: int = 0, **settings: Any) -> Trajectory:
    relabel = Relabeler(RelabelConfig(**settings))
    return relabel(trajectory, GoalStatistics(), np.random.default_rng(seed))[0]


def instruction(trajectory: Trajectory) -> list[float]:
    assert trajectory.goals is not None
    return trajectory.goals.instruction[:, 0].tolist()


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]], int]:
    """Arguments of `made`: any instruction of goals 0..5 that is not completed, any achievements, any length."""
    length = draw(st.integers(1, 30))
    goal = st.integers(0, 5)
    expected = draw(st.lists(goal, min_size=1, max_size=4))
    achieved = draw(st.lists(st.tuples(st.integers(0, length - 1), goal), max_size=12))
    return [*expected, 99][-4:], sorted(achieved), length  # nobody achieves 99


# rewards, observations and end of a trajectory


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_with_nothing_inserted_every_stored_trajectory_comes_out_again(name: str) -> None:
    if name.startswith("crafter"):
        pytest.importorskip("crafter")
    for trajectory in random_trajectories(ENVIRONMENTS[name], 16 if name.startswith("crafter") else 64):
        assert trajectory.goals is not None
        assert_same(relabel_trajectory(trajectory, trajectory.goals), trajectory)
        stored = decode(encode(trajectory))
        assert stored.goals is not None
        assert_same(relabel_trajectory(stored, stored.goals), trajectory)


@given(stories())
def test_relabeling_with_its_own_goals_changes_nothing(story: Any) -> None:
    trajectory = made(story[0], story[1], length=story[2])
    assert trajectory.goals is not None
    assert_same(relabel_trajectory(trajectory, trajectory.goals), trajectory)
    again = relabeled(trajectory, mode="all")
    assert again.goals is not None
    assert_same(relabel_trajectory(again, again.goals), again)


def test_a_trajectory_ends_where_its_new_instruction_is_completed() -> None:
    new_trajectory = relabeled(made([8, 9], [(2, 5), (4, 6)], slots=3), mode="all")
    assert instruction(new_trajectory) == [5, 6]
    assert len(new_trajectory) == 5
    assert new_trajectory.reward.tolist() == [0, 0, 1, 0, 1]
    assert new_trajectory.terminated.tolist() == [False] * 4 + [True] and not new_trajectory.truncated.any()
    assert new_trajectory.success is not None and new_trajectory.success.tolist() == [False] * 4 + [True]
    assert new_trajectory.action.tolist() == [0, 1, 2, 3, 4]
    assert new_trajectory.observation["seen"][:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    shown = new_trajectory.observation[INSTRUCTION_KEY][:, :, 0].tolist()
    assert shown == [[NO_GOAL, 5, 6]] * 3 + [[NO_GOAL, COMPLETED, 6]] * 2 + [[NO_GOAL, COMPLETED, COMPLETED]]


def test_extras_end_with_the_trajectory() -> None:
    trajectory = replace(
        made([8, 9], [(2, 5), (4, 6)]), extras={"log_prob": np.arange(12.0), "value": np.ones((12, 2))}
    )
    relabeled_one = relabeled(trajectory, mode="all")
    assert relabeled_one.extras["log_prob"].tolist() == [0, 1, 2, 3, 4]
    assert relabeled_one.extras["value"].shape == (5, 2)


def test_one_that_stays_unfinished_keeps_its_end() -> None:
    cut_off = made([8, 9], [(2, 5)])
    died = replace(cut_off, terminated=cut_off.truncated, truncated=cut_off.terminated)
    for trajectory in (cut_off, died):
        new_trajectory = relabeled(trajectory, mode="all")
        assert instruction(new_trajectory) == [5, 9] and len(new_trajectory) == 12
        assert new_trajectory.reward.sum() == new_trajectory.reward[2] == 1
        assert_same(new_trajectory.terminated, trajectory.terminated)
        assert_same(new_trajectory.truncated, trajectory.truncated)


# what is inserted, and where


def test_what_was_completed_stays_and_the_rest_is_merged_in_time() -> None:
    new_trajectory = relabeled(made([7, 8, 9], [(1, 5), (3, 7), (6, 6)], slots=3), mode="all")
    assert instruction(new_trajectory) == [5, 7, 6]
    assert new_trajectory.reward.nonzero()[0].tolist() == [1, 3, 6]


def test_slots_that_are_left_keep_their_sub_goals() -> None:
    """n + h slots are overwritten; original sub-goals of those slots are gone."""
    new_trajectory = relabeled(made([7, 8, 9, 10], [(1, 5), (3, 7)]), mode="all")
    assert instruction(new_trajectory) == [5, 7, 9, 10]


def test_only_one_of_several_goals_of_a_step_is_used() -> None:
    found = {tuple(instruction(relabeled(made([8, 9], [(2, 4), (2, 5)]), seed, mode="all"))) for seed in range(20)}
    assert found == {(4, 9), (5, 9)}


@given(stories(), st.integers(0, 2**32), st.sampled_from(["some", "all", "all-or-nothing"]), st.booleans())
def test_whatever_happens(story: Any, seed: int, mode: Any, importance_sampling: bool) -> None:
    trajectory = made(story[0], story[1], length=story[2])
    before = frozen_copy(trajectory)
    new_trajectory = relabeled(trajectory, seed, mode=mode, importance_sampling=importance_sampling)
    assert_same(frozen_copy(trajectory), before)
    assert new_trajectory.goals is not None and trajectory.goals is not None
    length, new, old = len(new_trajectory), new_trajectory.goals, trajectory.goals
    assert new_trajectory.action.tolist() == trajectory.action[:length].tolist()
    assert new_trajectory.observation["seen"].tolist() == trajectory.observation["seen"][: length + 1].tolist()
    assert len(new.instruction) == len(old.instruction)
    # whatever was inserted was achieved, in this order, before the end
    completed, kept = new.completion_steps(), old.completion_steps()
    assert new_trajectory.reward.sum() == len(completed) >= len(kept)
    assert completed == sorted(set(completed)) and all(step < length for step in completed)
    for step, sub_goal in zip(completed, new.instruction, strict=False):
        assert sub_goal in old.achieved_goal[old.achieved_step == step]
    steps = set(old.achieved_step.tolist()) | set(kept)
    if mode == "all" and len(steps) >= len(old.instruction):
        assert new_trajectory.reward.sum() == len(old.instruction) and new_trajectory.terminated[-1]


def test_a_fully_relabeled_delivery_returns_its_instruction() -> None:
    for trajectory in random_trajectories(ENVIRONMENTS["package-delivery"], 64):
        assert trajectory.goals is not None
        k, steps = len(trajectory.goals.instruction), len(set(trajectory.goals.achieved_step.tolist()))
        new_trajectory = relabeled(trajectory, mode="all")
        assert new_trajectory.reward.sum() == min(k, steps) or trajectory.reward.sum() == k


# what is left alone


def test_what_needs_no_relabeling_is_the_very_same() -> None:
    unfinished = made([8, 9], [(2, 5)])
    assert unfinished.goals is not None
    finished = relabel_trajectory(unfinished, replace(unfinished.goals, instruction=np.array([[5.0]], np.float32)))
    in_attempts = replace(unfinished, episode_start=np.arange(13) % 4 == 0)
    for trajectory in (finished, numbered(5), in_attempts, made([8, 9], [])):
        assert relabeled(trajectory, mode="all") is trajectory
    assert relabeled(unfinished, mode="none") is unfinished


def test_a_trajectory_without_instruction_takes_no_chance() -> None:
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    Relabeler(RelabelConfig())(numbered(5), GoalStatistics(), rng)
    assert rng.bit_generator.state == before


# how often


def inserted_counts(trajectory: Trajectory, draws: int, **settings: Any) -> Counter[int]:
    relabel, rng = Relabeler(RelabelConfig(**settings)), np.random.default_rng(0)
    new_trajectory = (relabel(trajectory, GoalStatistics(), rng)[0] for _ in range(draws))
    return Counter(int(each.reward.sum()) for each in new_trajectory)


def test_some_is_uniform_from_none_to_all() -> None:
    counts = inserted_counts(made([9, 9, 9], [(1, 0), (2, 1), (5, 2), (6, 3)]), 2000, mode="some")
    assert set(counts) == {0, 1, 2, 3}
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_some_samples_before_goals_are_known() -> None:
    """h is drawn up to what was missed, and only then cut to the candidates (SPEC section 5, step 3)."""
    counts = inserted_counts(made([9, 9, 9], [(1, 0)]), 2000, mode="some")
    assert stats.chisquare([counts[0], counts[1]], [500, 1500]).pvalue > 1e-3


def test_all_or_nothing() -> None:
    counts = inserted_counts(made([9, 9], [(1, 0), (2, 1), (5, 2)]), 2000, mode="all-or-nothing")
    assert set(counts) == {0, 2}
    assert stats.chisquare([counts[0], counts[2]], [400, 1600]).pvalue > 1e-3


def test_without_importance_sampling_all_steps_are_alike() -> None:
    trajectory = made([99], [(1, 0), (1, 1), (1, 2), (3, 0), (7, 0), (8, 0)])
    relabel = Relabeler(RelabelConfig(mode="all", importance_sampling=False))
    rng, ends = np.random.default_rng(0), Counter()
    statistics = GoalStatistics()
    for _ in range(2000):
        new_trajectory, statistics = relabel(trajectory, statistics, rng)
        ends[int(instruction(new_trajectory)[0])] += 1
    # goal 0 is reached first at step 1, from whichever of its steps it was chosen
    assert stats.chisquare([ends[0], ends[1], ends[2]], [2000 * (3 / 4 + 1 / 12), 2000 / 12, 2000 / 12]).pvalue > 1e-3
    assert not statistics.index


def test_rare_goals_are_preferred() -> None:
    statistics = GoalStatistics().updated(np.array([[1.0]], np.float32))
    for _ in range(200):
        statistics = statistics.updated(np.zeros((1, 1), np.float32))
    relabel, rng = Relabeler(RelabelConfig(mode="all", stats_update_prob=0.0)), np.random.default_rng(0)
    trajectory = made([99], [(1, 0), (3, 0), (7, 1)])
    chosen = Counter(instruction(relabel(trajectory, statistics, rng)[0])[0] for _ in range(1000))
    # uniform choices (0.2) take it in a third of the cases, all others always
    assert stats.binomtest(chosen[1.0], 1000, 0.8 + 0.2 / 3).pvalue > 1e-3


def test_statistics_are_counted_with_the_chance_that_is_set() -> None:
    relabel, rng = Relabeler(RelabelConfig(stats_update_prob=0.1)), np.random.default_rng(0)
    trajectory = made([99], [(1, 0)])
    _, statistics = relabel(trajectory, GoalStatistics(), rng)
    assert statistics.num_updates == 1  # always, while nothing is known
    for _ in range(900):
        _, statistics = relabel(trajectory, statistics, rng)
    assert stats.binomtest(statistics.num_updates - 1, 900, 0.1).pvalue > 1e-3
    assert statistics.num_sampled == 901


def test_the_older_half_of_too_many_goals_is_forgotten() -> None:
    """Positions are hardly ever the same twice; each checkpoint has all that are counted."""
    statistics = GoalStatistics()
    rng = np.random.default_rng(0)
    for _ in range(21):
        goals = rng.normal(size=(1_000, 2)).astype(np.float32)
        statistics = statistics.updated(goals)
    assert len(statistics.index) == statistics.counts.shape[1] == 10_000
    assert statistics.updated(goals).counts.shape == (2, 10_000), "the newest are kept"
    assert GoalStatistics.from_json(statistics.to_json()).to_json() == statistics.to_json()
