"""Hindsight instruction relabeling: trajectories are told again as if what happened by accident had been asked for."""

from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import accumulate
from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, Int, Shaped

from yamame.algorithms.amago.goal_statistics import PER_STEP, PER_TRAJECTORY, GoalStatistics
from yamame.data.goals import INSTRUCTION_KEY, Goals, instruction_observations
from yamame.data.trajectory import Trajectory
from yamame.errors import check_range

_MIN_WEIGHT = 1e-5


class Normalizer(Enum):
    """How weights become chances. Every use draws one of them."""

    UNIFORM = auto()
    """All alike."""
    MIN = auto()
    """What exceeds the smallest."""
    MEDIAN = auto()
    """What exceeds the median."""
    TOP_K = auto()
    """The k largest by weight, others hardly ever; of fewer than k only the largest."""


NORMALIZER_PROBS = {
    Normalizer.UNIFORM: 0.2,
    Normalizer.MIN: 0.1,
    Normalizer.MEDIAN: 0.1,
    Normalizer.TOP_K: 0.6,
}
_UP_TO = tuple(zip(accumulate(NORMALIZER_PROBS.values()), NORMALIZER_PROBS, strict=True))


def sample_normalizer(rng: np.random.Generator) -> Normalizer:
    """One of them, by `NORMALIZER_PROBS`."""
    number = rng.random()
    return next((normalizer for up_to, normalizer in _UP_TO if number < up_to), Normalizer.TOP_K)


def goal_probs(weights: Float[np.ndarray, "n"], normalizer: Normalizer, *, top_k: int) -> Float[np.ndarray, "n"]:
    """A distribution over weights that are all positive."""
    match normalizer:
        case Normalizer.UNIFORM:
            kept = np.ones(len(weights))
        case Normalizer.MIN:
            kept = weights - weights.min() + _MIN_WEIGHT
        case Normalizer.MEDIAN:
            kept = np.maximum(weights - np.median(weights), _MIN_WEIGHT)
        case Normalizer.TOP_K:
            least_kept = np.partition(weights, -top_k)[-top_k] if len(weights) >= top_k else weights.max()
            kept = np.where(weights >= least_kept, weights, _MIN_WEIGHT)
    return kept / kept.sum()


def mean_goal_probs(weights: Float[np.ndarray, "n"], *, top_k: int) -> Float[np.ndarray, "n"]:
    """`chances` on average over how often each normaliser is drawn."""
    parts = [chance * goal_probs(weights, normalizer, top_k=top_k) for normalizer, chance in NORMALIZER_PROBS.items()]
    return np.sum(parts, axis=0)


def sample_goal(
    weights: Float[np.ndarray, "n"], normalizer: Normalizer, rng: np.random.Generator, *, top_k: int
) -> int:
    """Index drawn from `chances`."""
    cumulated = np.cumsum(goal_probs(weights, normalizer, top_k=top_k))
    return min(int(np.searchsorted(cumulated, rng.random(), side="right")), len(weights) - 1)


RelabelMode = Literal["some", "all", "all-or-nothing", "none"]


@dataclass(frozen=True, kw_only=True)
class RelabelConfig:
    """How many goals are inserted into the instructions of trajectories that did not complete theirs, and which."""

    mode: RelabelMode = "some"
    """Of the sub-goals that were missed, a uniform number from none to all is replaced (some), or all of them, or all
    of them with the chance `all_prob` and else none (all-or-nothing), or none."""
    all_prob: float = 0.8
    """Chance of relabeling in mode all-or-nothing."""
    importance_sampling: bool = True
    """Prefer goals that are rarely achieved; off: all that were achieved are alike."""
    stats_update_prob: float = 0.1
    """Chance that a trajectory that is drawn is counted for the rarity of goals."""
    top_k: int = 5
    """Candidates among which the most frequent way of choosing chooses."""

    def __post_init__(self) -> None:
        check_range(self, "all_prob", "stats_update_prob", ge=0, le=1)
        check_range(self, "top_k", ge=1)


