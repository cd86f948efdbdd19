"""Goals of Crafter: three words of a closed vocabulary (paper, appendix C.5)."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

from yamame.errors import UserError

Goal = tuple[int, int, int]
"""Three tokens: indices into `WORDS`."""

COORDINATES = tuple(range(0, 61, 5))
"""Coordinates of travel targets, x to the right and y down; the world has 64 x 64 cells."""
PAD = "pad"
"""Third word of goals of two words."""
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
"""Achievements by Crafter's own names."""
# fmt: on
RARE_MATERIALS = ("iron", "diamond")
"""Materials that can be goals in expanded worlds: to stand next to them."""
REACH_RADIUS = 2.0
"""Positions closer than this are reached: the cell itself and the eight around it."""

_TOKEN_OF = {word: token for token, word in enumerate(WORDS)}
_FILLERS = ("a", "an", "at", "some", "the", "to")


def _goal(first: str, second: str, third: str = PAD) -> Goal:
    return _TOKEN_OF[first], _TOKEN_OF[second], _TOKEN_OF[third]


def achievement_goal(name: str) -> Goal:
    """Return the goal of an achievement such as `make_wood_sword`."""
    return _goal(*name.split("_"))


def travel_goal(x: int, y: int) -> Goal:
    """Return the goal of being near a position, both of whose coordinates are in `COORDINATES`."""
    return _goal("travel", str(x), str(y))


def place_goal(x: int, y: int) -> Goal:
    """Return the goal of placing a stone near such a position. Expanded worlds only; its encoding is our own."""
    return _goal("place", str(x), str(y))


def stand_near_goal(material: str) -> Goal:
    """Return the goal of standing next to one of `RARE_MATERIALS`. Expanded worlds only; its encoding is our own."""
    return _goal("travel", material)


_POSITIONS = [(x, y) for x in COORDINATES for y in COORDINATES]
GOALS = (*map(achievement_goal, ACHIEVEMENTS), *(travel_goal(*position) for position in _POSITIONS))
"""Goals of every world: 22 achievements and 169 positions."""
EXPANDED_GOALS = (*map(stand_near_goal, RARE_MATERIALS), *(place_goal(*position) for position in _POSITIONS))
"""Additional goals of expanded worlds."""


def goal_text(goal: Goal) -> str:
    """Return the text of a goal, such as `make stone pickaxe`, `travel to (10, 60)` or `place stone at (5, 5)`."""
    first, second, third = (WORDS[token] for token in goal)
    if third.isdecimal():
        return f"travel to ({second}, {third})" if first == "travel" else f"place stone at ({second}, {third})"
    if first == "travel":
        return f"travel to {second}"
    return " ".join(word for word in (first, second, third) if word != PAD)


def instruction_text(goals: Iterable[Goal]) -> str:
    """Return the text of an instruction, such as `make stone pickaxe, collect coal`."""
    return ", ".join(map(goal_text, goals))


def parse_instruction(text: str) -> tuple[Goal, ...]:
    """Parse the goals of an instruction, separated by commas, in upper or lower case.

    The words a, an, at, some, the, to and the parentheses around a position are optional.

    Raises:
        UserError: If a word or goal is unknown, with the closest match.
    """
    return tuple(map(_parse_goal, re.split(r",(?![^(]*\))", text.lower())))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in re.findall(r"[^\W\d_]+|-?\d+", text) if word not in _FILLERS)


_TEXTS = [goal_text(goal) for goal in (*GOALS, *EXPANDED_GOALS)]
_GOAL_OF = dict(zip(map(_words, _TEXTS), (*GOALS, *EXPANDED_GOALS), strict=True))


def _parse_goal(text: str) -> Goal:
    words = _words(text)
    if not words:
        raise UserError("the instruction has an empty goal: separate goals by one comma")
    for word in words:
        if re.fullmatch(r"-?\d+", word) and int(word) not in COORDINATES:
            nearest = min(COORDINATES, key=lambda known: abs(known - int(word)))
            raise UserError(f"no goal is at {word}: did you mean {nearest}? Coordinates are multiples of 5 up to 60")
        if word not in _TOKEN_OF or word == PAD:
            nearest_word = difflib.get_close_matches(word, WORDS, n=1, cutoff=0.0)[0]
            raise UserError(f"no goal has the word {word!r}: did you mean {nearest_word!r}?")
    if words not in _GOAL_OF:
        nearest_text = difflib.get_close_matches(" ".join(words), _TEXTS, n=1, cutoff=0.0)[0]
        raise UserError(f"no goal is {text.strip()!r}: did you mean {nearest_text!r}? Goals are separated by commas")
    return _GOAL_OF[words]


def nearest_grid_point(x: int, y: int) -> tuple[int, int] | None:
    """Return the travel target closer than `REACH_RADIUS`; None if there is none."""
    column, row = (min(round(coordinate / 5) * 5, COORDINATES[-1]) for coordinate in (x, y))
    return (column, row) if (x - column) ** 2 + (y - row) ** 2 < REACH_RADIUS**2 else None


def achieved_goals(before: Mapping[str, int], after: Mapping[str, int], position: tuple[int, int]) -> list[Goal]:
    """Return the goals that a step achieved: achievements whose count it raised, and the travel target near its end.

    Repetitions count: collecting a second sapling achieves the goal again. At most three goals, since waking up may
    coincide with the next action. `position` is that of the player after the step.
    """
    goals = [achievement_goal(name) for name, count in after.items() if count > before[name]]
    target = nearest_grid_point(*position)
    return [*goals, travel_goal(*target)] if target else goals


def achieved_expanded_goals(placed_stone: tuple[int, int] | None, adjacent: Collection[str]) -> list[Goal]:
    """Return the goals of expanded worlds that a step achieved, at most three. Our own: no public source.

    Args:
        placed_stone: Where the step placed a stone; None: nowhere.
        adjacent: Materials next to the player after the step.
    """
    goals = [stand_near_goal(material) for material in RARE_MATERIALS if material in adjacent]
    target = nearest_grid_point(*placed_stone) if placed_stone else None
    return [*goals, place_goal(*target)] if target else goals


MAX_ACHIEVED, MAX_ACHIEVED_EXPANDED = 3, 6
"""Maximum number of goals that one step achieves, without and with those of expanded worlds."""
