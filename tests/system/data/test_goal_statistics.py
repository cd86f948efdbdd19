import json

import numpy as np
import pytest
from scipy import stats

from yamame.data.relabeling import (
    NORMALIZER_PROBS,
    PER_STEP,
    PER_TRAJECTORY,
    GoalStatistics,
    Normalizer,
    goal_probs,
    sample_goal,
    sample_normalizer,
)


def array(*goals: tuple[float, ...]) -> np.ndarray:
    return np.array(goals, np.float32)


A, B, C = (1.0, 2.0), (2.0, 1.0), (0.0, 0.0)


def test_occurrences_and_trajectories_are_counted_apart() -> None:
    statistics = GoalStatistics().updated(array(A, A, B, A)).updated(array(B))
    assert statistics.counts[PER_STEP] == pytest.approx([1e-7 + 2e-3, 1e-7 + 1e-3])
    assert statistics.counts[PER_TRAJECTORY] == pytest.approx([1e-7, 1e-7 + 1e-3])
    assert statistics.num_updates == 2


def test_a_record_is_never_changed() -> None:
    before = GoalStatistics().updated(array(A))
    before.updated(array(A, B))
    assert len(before.index) == 1 and before.counts[PER_STEP] == pytest.approx([1e-7])


def test_rare_goals_weigh_more() -> None:
    statistics = GoalStatistics().updated(array(*[A] * 1001, *[B] * 11))
    counts = np.array([1e-7 + 1.0, 1e-7 + 1e-2])
    expected = np.log10(counts / counts.sum()) ** 4
    weights = statistics.weights(array(B, A, B), PER_STEP)
    assert weights == pytest.approx([expected[1], max(expected[0], 1e-3), expected[1]])
    unseen = np.log10(1e-3 / counts.sum()) ** 4
    assert statistics.weights(array(C), PER_STEP) == pytest.approx([unseen])


def test_weights_have_limits() -> None:
    alone = GoalStatistics().updated(array(*[A] * 5000))
    assert alone.weights(array(A), PER_STEP).tolist() == [1e-3]
    for _ in range(3):
        alone = alone.updated(array(*[A] * 10**6))
    rare = alone.updated(array(B))
    assert 0 < rare.weights(array(B), PER_STEP)[0] <= 1e5


def test_counts_shrink_when_they_have_grown_large() -> None:
    statistics = GoalStatistics().updated(array(*[A] * 200_001, B))
    assert statistics.counts[PER_STEP][0] == pytest.approx(200, rel=1e-3)
    for _ in range(1000):
        statistics = statistics.updated(array(B))
    assert statistics.counts[PER_STEP] == pytest.approx([20, 0.1], rel=1e-2)
    assert statistics.counts[PER_TRAJECTORY] == pytest.approx([1e-7, 1.0], rel=1e-2)  # this one has not
    assert statistics.num_updates == 0


def test_everything_goes_through_json() -> None:
    statistics = GoalStatistics(num_sampled=7, num_relabeled=4, num_inserted=9).updated(array(A, B, B))
    again = GoalStatistics.from_json(json.loads(json.dumps(statistics.to_json())))
    assert again.index == statistics.index and again.counts.tolist() == statistics.counts.tolist()
    assert again.metrics() == statistics.metrics()
    assert again.updated(array(B, C)).to_json() == statistics.updated(array(B, C)).to_json()
    empty = GoalStatistics.from_json(json.loads(json.dumps(GoalStatistics().to_json())))
    assert empty.counts.shape == (2, 0) and empty.metrics() == {}


def test_metrics_say_what_relabeling_did() -> None:
    metrics = GoalStatistics(num_sampled=8, num_relabeled=4, num_inserted=10).updated(array(A, A, A, B)).metrics()
    assert metrics["relabel/relabeled_fraction"] == 0.5
    assert metrics["relabel/inserted_goals_mean"] == 1.25
    assert metrics["relabel/num_unique_goals"] == 2
    assert metrics["relabel/most_common_goal_fraction"] == pytest.approx(2e-3 / (2e-3 + 2e-7), rel=1e-3)


WEIGHTS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


@pytest.mark.parametrize(
    ("normalizer", "kept"),
    [
        (Normalizer.UNIFORM, [1, 1, 1, 1, 1, 1]),
        (Normalizer.MIN, [1e-5, 1 + 1e-5, 3 + 1e-5, 7 + 1e-5, 15 + 1e-5, 31 + 1e-5]),
        (Normalizer.MEDIAN, [1e-5, 1e-5, 1e-5, 2, 10, 26]),
        (Normalizer.TOP_K, [1e-5, 2, 4, 8, 16, 32]),
    ],
)
def test_chances_by_hand(normalizer: Normalizer, kept: list[float]) -> None:
    assert goal_probs(WEIGHTS, normalizer, top_k=5) == pytest.approx(np.array(kept) / np.sum(kept))


def test_of_fewer_than_k_only_the_largest() -> None:
    assert goal_probs(WEIGHTS[:3], Normalizer.TOP_K, top_k=5) == pytest.approx([0, 0, 1], abs=1e-5)
    assert goal_probs(np.array([3.0, 3.0]), Normalizer.TOP_K, top_k=5).tolist() == [0.5, 0.5]


def test_normalizers_are_drawn_by_their_chances() -> None:
    rng = np.random.default_rng(0)
    drawn = [sample_normalizer(rng) for _ in range(4000)]
    counts = [drawn.count(normalizer) for normalizer in NORMALIZER_PROBS]
    assert stats.chisquare(counts, [4000 * prob for prob in (0.2, 0.1, 0.1, 0.6)]).pvalue > 1e-3


@pytest.mark.parametrize("normalizer", Normalizer)
def test_choices_follow_their_chances(normalizer: Normalizer) -> None:
    rng = np.random.default_rng(0)
    counts = np.bincount([sample_goal(WEIGHTS, normalizer, rng, top_k=5) for _ in range(4000)], minlength=6)
    expected = 4000 * goal_probs(WEIGHTS, normalizer, top_k=5)
    likely = expected > 5
    assert counts[~likely].sum() <= 5
    assert (
        stats.chisquare(counts[likely], expected[likely] * counts[likely].sum() / expected[likely].sum()).pvalue > 1e-3
    )
