"""The real Crafter (Hafner 2022), told to draw nothing that nobody looks at, and to be the same every time."""

import collections
from typing import Any

import crafter
import numpy as np
from crafter import constants, objects
from jaxtyping import UInt8

from yamame.envs.crafter.rendering import FastItemView, FastLocalView, visible_region
from yamame.envs.crafter.worldgen import generate_world

ACTIONS: tuple[str, ...] = tuple(constants.actions)
"""What can be done, by Crafter's own names."""
ITEMS: tuple[str, ...] = tuple(constants.items)
"""What is counted in the inventory: health, food, drink and energy first."""
MATERIALS: tuple[str, ...] = tuple(constants.materials)
"""What cells are made of; material i has the texture i + 1."""
CREATURES = (objects.Player, objects.Cow, objects.Zombie, objects.Skeleton, objects.Arrow, objects.Plant)
"""What can stand on a cell; their textures come after those of the materials."""
TEXTURES = 1 + len(MATERIALS) + len(CREATURES)
"""Number of textures; 0 is where there is no world."""
MAP_COLUMNS, MAP_ROWS = 9, 7
"""Cells that are seen, with the player in the middle."""
VIEW_ROWS = 9
"""Rows of cells in a picture, of which the last two show the inventory."""
IMAGE_PIXELS = 64
_DARK = 0.5
_NOISY_PIXELS = (IMAGE_PIXELS // MAP_COLUMNS * MAP_COLUMNS) * (IMAGE_PIXELS // MAP_COLUMNS * MAP_ROWS)
_TEXTURE_OF = {kind: len(MATERIALS) + 1 + index for index, kind in enumerate(CREATURES)}


class CrafterGame(crafter.Env):
    """One world: `begin` makes it, `act` lets its time pass.

    Everything happens as in the package, random numbers included, but for one thing: which of several creatures in an
    area vanishes depends there on where in memory they lie; here on which came first, so that a seed is one game.
    """

    def __init__(self, *, draws: bool) -> None:
        super().__init__(length=None, seed=0)
        self._local_view = FastLocalView(self._world, self._textures, (MAP_COLUMNS, MAP_ROWS))
        self._item_view = FastItemView(self._textures, (MAP_COLUMNS, VIEW_ROWS - MAP_ROWS))
        self.image: UInt8[np.ndarray, "64 64 3"] | None = None
        """What the package would show, where `draws` says that it is wanted."""
        self._draws = draws

    def reset(self, seed: int) -> None:
        """The world that the package makes of this seed, which is below 2^31 - 1, and a new player in its middle."""
        world = self._world
        world.reset(seed=seed)
        world._chunks = collections.defaultdict(_InOrder)
        self._step = 0
        self._update_time()
        self._player = objects.Player(world, (world.area[0] // 2, world.area[1] // 2))
        world.add(self._player)
        generate_world(world, self._player)
        self._last_health = self._player.health
        self._unlocked: set[str] = set()
        self._look()

    def step(self, action: int) -> float:
        """Crafter's own reward: a tenth of the change in health, and 1 for anything achieved for the first time."""
        player, world = self._player, self._world
        self._step += 1
        self._update_time()
        player.action = ACTIONS[action]
        others = world.objects[1:]
        player.update()
        x, y = player.pos.tolist()
        for each in others:
            its_x, its_y = each.pos.tolist()
            if abs(its_x - x) + abs(its_y - y) < 2 * MAP_COLUMNS:
                each.update()
        if self._step % 10 == 0:
            for area, creatures in world.chunks.items():
                self._balance_chunk(area, creatures)
        self._look()
        return self._reward_of_step()

    def _reward_of_step(self) -> float:
        new = {name for name, count in self._player.achievements.items() if count} - self._unlocked
        reward = (self._player.health - self._last_health) / 10 + float(bool(new))
        self._unlocked |= new
        self._last_health = self._player.health
        return reward

    @property
    def dead(self) -> bool:
        """Whether the player has no health left."""
        return bool(self._player.health <= 0)

    @property
    def achievements(self) -> dict[str, int]:
        """How often each was had; never changed afterwards."""
        return dict(self._player.achievements)

    @property
    def position(self) -> tuple[int, int]:
        """Column and row of the player."""
        x, y = self._player.pos.tolist()
        return x, y

    @property
    def facing(self) -> tuple[int, int]:
        """The cell that the player acts on, seen from its own."""
        x, y = self._player.facing
        return x, y

    @property
    def inventory(self) -> list[int]:
        """How much there is of each of `ITEMS`, 0 to 9."""
        return list(self._player.inventory.values())

    @property
    def daylight(self) -> float:
        """From 0, at night, to 1."""
        return float(self._world.daylight)

    def textures(self) -> UInt8[np.ndarray, "7 9"]:
        """The cells around the player, by row: material, or who stands there. Ripe plants look like others."""
        x, y = self.position
        left, top = x - MAP_COLUMNS // 2, y - MAP_ROWS // 2
        seen, who = visible_region(self._world, left, top, MAP_COLUMNS, MAP_ROWS)
        for column, row, each in who:
            seen[column, row] = _TEXTURE_OF[type(each)]
        return seen.T

    def adjacent_materials(self) -> set[str]:
        """What the player's cell and the eight around it are made of."""
        x, y = self.position
        near, _ = visible_region(self._world, x - 1, y - 1, 3, 3)
        return {MATERIALS[texture - 1] for texture in np.unique(near).tolist() if texture}

    def render_frame(self, pixels: int) -> UInt8[np.ndarray, "{pixels} {pixels} 3"]:
        """What the package shows, in another size. Looking costs no random numbers: the game stays the same."""
        random = self._world.random
        state = random.get_state()
        drawn: Any = self.render((pixels, pixels))
        random.set_state(state)
        return np.asarray(drawn, np.uint8)

    def _look(self) -> None:
        if self._draws:
            self.image = self.render()
        elif self._world.daylight < _DARK:
            self._world.random.random_sample(_NOISY_PIXELS)  # what the package draws to make a dark picture grainy


class _InOrder(dict[Any, None]):
    """A set that remembers in which order its members came."""

    def add(self, member: Any) -> None:
        self[member] = None

    def remove(self, member: Any) -> None:
        del self[member]
