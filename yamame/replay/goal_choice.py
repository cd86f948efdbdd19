"""Ways to choose among goals by their rarity: chances from weights (appendix B, constants as in the authors' code)."""

from enum import Enum, auto
from itertools import accumulate

import numpy as np
from jaxtyping import Float

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


def sample_goal(weights: Float[np.ndarray, "n"], normalizer: Normalizer, rng: np.random.Generator, *, top_k: int) -> int:
    """Index drawn from `chances`."""
    cumulated = np.cumsum(goal_probs(weights, normalizer, top_k=top_k))
    return min(int(np.searchsorted(cumulated, rng.random(), side="right")), len(weights) - 1)
