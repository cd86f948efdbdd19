"""Samplers of Crafter's instructions: random, along the tech tree, or fixed."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import numpy as np
from typing_extensions import override

from yamame.envs.crafter.goals import COORDINATES, Goal, achievement_goal, place_goal, stand_near_goal, travel_goal

CATEGORIES = {"collect": 0.30, "defeat": 0.10, "eat": 0.10, "make": 0.15, "place": 0.15, "travel": 0.20}
"""Probability of each kind of sub-goal. Source of all weights: the authors' code."""
CHOICES: Mapping[str, Mapping[str, float]] = {
    "collect": {"sapling": 0.2, "wood": 0.2, "stone": 0.18, "drink": 0.17, "coal": 0.1, "iron": 0.1, "diamond": 0.05},
    "defeat": {"zombie": 0.6, "skeleton": 0.4},
    "eat": {"cow": 0.7, "plant": 0.3},
    "place": {"table": 0.4, "stone": 0.3, "plant": 0.2, "furnace": 0.1},
}
"""Probability of each object, by kind."""
MATERIALS = {"wood": 0.6, "stone": 0.3, "iron": 0.1}
"""Probability of the material of a tool; pickaxe and sword are equally likely."""
NEAR_PROB = {"iron": 0.10, "diamond": 0.05}
"""Probability that a travel goal of expanded worlds leads to a rare material. Our own: no public source."""
PLACED_PROB = 0.5
"""Probability that a stone to place in expanded worlds has a position. Our own: no public source."""
MAX_DISTANCE = 44
"""Maximum distance of travel targets, in cells."""

# fmt: off
TECH_TREE = (
    "collect_wood", "place_table", "make_wood_pickaxe", "collect_coal", "make_wood_sword", "collect_stone",
    "make_stone_pickaxe", "make_stone_sword", "collect_iron", "place_furnace", "make_iron_pickaxe", "make_iron_sword",
    "collect_diamond",
)
# fmt: on
"""Achievements in the order of the tech tree. Source: the authors' code."""
TECH_TREE_PROB = 1 / 3
"""Probability of an instruction along the tech tree. Source: the authors' code; the paper says half."""


class InstructionSampler(ABC):
    """Samples the instructions of one environment."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> tuple[Goal, ...]:
        """Return the sub-goals of the next episode, in order."""

    def update(self, achieved: Iterable[Goal]) -> None:  # noqa: B027
        """Record the goals that a step achieved, called after every step; by default nothing."""


class FixedInstructionSampler(InstructionSampler):
    """Always the same instruction."""

    def __init__(self, instruction: tuple[Goal, ...]) -> None:
        self.instruction = instruction

    @override
    def sample(self, rng: np.random.Generator) -> tuple[Goal, ...]:
        return self.instruction


class RandomInstructionSampler(InstructionSampler):
    """1 to `max_goals` sub-goals, sampled independently with the weights of this file.

    Waking up is never sampled, nor travel to (0, 0), which is farther than 44 cells: agents learn them by relabeling
    only (paper, appendix C.5.2). With `expanded`, some stones have a position and some travel goals a rare material.
    """

    def __init__(self, max_goals: int, *, expanded: bool) -> None:
        self.max_goals = max_goals
        self.expanded = expanded

    @override
    def sample(self, rng: np.random.Generator) -> tuple[Goal, ...]:
        return tuple(self._sample_goal(rng) for _ in range(rng.integers(1, self.max_goals + 1)))

    def _sample_goal(self, rng: np.random.Generator) -> Goal:
        category = _choice(rng, CATEGORIES)
        if category == "travel":
            return self._sample_travel(rng)
        if category == "make":
            return achievement_goal(f"make_{_choice(rng, MATERIALS)}_{_choice(rng, {'pickaxe': 0.5, 'sword': 0.5})}")
        target = _choice(rng, CHOICES[category])
        if self.expanded and (category, target) == ("place", "stone") and rng.random() < PLACED_PROB:
            return place_goal(*sample_travel_target(rng))
        return achievement_goal(f"{category}_{target}")

    def _sample_travel(self, rng: np.random.Generator) -> Goal:
        if self.expanded and rng.random() < sum(NEAR_PROB.values()):
            return stand_near_goal(_choice(rng, NEAR_PROB))
        return travel_goal(*sample_travel_target(rng))


class TechTreeInstructionSampler(InstructionSampler):
    """A third of the instructions follow the tech tree up to the progress of the environment; the others are random.

    Such an instruction is a random ordered subset of the first `limit` achievements of `TECH_TREE`, of a size uniform
    from 1 to `min(max_goals, limit)`. The limit is the index of the most advanced achievement that this environment has
    ever achieved (at least 1), and excludes the last one.

    With `expanded`, standing next to iron or diamond precedes collecting it, and does not raise the limit: our own.
    """

    def __init__(self, max_goals: int, *, expanded: bool) -> None:
        self.random = RandomInstructionSampler(max_goals, expanded=expanded)
        rare = {"collect_iron": "iron", "collect_diamond": "diamond"} if expanded else {}
        self.progression: list[Goal] = []
        """Tech tree as goals."""
        self._index: dict[Goal, int] = {}
        for name in TECH_TREE:
            if name in rare:
                self.progression.append(stand_near_goal(rare[name]))
            self.progression.append(achievement_goal(name))
            self._index[achievement_goal(name)] = len(self.progression)
        self.limit = 1
        """Number of goals of the progression that can be sampled."""

    @override
    def sample(self, rng: np.random.Generator) -> tuple[Goal, ...]:
        if rng.random() >= TECH_TREE_PROB:
            return self.random.sample(rng)
        count = rng.integers(1, min(self.random.max_goals, self.limit) + 1)
        chosen = np.sort(rng.choice(self.limit, size=count, replace=False))
        return tuple(self.progression[index] for index in chosen)

    @override
    def update(self, achieved: Iterable[Goal]) -> None:
        for goal in achieved:
            self.limit = max(self.limit, min(self._index.get(goal, 0), len(self.progression) - 1))


def sample_travel_target(rng: np.random.Generator) -> tuple[int, int]:
    """Return a random travel target, close ones with higher probability. Source: the authors' code.

    A distance d from the start, (32, 32), is sampled from 1 to 44 with a probability proportional to 45 - d. The
    farthest of the targets within that distance is returned, after adding up to one cell to each distance at random;
    the nearest target if none is within it (d < 3).
    """
    lengths = np.arange(1, MAX_DISTANCE + 1)
    weights = MAX_DISTANCE + 1.0 - lengths
    max_distance = max(float(rng.choice(lengths, p=weights / weights.sum())), _DISTANCES.min())
    jittered = np.where(max_distance >= _DISTANCES, _DISTANCES + rng.random(len(_DISTANCES)), -1.0)
    x, y = _POSITIONS[int(jittered.argmax())].tolist()
    return x, y


_POSITIONS = np.array([(x, y) for x in COORDINATES for y in COORDINATES])
_DISTANCES = np.sqrt(((_POSITIONS - 32) ** 2).sum(axis=1))


def _choice(rng: np.random.Generator, weights: Mapping[str, float]) -> str:
    probs = np.array(list(weights.values()))
    return list(weights)[int(rng.choice(len(probs), p=probs / probs.sum()))]