class Relabeler:
    """Algorithm 1 of the paper's appendix B, at load time: each time a trajectory is drawn it is told anew.

    k is the length of the instruction, of which n sub-goals were completed; h goals that were achieved, at transitions
    that completed nothing, are inserted among these n in the order of time. They take slots 1 .. n + h; the slots
    behind keep the sub-goals that they had. Then the trajectory is accounted for again: rewards, what the agent was
    shown, and its end where the new instruction is completed.

    A trajectory of several attempts has no single instruction and stays as it is, as one that completed its own does.
    Differs from the authors' code, which ends a relabeled trajectory one step behind its last success: here as live.
    """

    def __init__(self, config: RelabelConfig) -> None:
        self.config = config

    def __call__(
        self, trajectory: Trajectory, statistics: GoalStatistics, rng: np.random.Generator
    ) -> tuple[Trajectory, GoalStatistics]:
        """The trajectory, told anew or itself, and the statistics after it."""
        goals, completed = trajectory.goals, _completed(trajectory)
        if self.config.mode == "none" or goals is None or completed is None:
            return trajectory, statistics
        statistics = self._counted(goals, statistics, rng)
        candidates = _achieved_at_other_steps(goals, completed)
        inserted = min(self._wanted(len(goals.instruction) - len(completed), rng), len(set(candidates[0])))
        statistics = replace(
            statistics,
            num_sampled=statistics.num_sampled + 1,
            num_relabeled=statistics.num_relabeled + (inserted > 0),
            num_inserted=statistics.num_inserted + inserted,
        )
        if not inserted:
            return trajectory, statistics
        chosen = self._choose(*candidates, inserted, statistics, rng)
        return relabel_trajectory(trajectory, _merged(goals, completed, chosen)), statistics

    def candidates(self, trajectory: Trajectory) -> tuple[Int[np.ndarray, "M"], Shaped[np.ndarray, "M goal"]] | None:
        """Transitions at which goals were achieved that could be inserted, and these goals; None: it stays as it is."""
        goals, completed = trajectory.goals, _completed(trajectory)
        return None if goals is None or completed is None else _achieved_at_other_steps(goals, completed)

    def first_choice_prob(
        self, step_M: Int[np.ndarray, "M"], goal_M: Shaped[np.ndarray, "M goal"], statistics: GoalStatistics
    ) -> Float[np.ndarray, "M"]:
        """Chance of each of the `candidates` of a trajectory to be the first that is chosen."""
        if not self.config.importance_sampling:
            return self._first_choice_prob(step_M, np.ones(len(step_M)))
        by_statistic = [statistics.weights(goal_M, statistic) for statistic in (PER_STEP, PER_TRAJECTORY)]
        return np.mean([self._first_choice_prob(step_M, weight_M) for weight_M in by_statistic], axis=0)

    def _first_choice_prob(
        self, step_M: Int[np.ndarray, "M"], weight_M: Float[np.ndarray, "M"]
    ) -> Float[np.ndarray, "M"]:
        chance_M = np.ones(len(step_M))
        steps, begins, step_of_M = np.unique(step_M, return_index=True, return_inverse=True)
        chance_M *= self._probs(np.add.reduceat(weight_M, begins))[step_of_M]
        for number in range(len(steps)):
            here = step_of_M == number
            chance_M[here] *= self._probs(weight_M[here])
        return chance_M

    def _probs(self, weights: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
        """Of what `_draw` gives."""
        if len(weights) == 1 or not self.config.importance_sampling:
            return np.full(len(weights), 1.0 / len(weights))
        return mean_goal_probs(weights, top_k=self.config.top_k)

    def _counted(self, goals: Goals, statistics: GoalStatistics, rng: np.random.Generator) -> GoalStatistics:
        if not self.config.importance_sampling or not len(goals.achieved_goal):
            return statistics
        if statistics.index and rng.random() >= self.config.stats_update_prob:
            return statistics
        return statistics.updated(goals.achieved_goal)

    def _wanted(self, missed: int, rng: np.random.Generator) -> int:
        """h, before it is known how many candidates there are."""
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
        """`count` transitions without replacement, and one of the goals achieved at each."""
        weight_M = np.ones(len(step_M))
        if self.config.importance_sampling:
            weight_M = statistics.weights(goal_M, statistic=int(rng.random() * 2))
        steps, begins = np.unique(step_M, return_index=True)
        ends = np.append(begins[1:], len(step_M))
        weight_of_step = np.add.reduceat(weight_M, begins)
        left = np.arange(len(steps))
        chosen = []
        for _ in range(count):
            place = self._sample(weight_of_step[left], rng)
            here = left[place]
            left = np.delete(left, place)
            goal = begins[here] + self._sample(weight_M[begins[here] : ends[here]], rng)
            chosen.append((int(steps[here]), goal_M[goal]))
        return chosen

    def _sample(self, weights: Float[np.ndarray, "n"], rng: np.random.Generator) -> int:
        if len(weights) == 1:
            return 0
        if not self.config.importance_sampling:
            return int(rng.random() * len(weights))
        return sample_goal(weights, sample_normalizer(rng), rng, top_k=self.config.top_k)


def relabel_trajectory(trajectory: Trajectory, goals: Goals) -> Trajectory:
    """The trajectory as it would have been stored, had its instruction been that of `goals`.

    Actions and observations other than the instruction are those of the original, which is not changed; where the
    instruction is completed the trajectory ends, successfully. It shares memory with the original.
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
    kept = int(np.searchsorted(goals.achieved_step, length))
    return replace(
        trajectory,
        reward=reward,
        action=trajectory.action[:length],
        terminated=trajectory.terminated[:length] | success,
        truncated=trajectory.truncated[:length],
        episode_start=trajectory.episode_start[: length + 1],
        observation=observation,
        success=success,
        goals=replace(goals, achieved_step=goals.achieved_step[:kept], achieved_goal=goals.achieved_goal[:kept]),
    )


def _completed(trajectory: Trajectory) -> list[int] | None:
    """The transitions that completed a sub-goal; None where nothing is to be told anew."""
    goals = trajectory.goals
    if goals is None or trajectory.episode_start[1:-1].any():
        return None
    completed = goals.completion_steps()
    return None if len(completed) == len(goals.instruction) else completed


def _achieved_at_other_steps(
    goals: Goals, completed: list[int]
) -> tuple[Int[np.ndarray, "M"], Shaped[np.ndarray, "M goal"]]:
    """What was achieved at transitions that completed nothing."""
    other = ~np.isin(goals.achieved_step, completed)
    return goals.achieved_step[other], goals.achieved_goal[other]


def _merged(goals: Goals, completed: list[int], chosen: list[tuple[int, Float32[np.ndarray, "goal"]]]) -> Goals:
    """Completed and chosen goals in the order of time; the slots that are left keep what they had."""
    own = list(zip(completed, goals.instruction, strict=False))
    in_time = sorted([*own, *chosen], key=lambda each: each[0])
    instruction = goals.instruction.copy()
    instruction[: len(in_time)] = [goal for _, goal in in_time]
    return replace(goals, instruction=instruction)
