"""Hindsight instruction relabeling: trajectories get instructions made of goals that they achieved."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import accumulate
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, Shaped

from yamame.data.goals import INSTRUCTION_KEY, Goals, instruction_observations
from yamame.data.trajectory import Trajectory
from yamame.errors import check_range

PER_STEP, PER_TRAJECTORY = 0, 1
"""The two statistics: count every occurrence, or one per trajectory."""

_FIRST_COUNT, _COUNT_INCREMENT = 1e-7, 1e-3
"""Count after the first occurrence of a goal, and increment for each further one."""
_UNSEEN_COUNT = 1e-3
_RESCALE_INTERVAL, _MAX_COUNT, _MAX_MIN_COUNT, _RESCALE_FACTOR = 1000, 100.0, 1.0, 10.0
_MAX_GOALS = 20_000
"""Goals beyond which the older half is forgotten: positions of floats are hardly ever the same twice."""
_POWER, _MIN_WEIGHT, _MAX_WEIGHT = 4, 1e-3, 1e5
_COUNTERS = ("num_updates", "num_sampled", "num_relabeled", "num_inserted")


@dataclass(frozen=True, kw_only=True)
class GoalStatistics:
    """Immutable counts of goals and of relabeled trajectories; an update makes a new record.

    Paper: appendix B, with the constants of the authors' code. Differs from the paper: in the authors' code every data
    loader counts on its own and resets at each epoch; here there is one record, saved in checkpoints.
    """

    index: Mapping[bytes, int] = field(default_factory=dict)
    """Bytes of a goal -> its column in `counts`, in the order of first occurrence."""
    counts: Float64[np.ndarray, "2 goals"] = field(default_factory=lambda: np.zeros((2, 0)))
    """Rows `PER_STEP` and `PER_TRAJECTORY`."""
    num_updates: int = 0
    """Trajectories counted since the last check whether to rescale the counts."""
    num_sampled: int = 0
    """Sampled trajectories with an uncompleted instruction, in total."""
    num_relabeled: int = 0
    """Those that were relabeled."""
    num_inserted: int = 0
    """Goals inserted into them, in total."""

    def weights(self, goals: Shaped[np.ndarray, "M goal"], statistic: int) -> Float64[np.ndarray, "M"]:
        """Sampling weights, larger for rare goals: `(-log10(count / sum of counts))^4`, clipped to [1e-3, 1e5]."""
        counts = np.append(self.counts[statistic], _UNSEEN_COUNT)
        columns = np.array([self.index.get(key, -1) for key in _keys(goals)], np.int64)
        frequency = counts[columns] / max(counts[:-1].sum(), _UNSEEN_COUNT)
        return np.clip(np.log10(frequency) ** _POWER, _MIN_WEIGHT, _MAX_WEIGHT)

    def updated(self, goals: Shaped[np.ndarray, "M goal"]) -> "GoalStatistics":
        """Return the statistics after one more trajectory, which achieved `goals`."""
        keys = _keys(goals)
        new = [key for key in dict.fromkeys(keys) if key not in self.index]
        index = {**self.index, **{key: len(self.index) + i for i, key in enumerate(new)}} if new else self.index
        columns = np.array([index[key] for key in keys], np.int64)
        occurrences = np.bincount(columns, minlength=len(index)).astype(np.float64)
        seen = np.stack([occurrences, occurrences > 0])
        counts = np.zeros((2, len(index)))
        counts[:, : len(self.index)] = self.counts
        counts += _COUNT_INCREMENT * seen
        counts[:, len(self.index) :] += _FIRST_COUNT - _COUNT_INCREMENT
        updates = self.num_updates + 1
        if updates > _RESCALE_INTERVAL:
            updates, counts = 0, np.stack([_rescale(each) for each in counts])
        if len(index) > _MAX_GOALS:
            counts = counts[:, -_MAX_GOALS // 2 :]
            index = {key: column for column, key in enumerate(list(index)[-_MAX_GOALS // 2 :])}
        return replace(self, index=index, counts=counts, num_updates=updates)

    def metrics(self) -> dict[str, float]:
        """Metrics by `relabel/...` key; empty before the first trajectory with an instruction."""
        if not self.num_sampled:
            return {}
        frequency = self.counts[PER_STEP] / max(self.counts[PER_STEP].sum(), _UNSEEN_COUNT)
        frequencies = {
            "relabel/num_unique_goals": float(len(self.index)),
            "relabel/most_common_goal_fraction": float(frequency.max(initial=0.0)),
            "relabel/rarest_goal_fraction": float(frequency.min(initial=1.0)),
        }
        return {
            "relabel/relabeled_fraction": self.num_relabeled / self.num_sampled,
            "relabel/inserted_goals_mean": self.num_inserted / self.num_sampled,
            **(frequencies if self.index else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return {
            "goals": [key.hex() for key in self.index],
            "counts": self.counts.tolist(),
            **{name: getattr(self, name) for name in _COUNTERS},
        }

    @staticmethod
    def from_json(json_values: Mapping[str, Any]) -> "GoalStatistics":
        """Make the statistics that `to_json` converted."""
        return GoalStatistics(
            index={bytes.fromhex(key): column for column, key in enumerate(json_values["goals"])},
            counts=np.array(json_values["counts"], np.float64).reshape(2, -1),
            **{name: json_values[name] for name in _COUNTERS},
        )


def _keys(goals: Shaped[np.ndarray, "M goal"]) -> list[bytes]:
    contiguous = np.ascontiguousarray(goals)
    if not contiguous.size:
        return []
    rows = contiguous.view(np.dtype((np.void, contiguous.itemsize * contiguous.shape[1])))
    return cast(list[bytes], rows.ravel().tolist())


def _rescale(counts: Float64[np.ndarray, "goals"]) -> Float64[np.ndarray, "goals"]:
    too_large = counts.max(initial=0.0) > _MAX_COUNT or counts.min(initial=np.inf) > _MAX_MIN_COUNT
    return counts / _RESCALE_FACTOR if too_large else counts


class Normalizer(Enum):
    """How weights become probabilities; sampled again for every choice."""

    UNIFORM = auto()
    """All equal."""
    MIN = auto()
    """Proportional to the excess over the minimum."""
    MEDIAN = auto()
    """Proportional to the excess over the median."""
    TOP_K = auto()
    """Proportional among the k largest, near zero for others; with fewer than k only the largest."""


_MIN_EXCESS = 1e-5
NORMALIZER_PROBS = {
    Normalizer.UNIFORM: 0.2,
    Normalizer.MIN: 0.1,
    Normalizer.MEDIAN: 0.1,
    Normalizer.TOP_K: 0.6,
}
_CUMULATIVE_PROBS = tuple(zip(accumulate(NORMALIZER_PROBS.values()), NORMALIZER_PROBS, strict=True))


def sample_normalizer(rng: np.random.Generator) -> Normalizer:
    """Sample by `NORMALIZER_PROBS`."""
    uniform = rng.random()
    return next((normalizer for limit, normalizer in _CUMULATIVE_PROBS if uniform < limit), Normalizer.TOP_K)


def goal_probs(weights: Float[np.ndarray, "n"], normalizer: Normalizer, *, top_k: int) -> Float[np.ndarray, "n"]:
    """Normalize positive weights to a distribution."""
    match normalizer:
        case Normalizer.UNIFORM:
            kept = np.ones(len(weights))
        case Normalizer.MIN:
            kept = weights - weights.min() + _MIN_EXCESS
        case Normalizer.MEDIAN:
            kept = np.maximum(weights - np.median(weights), _MIN_EXCESS)
        case Normalizer.TOP_K:
            threshold = np.partition(weights, -top_k)[-top_k] if len(weights) >= top_k else weights.max()
            kept = np.where(weights >= threshold, weights, _MIN_EXCESS)
    return kept / kept.sum()


def sample_goal(
    weights: Float[np.ndarray, "n"], normalizer: Normalizer, rng: np.random.Generator, *, top_k: int
) -> int:
    """Sample an index by `goal_probs`."""
    cumulative = np.cumsum(goal_probs(weights, normalizer, top_k=top_k))
    return min(int(np.searchsorted(cumulative, rng.random(), side="right")), len(weights) - 1)


RelabelMode = Literal["some", "all", "all-or-nothing", "none"]


@dataclass(frozen=True, kw_only=True)
class RelabelConfig:
    """Which trajectories are relabeled, and with which of the goals that they achieved."""

    mode: RelabelMode = "some"
    """How many of the missed sub-goals are replaced: a uniform number from none to all (some), all of them, all of them
    with probability `all_prob` and else none (all-or-nothing), or none."""
    all_prob: float = 0.8
    """Probability of relabeling in mode all-or-nothing."""
    importance_sampling: bool = True
    """Prefer goals that are rarely achieved; off: sample achieved goals uniformly."""
    stats_update_prob: float = 0.1
    """Probability that a sampled trajectory updates the goal frequencies."""
    top_k: int = 5
    """Number of candidates of the most frequent normalizer."""

    def __post_init__(self) -> None:
        check_range(self, "all_prob", "stats_update_prob", ge=0, le=1)
        check_range(self, "top_k", ge=1)


class Relabeler:
    """Algorithm 1 of the paper's appendix B, applied whenever a trajectory is sampled.

    The instruction has k sub-goals, of which n were completed. h achieved goals, of transitions that completed nothing,
    are inserted between these n in the order of time. They become sub-goals 1 .. n + h; the sub-goals after them stay.
    Rewards, observed instruction and end of the trajectory follow from the new instruction.

    A trajectory that completed its instruction stays unchanged, as does one of several attempts, which has no single
    instruction. Runs whose tasks may be repeated relabel nothing. Differs from the paper: the authors' code ends a
    relabeled trajectory one step after its last success; here it ends as a live trial does.
    """

    def __init__(self, config: RelabelConfig) -> None:
        self.config = config

    def __call__(
        self, trajectory: Trajectory, statistics: GoalStatistics, rng: np.random.Generator
    ) -> tuple[Trajectory, GoalStatistics]:
        """Return the trajectory, relabeled or unchanged, and the updated statistics."""
        goals, completed = trajectory.goals, _completed_if_eligible(trajectory)
        if self.config.mode == "none" or goals is None or completed is None:
            return trajectory, statistics
        if (
            self.config.importance_sampling
            and len(goals.achieved_goal)
            and (not statistics.index or rng.random() < self.config.stats_update_prob)
        ):
            statistics = statistics.updated(goals.achieved_goal)
        candidates = _achieved_at_other_steps(goals, completed)
        count = min(self._sample_count(len(goals.instruction) - len(completed), rng), len(set(candidates[0])))
        statistics = replace(
            statistics,
            num_sampled=statistics.num_sampled + 1,
            num_relabeled=statistics.num_relabeled + (count > 0),
            num_inserted=statistics.num_inserted + count,
        )
        if not count:
            return trajectory, statistics
        chosen = self._choose(*candidates, count, statistics, rng)
        return relabel_trajectory(trajectory, _insert(goals, completed, chosen)), statistics

    def candidates(self, trajectory: Trajectory) -> tuple[Int[np.ndarray, "M"], Shaped[np.ndarray, "M goal"]] | None:
        """Transitions and achieved goals that could be inserted; None if the trajectory is never relabeled."""
        goals, completed = trajectory.goals, _completed_if_eligible(trajectory)
        return None if goals is None or completed is None else _achieved_at_other_steps(goals, completed)

    def first_choice_prob(
        self, step_M: Int[np.ndarray, "M"], goal_M: Shaped[np.ndarray, "M goal"], statistics: GoalStatistics
    ) -> Float[np.ndarray, "M"]:
        """Probability that each of the `candidates` of a trajectory is chosen first."""
        if not self.config.importance_sampling:
            return self._first_choice_prob(step_M, np.ones(len(step_M)))
        by_statistic = [statistics.weights(goal_M, statistic) for statistic in (PER_STEP, PER_TRAJECTORY)]
        return np.mean([self._first_choice_prob(step_M, weight_M) for weight_M in by_statistic], axis=0)

    def _first_choice_prob(
        self, step_M: Int[np.ndarray, "M"], weight_M: Float[np.ndarray, "M"]
    ) -> Float[np.ndarray, "M"]:
        steps, starts, step_of_M = np.unique(step_M, return_index=True, return_inverse=True)
        prob_M = self._probs(np.add.reduceat(weight_M, starts))[step_of_M]
        for index in range(len(steps)):
            at_step = step_of_M == index
            prob_M[at_step] *= self._probs(weight_M[at_step])
        return prob_M

    def _probs(self, weights: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """Distribution of `_sample`: `goal_probs`, averaged over the normalizers."""
        if len(weights) == 1 or not self.config.importance_sampling:
            return np.full(len(weights), 1.0 / len(weights))
        weighted = [
            prob * goal_probs(weights, normalizer, top_k=self.config.top_k)
            for normalizer, prob in NORMALIZER_PROBS.items()
        ]
        return np.sum(weighted, axis=0)

    def _sample_count(self, missed: int, rng: np.random.Generator) -> int:
        """Sample h, which the number of candidates then limits."""
        match self.config.mode:
            case "some":
                return int(rng.random() * (missed + 1))
            case "all-or-nothing":
                return missed if rng.random() < self.config.all_prob else 0
        return missed

    def _choose(
        self,
        step_M: Int[np.ndarray, "M"],
        goal_M: Shaped[np.ndarray, "M goal"],
        count: int,
        statistics: GoalStatistics,
        rng: np.random.Generator,
    ) -> list[tuple[int, Float32[np.ndarray, "goal"]]]:
        """Sample `count` transitions without replacement, and one of the goals achieved at each."""
        weight_M = np.ones(len(step_M))
        if self.config.importance_sampling:
            weight_M = statistics.weights(goal_M, statistic=int(rng.random() * 2))
        steps, starts = np.unique(step_M, return_index=True)
        ends = np.append(starts[1:], len(step_M))
        weight_of_step = np.add.reduceat(weight_M, starts)
        remaining = np.arange(len(steps))
        chosen = []
        for _ in range(count):
            index = self._sample(weight_of_step[remaining], rng)
            step = remaining[index]
            remaining = np.delete(remaining, index)
            goal = starts[step] + self._sample(weight_M[starts[step] : ends[step]], rng)
            chosen.append((int(steps[step]), goal_M[goal]))
        return chosen

    def _sample(self, weights: Float[np.ndarray, "n"], rng: np.random.Generator) -> int:
        if len(weights) == 1:
            return 0
        if not self.config.importance_sampling:
            return int(rng.random() * len(weights))
        return sample_goal(weights, sample_normalizer(rng), rng, top_k=self.config.top_k)


def relabel_trajectory(trajectory: Trajectory, goals: Goals) -> Trajectory:
    """Return the trajectory as it would have been stored if its instruction had been that of `goals`.

    Actions, extras and observations other than the instruction stay the same; the trajectory ends in success where the
    instruction is completed. It shares memory with the original, which is not modified.
    """
    completed = goals.completion_steps()
    done = len(completed) == len(goals.instruction)
    length = completed[-1] + 1 if done else len(trajectory)
    reward, success = np.zeros(length, np.float32), np.zeros(length, np.bool_)
    reward[completed] = 1.0
    success[-1:] = done
    slots = trajectory.observation[INSTRUCTION_KEY].shape[1]
    shown = instruction_observations(goals.instruction, slots=slots, hide_future_goals=goals.hide_future_goals)
    observation = {name: leaf[: length + 1] for name, leaf in trajectory.observation.items()}
    observation[INSTRUCTION_KEY] = shown[np.searchsorted(completed, np.arange(length + 1))]
    num_achieved = int(np.searchsorted(goals.achieved_step, length))
    return replace(
        trajectory,
        reward=reward,
        action=trajectory.action[:length],
        terminated=trajectory.terminated[:length] | success,
        truncated=trajectory.truncated[:length],
        episode_start=trajectory.episode_start[: length + 1],
        observation=observation,
        success=success,
        goals=replace(
            goals,
            achieved_step=goals.achieved_step[:num_achieved],
            achieved_goal=goals.achieved_goal[:num_achieved],
        ),
        extras={name: array[:length] for name, array in trajectory.extras.items()},
    )


def _completed_if_eligible(trajectory: Trajectory) -> list[int] | None:
    """Transitions that completed a sub-goal; None if the trajectory is never relabeled."""
    goals = trajectory.goals
    if goals is None or trajectory.episode_start[1:-1].any():
        return None
    completed = goals.completion_steps()
    return None if len(completed) == len(goals.instruction) else completed


def _achieved_at_other_steps(
    goals: Goals, completed: list[int]
) -> tuple[Int[np.ndarray, "M"], Shaped[np.ndarray, "M goal"]]:
    """Goals achieved at transitions that completed nothing."""
    other = ~np.isin(goals.achieved_step, completed)
    return goals.achieved_step[other], goals.achieved_goal[other]


def _insert(goals: Goals, completed: list[int], chosen: list[tuple[int, Float32[np.ndarray, "goal"]]]) -> Goals:
    """Put completed and chosen goals in the order of time; the remaining sub-goals stay."""
    own = list(zip(completed, goals.instruction, strict=False))
    in_time = sorted([*own, *chosen], key=lambda step_and_goal: step_and_goal[0])
    instruction = goals.instruction.copy()
    instruction[: len(in_time)] = [goal for _, goal in in_time]
    return replace(goals, instruction=instruction)
