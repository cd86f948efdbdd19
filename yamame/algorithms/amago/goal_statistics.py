"""`GoalStatistics`: how often each goal was achieved in what was sampled, and so how rare it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from jaxtyping import Float64, Int64, Shaped

PER_STEP, PER_TRAJECTORY = 0, 1
"""The two statistics: every occurrence counts, or one a trajectory."""

_FIRST, _LATER = 1e-7, 1e-3
"""What a goal's first sighting sets its count to, and what each later one adds."""
_UNSEEN = 1e-3
_SHRINK_EVERY, _MAX_COUNT, _MAX_MIN_COUNT, _SHRINK_BY = 1000, 100.0, 1.0, 10.0
_POWER, _LEAST_WEIGHT, _MAX_WEIGHT = 4, 1e-3, 1e5


@dataclass(frozen=True, kw_only=True)
class GoalStatistics:
    """Counts of goals and of what relabeling did; a new record after every change, so that a reference is a snapshot.

    Source: appendix B of the paper, constants as in the authors' code (SPEC section 5). Differs from that code, where
    every loading process counts for itself and forgets at each epoch: here there is one record, and it is part of a
    checkpoint.
    """

    index: Mapping[bytes, int] = field(default_factory=dict)
    """A goal's bytes -> its column in `counts`, in the order of first sightings."""
    counts: Float64[np.ndarray, "2 goals"] = field(default_factory=lambda: np.zeros((2, 0)))
    """`PER_STEP` and `PER_TRAJECTORY`."""
    num_updates: int = 0
    """Trajectories counted since the counts were last looked at for their size."""
    num_sampled: int = 0
    """Trajectories with an instruction that was not completed, ever drawn."""
    num_relabeled: int = 0
    """Those that were given another instruction."""
    num_inserted: int = 0
    """Goals inserted into them, in all."""

    def weights(self, goals: Shaped[np.ndarray, "M goal"], statistic: int) -> Float64[np.ndarray, "M"]:
        """How rare goals are: `(-log10(count / sum of counts))^4`, between 1e-3 and 1e5."""
        counts = np.append(self.counts[statistic], _UNSEEN)
        share = counts[self._columns(_keys(goals))] / max(counts[:-1].sum(), _UNSEEN)
        return np.clip(np.log10(share) ** _POWER, _LEAST_WEIGHT, _MAX_WEIGHT)

    def updated(self, goals: Shaped[np.ndarray, "M goal"]) -> "GoalStatistics":
        """After one more trajectory, which achieved these."""
        keys = _keys(goals)
        new = [key for key in dict.fromkeys(keys) if key not in self.index]
        index = {**self.index, **{key: len(self.index) + i for i, key in enumerate(new)}} if new else self.index
        columns = np.array([index[key] for key in keys], np.int64)
        occurrences = np.bincount(columns, minlength=len(index)).astype(np.float64)
        seen = np.stack([occurrences, occurrences > 0])
        counts = np.zeros((2, len(index)))
        counts[:, : len(self.index)] = self.counts
        counts += _LATER * seen
        counts[:, len(self.index) :] += _FIRST - _LATER
        updates = self.num_updates + 1
        if updates > _SHRINK_EVERY:
            updates, counts = 0, np.stack([_shrunk(each) for each in counts])
        return replace(self, index=index, counts=counts, num_updates=updates)

    def metrics(self) -> dict[str, float]:
        """Numbers worth logging; empty before the first trajectory with an instruction."""
        if not self.num_sampled:
            return {}
        share = self.counts[PER_STEP] / max(self.counts[PER_STEP].sum(), _UNSEEN)
        known = {
            "relabel/num_unique_goals": float(len(self.index)),
            "relabel/most_common_goal_fraction": float(share.max(initial=0.0)),
            "relabel/rarest_goal_fraction": float(share.min(initial=1.0)),
        }
        return {
            "relabel/relabeled_fraction": self.num_relabeled / self.num_sampled,
            "relabel/inserted_goals_mean": self.num_inserted / self.num_sampled,
            **(known if self.index else {}),
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {
            "goals": [key.hex() for key in self.index],
            "counts": self.counts.tolist(),
            **{name: getattr(self, name) for name in _COUNTERS},
        }

    @staticmethod
    def from_json(described: Mapping[str, Any]) -> "GoalStatistics":
        """What `to_json` described."""
        return GoalStatistics(
            index={bytes.fromhex(key): column for column, key in enumerate(described["goals"])},
            counts=np.array(described["counts"], np.float64).reshape(2, -1),
            **{name: described[name] for name in _COUNTERS},
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


def _shrunk(counts: Float64[np.ndarray, "goals"]) -> Float64[np.ndarray, "goals"]:
    too_large = counts.max(initial=0.0) > _MAX_COUNT or counts.min(initial=np.inf) > _MAX_MIN_COUNT
    return counts / _SHRINK_BY if too_large else counts
