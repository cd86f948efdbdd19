"""Where Crafter's instructions come from: drawn, drawn along the tech tree, or written by a user."""

from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from yamame.envs.crafter.goals import COORDINATES, Goal, achievement_goal, place_goal, stand_near_goal, travel_goal

CATEGORIES = {"collect": 0.30, "defeat": 0.10, "eat": 0.10, "make": 0.15, "place": 0.15, "travel": 0.20}
"""How often a sub-goal is of a kind. Source of all weights: the authors' code."""
CHOICES: Mapping[str, Mapping[str, float]] = {
    "collect": {
        "sapling": 0.20,
        "wood": 0.20,
        "stone": 0.18,
        "drink": 0.17,
        "coal": 0.10,
        "iron": 0.10,
        "diamond": 0.05,
    },
    "defeat": {"zombie": 0.6, "skeleton": 0.4},
    "eat": {"cow": 0.7, "plant": 0.3},
    "place": {"table": 0.4, "stone": 0.3, "plant": 0.2, "furnace": 0.1},
}
"""What it is then about."""
MATERIALS = {"wood": 0.6, "stone": 0.3, "iron": 0.1}
"""What a tool is to be made of; a pickaxe or a sword, equally often."""
NEAR_PROB = {"iron": 0.10, "diamond": 0.05}
"""Of the journeys in expanded worlds, those to something rare. No public source: ours."""
PLACED_PROB = 0.5
"""Of the stones to place in expanded worlds, those with a place. No public source: ours."""
MAX_DISTANCE = 44
"""Cells of the longest journey."""

TECH_TREE = (
    "collect_wood",
    "place_table",
    "make_wood_pickaxe",
    "collect_coal",
    "make_wood_sword",
    "collect_stone",
    "make_stone_pickaxe",
    "make_stone_sword",
    "collect_iron",
    "place_furnace",
    "make_iron_pickaxe",
    "make_iron_sword",
    "collect_diamond",
)
"""The order in which instructions of the tech tree ask. Source: the authors' code."""
TECH_TREE_PROB = 1 / 3
"""Of the instructions, those along the tech tree. Source: the authors' code; the paper's text says half."""


@runtime_checkable
class InstructionSampler(Protocol):
    """What gives one environment its instructions."""

    def sample(self, rng: np.random.Generator) -> tuple[Goal, ...]:
        """The sub-goals of the next episode, in order."""

    def update(self, achieved: Iterable[Goal]) -> None:
        """Told after every step what it achieved."""


class FixedInstructionSampler:
    """Always the same one."""

    def __init__(self, instruction: tuple[Goal, ...]) -> None:
        self.instruction = instruction

    def sample(self, rng: np.random.Generator) -> tuple[Goal, ...]:
        """The one."""
        return self.instruction

    def update(self, achieved: Iterable[Goal]) -> None:
        """Nothing follows."""


class RandomInstructionSampler:
    """1 to `max_goals` sub-goals, each drawn by itself with the weights of this file.

    To wake up is never asked for, nor a journey to (0, 0), which is farther than 44 cells: only relabelling teaches
    them (paper, Appendix C.5.2). With `expanded`, some stones have a place and some journeys lead to something rare.
    """

    def __init__(self, max_goals: int, *, expanded: bool) -> None:
        self.max_goals = max_goals
        self.expanded = expanded

    def sample(self, rng: np.random.Generator) -> tuple[Goal, ...]:
        """See `Instructions`."""
        return tuple(self._sample_goal(rng) for _ in range(rng.integers(1, self.max_goals + 1)))

    def update(self, achieved: Iterable[Goal]) -> None:
        """Nothing follows."""

    def _sample_goal(self, rng: np.random.Generator) -> Goal:
        category = _choice(rng, CATEGORIES)
        if category == "travel":
            return self._sample_travel(rng)
        if category == "make":
            return achievement_goal(f"make_{_choice(rng, MATERIALS)}_{_choice(rng, {'pickaxe': 0.5, 'sword': 0.5})}")
        what = _choice(rng, CHOICES[category])
        if self.expanded and (category, what) == ("place", "stone") and rng.random() < PLACED_PROB:
            return place_goal(*sample_travel_target(rng))
        return achievement_goal(f"{category}_{what}")

    def _sample_travel(self, rng: np.random.Generator) -> Goal:
        if self.expanded and rng.random() < sum(NEAR_PROB.values()):
            return stand_near_goal(_choice(rng, NEAR_PROB))
        return travel_goal(*sample_travel_target(rng))


class TechTreeInstructionSampler:
    """A third of the instructions follow the tech tree as far as it has been climbed; the others are random.

    Such an instruction is a random part, in their order, of the first `limit` achievements of `TECH_TREE`, of a length
    that is uniform from 1 to `max_goals` or `limit`, where that is less. The limit is the number of the most advanced
    achievement that this environment has ever had (at least 1), but never includes the last one.

    With `expanded`, being beside iron or diamond comes before collecting it, and raises no limit: ours.
    """

    def __init__(self, max_goals: int, *, expanded: bool) -> None:
        self.random = RandomInstructionSampler(max_goals, expanded=expanded)
        rare = {"collect_iron": "iron", "collect_diamond": "diamond"} if expanded else {}
        self.progression: list[Goal] = []
        """The tech tree as goals."""
        self._reached: dict[Goal, int] = {}
        for name in TECH_TREE:
            if name in rare:
                self.progression.append(stand_near_goal(rare[name]))
            self.progression.append(achievement_goal(name))
            self._reached[achievement_goal(name)] = len(self.progression)
        self.limit = 1
        """Goals of the progression that may be asked for."""

    def sample(self, rng: np.random.Generator) -> tuple[Goal, ...]:
        """See `Instructions`."""
        if rng.random() >= TECH_TREE_PROB:
            return self.random.sample(rng)
        count = rng.integers(1, min(self.random.max_goals, self.limit) + 1)
        chosen = np.sort(rng.choice(self.limit, size=count, replace=False))
        return tuple(self.progression[index] for index in chosen)

    def update(self, achieved: Iterable[Goal]) -> None:
        """See `Instructions`: the limit may rise."""
        for goal in achieved:
            self.limit = max(self.limit, min(self._reached.get(goal, 0), len(self.progression) - 1))


def sample_travel_target(rng: np.random.Generator) -> tuple[int, int]:
    """Where to travel: near places more often than far ones.

    A distance d from the start, (32, 32), is drawn from 1 to 44 with a probability proportional to 45 - d; of the
    places not farther than that the farthest is taken, after up to one cell has been added to each one's distance at
    random. Where none is so near (d < 3), the nearest place is. Source: the authors' code.
    """
    lengths = np.arange(1, MAX_DISTANCE + 1)
    weights = MAX_DISTANCE + 1.0 - lengths
    farthest = max(float(rng.choice(lengths, p=weights / weights.sum())), _DISTANCES.min())
    jittered = np.where(farthest >= _DISTANCES, _DISTANCES + rng.random(len(_DISTANCES)), -1.0)
    x, y = _PLACES[int(jittered.argmax())].tolist()
    return x, y


_PLACES = np.array([(x, y) for x in COORDINATES for y in COORDINATES])
_DISTANCES = np.sqrt(((_PLACES - 32) ** 2).sum(axis=1))


def _choice(rng: np.random.Generator, weights: Mapping[str, float]) -> str:
    shares = np.array(list(weights.values()))
    return list(weights)[int(rng.choice(len(shares), p=shares / shares.sum()))]
