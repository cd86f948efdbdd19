"""What an agent saw at a moment, in a few words."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Shaped

from yamame.records.action_spaces import ACTION_MASK_KEY
from yamame.records.goals import INSTRUCTION_LEAF
from yamame.records.spaces import DEFAULT_KEY

FEW = 12
"""Numbers of a leaf that are written out; of larger ones the shape and the range are."""


def describe_observation(observation: Mapping[str, Shaped[np.ndarray, "..."]]) -> str:
    """One observation, leaf by leaf; instructions and masks are told elsewhere."""
    shown = {name: leaf for name, leaf in observation.items() if name not in (INSTRUCTION_LEAF, ACTION_MASK_KEY)}
    return "   ".join(_leaf(leaf) if name == DEFAULT_KEY else f"{name} {_leaf(leaf)}" for name, leaf in shown.items())


def _leaf(leaf: Shaped[np.ndarray, "..."]) -> str:
    if leaf.ndim == 0:
        return f"{leaf.item():.3g}"
    if leaf.size <= FEW:
        return "[" + ", ".join(f"{number:.3g}" for number in leaf.flatten().tolist()) + "]"
    shape = " × ".join(map(str, leaf.shape))
    return f"{shape} numbers from {float(leaf.min()):.3g} to {float(leaf.max()):.3g}"
