import math

import pytest

from yamame.envs.crafter.goals import (
    ACHIEVEMENTS,
    COORDINATES,
    EXPANDED_GOALS,
    GOALS,
    MAX_ACHIEVED,
    MAX_ACHIEVED_EXPANDED,
    WORDS,
    achieved_expanded_goals,
    achieved_goals,
    achievement_goal,
    goal_text,
    instruction_text,
    nearest_grid_point,
    parse_instruction,
    place_goal,
    stand_near_goal,
    travel_goal,
)
from yamame.errors import UserError

COUNTS = dict.fromkeys(ACHIEVEMENTS, 0)
FAR_FROM_PLACES = (32, 32)


def test_the_vocabulary_is_that_of_the_authors() -> None:
    known = {"collect": 0, "defeat": 1, "eat": 2, "make": 3, "place": 4, "coal": 5, "drink": 7, "wood": 11, "cow": 14}
    known |= {"plant": 15, "pickaxe": 16, "table": 19, "travel": 20, "pad": 21, "wake": 22, "up": 23}
    known |= {"0": 24, "5": 25, "60": 36}
    assert {word: WORDS.index(word) for word in known} == known
    assert len(WORDS) == len(set(WORDS)) == 37


def test_goals_as_tokens() -> None:
    assert achievement_goal("make_stone_sword") == (3, 10, 17)
    assert achievement_goal("collect_coal") == (0, 5, 21)
    assert achievement_goal("wake_up") == (22, 23, 21)
    assert travel_goal(50, 5) == (20, 34, 25)
    assert place_goal(0, 60) == (4, 24, 36)
    assert stand_near_goal("iron") == (20, 8, 21)


def test_the_achievements_are_all_that_the_package_counts() -> None:
    constants = pytest.importorskip("crafter.constants")
    assert list(ACHIEVEMENTS) == constants.achievements


def test_every_goal_is_written_and_read_back() -> None:
    assert (len(GOALS), len(EXPANDED_GOALS)) == (22 + 169, 2 + 169)
    every = (*GOALS, *EXPANDED_GOALS)
    texts = [goal_text(goal) for goal in every]
    assert len(set(every)) == len(set(texts)) == len(every)
    assert [parse_instruction(text) for text in texts] == [(goal,) for goal in every]
    assert parse_instruction(instruction_text(every)) == every


def test_instructions_may_be_written_in_several_ways() -> None:
    expected = (
        achievement_goal("make_stone_pickaxe"),
        travel_goal(10, 5),
        place_goal(50, 50),
        achievement_goal("wake_up"),
    )
    for text in (
        "make stone pickaxe, travel to (10, 5), place stone at (50, 50), wake up",
        "Make a stone pickaxe,travel 10 5,  place the stone at (50,50) , WAKE UP",
        "make stone pickaxe, travel (10 5), place some stone 50 50, wake-up",
    ):
        assert parse_instruction(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("make stone pickax", "no goal has the word 'pickax': did you mean 'pickaxe'"),
        ("collect wood, kill zombie", "no goal has the word 'kill': did you mean"),
        ("collect pad", "no goal has the word 'pad'"),
        ("make coal", "no goal is 'make coal': did you mean 'collect coal'"),
        ("collect wood place table", "Goals are separated by commas"),
        ("travel to (12, 50)", "no goal is at 12: did you mean 10"),
        ("travel to (-5, 50)", "no goal is at -5: did you mean 0"),
        ("travel to (10, 65)", "no goal is at 65: did you mean 60"),
        ("travel to 10, collect wood", "no goal is 'travel to 10': did you mean 'travel to"),
        ("collect wood,, collect wood", "an empty goal"),
        (" ", "an empty goal"),
    ],
)
def test_what_cannot_be_read_is_answered_with_the_nearest(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        parse_instruction(text)


def test_an_achievement_is_achieved_whenever_its_count_rises() -> None:
    once, twice = COUNTS | {"collect_wood": 1}, COUNTS | {"collect_wood": 2, "wake_up": 1}
    wood, up = achievement_goal("collect_wood"), achievement_goal("wake_up")
    assert achieved_goals(COUNTS, once, FAR_FROM_PLACES) == [wood]
    assert achieved_goals(once, once, FAR_FROM_PLACES) == []
    assert achieved_goals(once, twice, FAR_FROM_PLACES) == [wood, up]
    assert achieved_goals(once, twice, (31, 29)) == [wood, up, travel_goal(30, 30)]
    assert len(achieved_goals(once, twice, (31, 29))) == MAX_ACHIEVED


def test_a_place_is_reached_from_every_cell_less_than_two_away_and_no_other() -> None:
    for x in range(64):
        for y in range(64):
            near = [(a, b) for a in COORDINATES for b in COORDINATES if math.dist((x, y), (a, b)) < 2]
            assert [nearest_grid_point(x, y)] == (near or [None])
            assert achieved_goals(COUNTS, COUNTS, (x, y)) == [travel_goal(*place) for place in near]


def test_further_goals_of_expanded_worlds() -> None:
    assert achieved_expanded_goals(None, {"grass", "stone"}) == []
    assert achieved_expanded_goals((11, 49), {"grass"}) == [place_goal(10, 50)]
    assert achieved_expanded_goals((12, 50), {"grass"}) == []
    assert achieved_expanded_goals(None, {"diamond", "lava"}) == [stand_near_goal("diamond")]
    most = achieved_expanded_goals((0, 0), {"diamond", "iron"})
    assert most == [stand_near_goal("iron"), stand_near_goal("diamond"), place_goal(0, 0)]
    assert MAX_ACHIEVED + len(most) == MAX_ACHIEVED_EXPANDED
