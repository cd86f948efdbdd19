from collections import Counter
from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
from scipy.stats import chisquare

from yamame.envs.crafter.goals import (
    ACHIEVEMENTS,
    COORDINATES,
    EXPANDED_GOALS,
    GOALS,
    Goal,
    achievement_goal,
    goal_text,
    place_goal,
    stand_near_goal,
    travel_goal,
)
from yamame.envs.crafter.instructions import (
    TECH_TREE,
    FixedInstructionSampler,
    RandomInstructionSampler,
    TechTreeInstructionSampler,
    sample_travel_target,
)

SAMPLES = 4_000
UNLIKELY = 1e-3
"""Seeds are fixed: what passes once passes always."""


@cache
def place_probs() -> Mapping[tuple[int, int], float]:
    """Those of `sample_travel_target`, by integration: a place wins with its jitter u if all others stay below."""
    places = [(x, y) for x in COORDINATES for y in COORDINATES]
    far = np.array([np.hypot(x - 32, y - 32) for x, y in places])
    u = (np.arange(400) + 0.5) / 400
    probs = np.zeros(len(places))
    for d in range(1, 45):
        farthest = far[far <= max(d, far.min())].max()
        rivals = np.flatnonzero((far <= farthest) & (far > farthest - 1))
        for i in rivals:
            below = np.clip(u[:, None] + far[i] - far[rivals[rivals != i]], 0, 1)
            probs[i] += below.prod(axis=1).mean() * (45 - d) / 990
    return {place: float(prob) for place, prob in zip(places, probs, strict=True) if prob > 0}


def goal_probs() -> dict[Goal, float]:
    probs = {
        "collect_sapling": 0.06,
        "collect_wood": 0.06,
        "collect_stone": 0.054,
        "collect_drink": 0.051,
        "collect_coal": 0.03,
        "collect_iron": 0.03,
        "collect_diamond": 0.015,
        "defeat_zombie": 0.06,
        "defeat_skeleton": 0.04,
        "eat_cow": 0.07,
        "eat_plant": 0.03,
        "place_table": 0.06,
        "place_stone": 0.045,
        "place_plant": 0.03,
        "place_furnace": 0.015,
    }
    probs |= {
        f"make_{material}_{tool}": 0.15 * fraction * 0.5
        for material, fraction in {"wood": 0.6, "stone": 0.3, "iron": 0.1}.items()
        for tool in ("pickaxe", "sword")
    }
    travel = {travel_goal(*place): 0.2 * prob for place, prob in place_probs().items()}
    return {achievement_goal(name): prob for name, prob in probs.items()} | travel


def check(counted: Mapping[Goal, int], probs: Mapping[Goal, float]) -> None:
    """The counts are a sample of the probs; those that are too small for the test are taken together."""
    total = sum(counted.values())
    assert sum(probs.values()) == pytest.approx(1.0, abs=1e-3)
    assert set(counted) <= set(probs)
    large = [goal for goal, prob in probs.items() if prob * total >= 5]
    observed = [counted.get(goal, 0) for goal in large]
    expected = [probs[goal] * total for goal in large]
    observed, expected = [*observed, total - sum(observed)], [*expected, total - sum(expected)]
    if expected[-1] < 1:
        observed, expected = [*observed[:-2], sum(observed[-2:])], [*expected[:-2], sum(expected[-2:])]
    assert chisquare(observed, expected).pvalue > UNLIKELY


def test_goals_are_drawn_with_the_weights_of_the_authors() -> None:
    rng, source = np.random.default_rng(0), RandomInstructionSampler(1, expanded=False)
    drawn = Counter(goal for _ in range(SAMPLES) for goal in source.sample(rng))
    check(drawn, goal_probs())


def test_lengths_are_uniform_and_sub_goals_independent() -> None:
    rng, source = np.random.default_rng(1), RandomInstructionSampler(5, expanded=False)
    instructions = [source.sample(rng) for _ in range(2_000)]
    lengths = Counter(map(len, instructions))
    assert set(lengths) == {1, 2, 3, 4, 5} and chisquare(list(lengths.values())).pvalue > UNLIKELY
    last = Counter(instruction[-1] for instruction in instructions if len(instruction) == 5)
    check(last, goal_probs())


def test_journeys_are_as_long_as_the_draw_says() -> None:
    rng = np.random.default_rng(2)
    lengths = np.array([np.hypot(*(np.array(sample_travel_target(rng)) - 32)) for _ in range(SAMPLES)])
    probs = place_probs()
    mean = sum(np.hypot(x - 32, y - 32) * prob for (x, y), prob in probs.items())
    assert lengths.mean() == pytest.approx(mean, abs=4 * lengths.std() / SAMPLES**0.5)
    assert mean == pytest.approx(sum(d * (45 - d) / 990 for d in range(1, 45)), abs=1.5) and lengths.max() <= 44
    assert (0, 0) not in probs and len(probs) > 100


