"""What Crafter's instructions are made of: goals of three words out of a closed vocabulary (paper, Appendix C.5)."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

from yamame.errors import UserError

Goal = tuple[int, int, int]
"""Three tokens; a token is a place in `WORDS`."""

COORDINATES = tuple(range(0, 61, 5))
"""Both coordinates of the places that can be travelled to, x to the right and y down; the world has 64 x 64 cells."""
PAD = "pad"
"""Stands where a goal has no third word."""
# fmt: off
WORDS = (
    "collect", "defeat", "eat", "make", "place", "coal", "diamond", "drink", "iron", "sapling", "stone", "wood",
    "skeleton", "zombie", "cow", "plant", "pickaxe", "sword", "furnace", "table", "travel", PAD, "wake", "up",
    *map(str, COORDINATES),
)
"""The vocabulary. Source: the authors' code."""
ACHIEVEMENTS = (
    "collect_coal", "collect_diamond", "collect_drink", "collect_iron", "collect_sapling", "collect_stone",
    "collect_wood", "defeat_skeleton", "defeat_zombie", "eat_cow", "eat_plant", "make_iron_pickaxe",
    "make_iron_sword", "make_stone_pickaxe", "make_stone_sword", "make_wood_pickaxe", "make_wood_sword",
    "place_furnace", "place_plant", "place_stone", "place_table", "wake_up",
)
"""What Crafter counts, by its own names."""
# fmt: on
RARE_MATERIALS = ("iron", "diamond")
"""What an expanded world has the goal of being beside."""
REACH_RADIUS = 2.0
"""What is less far away than this is reached: the cell itself and the eight around it."""

_TOKEN_OF = {word: token for token, word in enumerate(WORDS)}
_FILLERS = ("a", "an", "at", "some", "the", "to")


def _goal(first: str, second: str, third: str = PAD) -> Goal:
    return _TOKEN_OF[first], _TOKEN_OF[second], _TOKEN_OF[third]


def achievement_goal(name: str) -> Goal:
    """`make_wood_sword` -> the goal."""
    return _goal(*name.split("_"))


def travel_goal(x: int, y: int) -> Goal:
    """To get near a place, both of whose coordinates are in `COORDINATES`."""
    return _goal("travel", str(x), str(y))


def place_goal(x: int, y: int) -> Goal:
    """To put a stone near such a place. Only in expanded worlds; no public source says how it is written: ours."""
    return _goal("place", str(x), str(y))


def stand_near_goal(material: str) -> Goal:
    """To stand beside one of `RARE`. Only in expanded worlds; no public source says how it is written: ours."""
    return _goal("travel", material)


_PLACES = [(x, y) for x in COORDINATES for y in COORDINATES]
GOALS = (*map(achievement_goal, ACHIEVEMENTS), *(travel_goal(*place) for place in _PLACES))
"""The goals of every world: 22 achievements and 169 places."""
EXPANDED_GOALS = (*map(stand_near_goal, RARE_MATERIALS), *(place_goal(*place) for place in _PLACES))
"""Those that only expanded worlds have."""


def goal_text(goal: Goal) -> str:
    """Such as `make stone pickaxe`, `travel to (10, 60)`, `place stone at (5, 5)` or `travel to iron`."""
    first, second, third = (WORDS[token] for token in goal)
    if third.isdecimal():
        return f"travel to ({second}, {third})" if first == "travel" else f"place stone at ({second}, {third})"
    if first == "travel":
        return f"travel to {second}"
    return " ".join(word for word in (first, second, third) if word != PAD)


def instruction_text(goals: Iterable[Goal]) -> str:
    """Such as `make stone pickaxe, collect coal`."""
    return ", ".join(map(goal_text, goals))


def parse_instruction(text: str) -> tuple[Goal, ...]:
    """What `instruction_text` wrote, or a user: goals with commas between them, in upper or lower case.

    Small words (a, an, at, some, the, to) and the brackets around a place may be left out or put in. Raises `UserError`
    that names the nearest known word or goal where something is unknown.
    """
    return tuple(map(_parse_goal, re.split(r",(?![^(]*\))", text.lower())))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in re.findall(r"[^\W\d_]+|-?\d+", text) if word not in _FILLERS)


_TEXTS = [goal_text(goal) for goal in (*GOALS, *EXPANDED_GOALS)]
_GOAL_OF = dict(zip(map(_words, _TEXTS), (*GOALS, *EXPANDED_GOALS), strict=True))


def _parse_goal(text: str) -> Goal:
    words = _words(text)
    if not words:
        raise UserError("the instruction has an empty goal: write goals with one comma between them")
    for word in words:
        if re.fullmatch(r"-?\d+", word) and int(word) not in COORDINATES:
            nearest = min(COORDINATES, key=lambda known: abs(known - int(word)))
            raise UserError(f"no goal is at {word}: did you mean {nearest}? Places are multiples of 5 from 0 to 60")
        if word not in _TOKEN_OF or word == PAD:
            nearest_word = difflib.get_close_matches(word, WORDS, n=1, cutoff=0.0)[0]
            raise UserError(f"no goal has the word {word!r}: did you mean {nearest_word!r}?")
    if words not in _GOAL_OF:
        nearest_text = difflib.get_close_matches(" ".join(words), _TEXTS, n=1, cutoff=0.0)[0]
        raise UserError(f"no goal is {text.strip()!r}: did you mean {nearest_text!r}? Commas stand between goals")
    return _GOAL_OF[words]


def nearest_grid_point(x: int, y: int) -> tuple[int, int] | None:
    """The place that is less than `NEAR` cells away, if there is one."""
    column, row = (min(round(each / 5) * 5, COORDINATES[-1]) for each in (x, y))
    return (column, row) if (x - column) ** 2 + (y - row) ** 2 < REACH_RADIUS**2 else None


def achieved_goals(before: Mapping[str, int], after: Mapping[str, int], position: tuple[int, int]) -> list[Goal]:
    """What a step achieved: each achievement whose count it raised, and the place that it ended at or stayed near.

    Not only the first time: collecting a second sapling achieves the goal again. At most three at once, for waking up
    goes with what is done on waking.
    """
    goals = [achievement_goal(name) for name, count in after.items() if count > before[name]]
    place = nearest_grid_point(*position)
    return [*goals, travel_goal(*place)] if place else goals


def achieved_expanded_goals(put_stone: tuple[int, int] | None, beside: Collection[str]) -> list[Goal]:
    """What a step achieved of the goals that only expanded worlds have, at most three.

    `put_stone`: where this step put one; `beside`: what is near where it ended. No public source: ours.
    """
    goals = [stand_near_goal(material) for material in RARE_MATERIALS if material in beside]
    place = nearest_grid_point(*put_stone) if put_stone else None
    return [*goals, place_goal(*place)] if place else goals


MAX_ACHIEVED, MAX_ACHIEVED_EXPANDED = 3, 6
"""Goals that one step can achieve, without and with those of expanded worlds."""
