"""`GoalStatistics`: goal frequencies in sampled trajectories, for importance sampling of goals."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from jaxtyping import Float64, Int64, Shaped

PER_STEP, PER_TRAJECTORY = 0, 1
"""The two statistics: count every occurrence, or one per trajectory."""

_FIRST_COUNT, _COUNT_INCREMENT = 1e-7, 1e-3
"""Count after the first occurrence of a goal, and increment for each further one."""
_UNSEEN_COUNT = 1e-3
_RESCALE_INTERVAL, _MAX_COUNT, _MAX_MIN_COUNT, _RESCALE_FACTOR = 1000, 100.0, 1.0, 10.0
_POWER, _MIN_WEIGHT, _MAX_WEIGHT = 4, 1e-3, 1e5


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
        frequency = counts[self._columns(_keys(goals))] / max(counts[:-1].sum(), _UNSEEN_COUNT)
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

    def _columns(self, keys: list[bytes]) -> Int64[np.ndarray, "M"]:
        unseen = len(self.index)
        return np.array([self.index.get(key, unseen) for key in keys], np.int64)


_COUNTERS = ("num_updates", "num_sampled", "num_relabeled", "num_inserted")


def _keys(goals: Shaped[np.ndarray, "M goal"]) -> list[bytes]:
    contiguous = np.ascontiguousarray(goals)
    if not contiguous.size:
        return []
    rows = contiguous.view(np.dtype((np.void, contiguous.itemsize * contiguous.shape[1])))
    return cast(list[bytes], rows.ravel().tolist())


def _rescale(counts: Float64[np.ndarray, "goals"]) -> Float64[np.ndarray, "goals"]:
    too_large = counts.max(initial=0.0) > _MAX_COUNT or counts.min(initial=np.inf) > _MAX_MIN_COUNT
    return counts / _RESCALE_FACTOR if too_large else counts