def test_wake_up_is_never_a_goal() -> None:
    assert achievement_goal("wake_up") not in goal_probs()
    assert {achievement_goal(name) for name in ACHIEVEMENTS} - {achievement_goal("wake_up")} <= set(goal_probs())


def test_expanded_worlds_ask_for_more() -> None:
    rng, source = np.random.default_rng(3), RandomInstructionSampler(1, expanded=True)
    drawn = Counter(goal for _ in range(SAMPLES) for goal in source.sample(rng))
    probs = goal_probs()
    stone = achievement_goal("place_stone")
    placed = {place_goal(*place): 0.5 * probs[stone] * prob for place, prob in place_probs().items()}
    travel = {travel_goal(*place): 0.2 * 0.85 * prob for place, prob in place_probs().items()}
    near = {stand_near_goal("iron"): 0.2 * 0.10, stand_near_goal("diamond"): 0.2 * 0.05}
    check(drawn, probs | placed | travel | near | {stone: 0.5 * probs[stone]})
    plain = RandomInstructionSampler(5, expanded=False)
    assert not {goal for _ in range(500) for goal in plain.sample(rng)} & set(EXPANDED_GOALS)


class NoRandom:
    max_goals = 5

    def sample(self, rng: np.random.Generator) -> tuple[Goal, ...]:
        return ()


def of_tech_tree(source: TechTreeInstructionSampler, count: int, seed: int = 0) -> list[tuple[Goal, ...]]:
    """Instructions along the tech tree, distinguished from random ones by a source that never samples these."""
    rng = np.random.default_rng(seed)
    found: list[tuple[Goal, ...]] = []
    source.random = NoRandom()  # type: ignore[assignment]
    while len(found) < count:
        instruction = source.sample(rng)
        found += [instruction] if instruction else []
    return found


def test_instructions_follow_the_tech_tree_as_far_as_it_was_climbed() -> None:
    tree = [achievement_goal(name) for name in TECH_TREE]
    source = TechTreeInstructionSampler(5, expanded=False)
    assert set(of_tech_tree(source, 20)) == {(tree[0],)}
    source.update([achievement_goal("eat_cow"), travel_goal(5, 5), tree[0]])
    assert source.limit == 1
    source.update([tree[3]])
    source.update([tree[1]])
    assert source.limit == 4
    drawn = of_tech_tree(source, 600)
    assert {goal for instruction in drawn for goal in instruction} == set(tree[:4])
    for instruction in drawn:
        places = [tree.index(goal) for goal in instruction]
        assert places == sorted(set(places))
    lengths = Counter(map(len, drawn))
    assert set(lengths) == {1, 2, 3, 4} and chisquare(list(lengths.values())).pvalue > UNLIKELY
    assert chisquare(list(Counter(each[0] for each in drawn if len(each) == 1).values())).pvalue > UNLIKELY


def test_the_last_achievement_of_the_tech_tree_is_never_a_goal() -> None:
    for expanded, limit in ((False, 12), (True, 14)):
        source = TechTreeInstructionSampler(5, expanded=expanded)
        source.update([achievement_goal(TECH_TREE[-1])])
        assert source.limit == limit
        drawn = of_tech_tree(source, 300)
        assert {goal for instruction in drawn for goal in instruction} == set(source.progression[:-1])
        assert max(map(len, drawn)) == 5


def test_expanded_tech_trees_lead_to_what_is_rare() -> None:
    source = TechTreeInstructionSampler(5, expanded=True)
    texts = [goal_text(goal) for goal in source.progression]
    assert texts[7:10] == ["make stone sword", "travel to iron", "collect iron"]
    assert texts[-2:] == ["travel to diamond", "collect diamond"]
    source.update([stand_near_goal("iron")])
    assert source.limit == 1
    source.update([achievement_goal("collect_iron")])
    assert source.limit == 10


def test_a_third_of_the_instructions_follow_the_tech_tree() -> None:
    source, rng = TechTreeInstructionSampler(5, expanded=False), np.random.default_rng(0)
    source.random = NoRandom()  # type: ignore[assignment]
    fraction = np.mean([bool(source.sample(rng)) for _ in range(3_000)])
    assert fraction == pytest.approx(1 / 3, abs=0.035)


def test_all_random_goals_are_goals_and_follow_from_the_seed() -> None:
    source = RandomInstructionSampler(5, expanded=True)
    rows = [[source.sample(np.random.default_rng(seed)) for seed in range(50)] for _ in range(2)]
    assert rows[0] == rows[1] and len(set(rows[0])) > 45
    assert {goal for row in rows[0] for goal in row} <= {*GOALS, *EXPANDED_GOALS}
    fixed = FixedInstructionSampler((travel_goal(0, 0),))
    assert fixed.sample(np.random.default_rng(0)) == (travel_goal(0, 0),)
