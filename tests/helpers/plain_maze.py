"""MazeRunner written plainly, one maze at a time: what the batched one is compared with."""

import random

import numpy as np

WAYS = [(0, -1), (-1, 0), (0, 1), (1, 0), (0, 0)]
"""West, north, east, south, stay."""


def read_maze(*lines):
    """A maze as it is drawn: # are walls."""
    return np.array([[letter == "#" for letter in line] for line in lines])


def plain_maze(rng, side):
    wall = [[row in (0, side - 1) or column in (0, side - 1) for column in range(side)] for row in range(side)]
    for _ in range(int(0.75 * (side // 2) * (side // 2))):
        column, row = 2 * rng.randrange(side // 2 + 1), 2 * rng.randrange(side // 2 + 1)
        wall[row][column] = True
        for _ in range(int(0.75 * 10 * side)):
            inside = [(row + 2 * down, column + 2 * right) for down, right in WAYS[:4]]
            inside = [(r, c) for r, c in inside if 0 <= r < side and 0 <= c < side]
            r, c = rng.choice(inside)
            if not wall[r][c]:
                wall[r][c] = wall[(row + r) // 2][(column + c) // 2] = True
                row, column = r, c
    for row in range(side - 5, side - 1):
        for column in range(1, side - 1):
            wall[row][column] = row > side - 5 and column in (side // 2 - 1, side // 2 + 1)
    return np.array(wall)


class PlainMazeRunner:
    """`goals` are (row, column) in order; `wiring[action]` is the direction that an action stands for."""

    def __init__(self, wall, goals, wiring=range(5)):
        self.wall, self.goals, self.wiring = wall, list(goals), list(wiring)
        self.place = (len(wall) - 2, len(wall) // 2)

    def step(self, action):
        """Whether the next goal is completed."""
        down, right = WAYS[self.wiring[action]]
        row, column = self.place[0] + down, self.place[1] + right
        if not self.wall[row][column]:
            self.place = (row, column)
        completes = bool(self.goals) and self.place == self.goals[0]
        self.goals = self.goals[completes:]
        return completes

    def sees(self):
        """Free cells to the west, north, east and south."""
        return [self._looks(*way) for way in WAYS[:4]]

    def _looks(self, down, right):
        (row, column), free = self.place, 0
        while not self.wall[row + down][column + right]:
            row, column, free = row + down, column + right, free + 1
        return free


def random_return(seed, side, horizon, max_goals):
    """Goals that random actions complete in one random maze."""
    rng = random.Random(seed)
    wall = plain_maze(rng, side)
    free = [(int(row), int(column)) for row, column in np.argwhere(~wall) if (row, column) != (side - 2, side // 2)]
    runner = PlainMazeRunner(wall.tolist(), rng.sample(free, rng.randint(1, max_goals)))
    return sum(runner.step(rng.randrange(5)) for _ in range(horizon))


def shortest_paths(wall, cell):
    """The fewest steps from one free cell to every cell; -1 where there is no path."""
    side = len(wall)
    blocked = wall.ravel().tolist()
    steps = [-1] * side**2
    steps[cell] = 0
    frontier = [cell]
    while frontier:
        reached = []
        for here in frontier:
            for there in (here - 1, here - side, here + 1, here + side):
                if steps[there] < 0 and not blocked[there]:
                    steps[there] = steps[here] + 1
                    reached.append(there)
        frontier = reached
    return np.array(steps)


def oracle_steps(wall, start, goals):
    """The fewest steps from a cell to all goals (cells in order, -1 behind the last), which can all be reached."""
    steps = 0
    for goal in goals[goals >= 0]:
        leg = int(shortest_paths(wall, start)[goal])
        assert leg >= 0
        steps, start = steps + leg, int(goal)
    return steps
