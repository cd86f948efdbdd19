"""The mazes of MazeRunner: how they are drawn, how far one sees in them, the shortest ways through them.

A cell is numbered `row * side + column`, row 0 on top; the outermost cells are walls.
"""

from functools import cache
from random import Random

import numpy as np
from jaxtyping import Bool, Int16, Int64

WEST, NORTH, EAST, SOUTH, STAY = range(5)
SMALLEST_SIZE = 6
WALL_DENSITY = 0.75
"""Walls that are begun, as a share of all places where one could be."""
STEPS_PER_SIDE = 7.5
"""Steps after which a wall stops growing, per cell of the side."""
SPAWN_ROWS = 4
"""Rows above the lower border that are the same in every maze of a size."""


def side_length(size: int) -> int:
    """Cells along one side: odd, so 30 makes 31."""
    return 2 * (size // 2) + 1


def start_cell(side: int) -> int:
    """The lower end of the tunnel in which every episode begins."""
    return (side - 2) * side + side // 2


def max_safe_goals(side: int) -> int:
    """Cells but the start that are free in every maze: those of the spawn rows without the tunnel's two walls."""
    return SPAWN_ROWS * (side - 2) - 2 * (SPAWN_ROWS - 1) - 1


def sample_maze(rng: np.random.Generator, side: int) -> Bool[np.ndarray, "side side"]:
    """A random maze of an odd side of at least 7, True where there is a wall.

    Posts are the cells of even row and column. A wall begins at a random post and grows: at every step it looks at a
    random post two cells away, and where that is free goes there. At last the spawn rows are cleared and get a tunnel.

    Walls only ever grow to free posts, so they enclose nothing: every free cell can be reached from every other, which
    the spawn rows do not change. Same distribution as the authors' code, which takes it from mazelab.
    """
    near = _posts_around(side)
    posts = list(near)
    chance = Random(int(rng.integers(2**63))).random  # drawn one by one, where NumPy's would take most of the time
    grid = np.zeros((side, side), np.bool_)
    grid[[0, -1]] = grid[:, [0, -1]] = True
    wall = bytearray(grid.tobytes())
    for _ in range(int(WALL_DENSITY * (side // 2) ** 2)):
        post = posts[int(chance() * len(posts))]
        wall[post] = True
        for _ in range(int(STEPS_PER_SIDE * side)):
            around = near[post]
            ahead = around[int(chance() * len(around))]
            if not wall[ahead]:
                wall[ahead] = wall[(post + ahead) // 2] = True
                post = ahead
            elif all(map(wall.__getitem__, around)):
                break
    return _with_spawn_rows(np.frombuffer(wall, np.bool_).reshape(side, side))


def free_distances(wall: Bool[np.ndarray, "mazes side side"]) -> Int16[np.ndarray, "mazes side side 4"]:
    """Free cells between each free cell and the next wall to the west, north, east and south. (Walls: meaningless.)"""
    side = wall.shape[1]
    column = np.arange(side, dtype=np.int16)
    row = column[:, None]
    west = np.maximum.accumulate(np.where(wall, column, 0), axis=2)
    north = np.maximum.accumulate(np.where(wall, row, 0), axis=1)
    east = np.minimum.accumulate(np.where(wall, column, side)[:, :, ::-1], axis=2)[:, :, ::-1]
    south = np.minimum.accumulate(np.where(wall, row, side)[:, ::-1], axis=1)[:, ::-1]
    return np.stack([column - west, row - north, east - column, south - row], axis=3).astype(np.int16) - np.int16(1)


def shortest_paths(wall: Bool[np.ndarray, "side side"], cell: int) -> Int64[np.ndarray, "cells"]:
    """Fewest steps from one free cell to every cell, by a breadth-first search; -1 where there is no way."""
    side = len(wall)
    blocked = wall.ravel().tolist()
    steps = [-1] * side**2
    steps[cell] = 0
    edge = [cell]
    while edge:
        beyond = []
        for here in edge:
            for there in (here - 1, here - side, here + 1, here + side):
                if steps[there] < 0 and not blocked[there]:
                    steps[there] = steps[here] + 1
                    beyond.append(there)
        edge = beyond
    return np.array(steps)


@cache
def _posts_around(side: int) -> dict[int, tuple[int, ...]]:
    """Every post and those two cells away from it."""
    even = range(0, side, 2)
    return {
        row * side + column: tuple(
            r * side + c
            for r, c in ((row, column - 2), (row - 2, column), (row, column + 2), (row + 2, column))
            if 0 <= r < side and 0 <= c < side
        )
        for row in even
        for column in even
    }


def _with_spawn_rows(wall: Bool[np.ndarray, "side side"]) -> Bool[np.ndarray, "side side"]:
    side = len(wall)
    top, bottom, middle = side - 1 - SPAWN_ROWS, side - 1, side // 2
    wall[top:bottom, 1:-1] = False
    wall[top + 1 : bottom, [middle - 1, middle + 1]] = True
    return wall
