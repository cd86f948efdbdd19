"""The game of Crafter (Hafner 2022), made faster and deterministic: the same frames, pixel by pixel."""

import collections
from typing import Any

import crafter
import numpy as np
from crafter import constants, engine, objects
from jaxtyping import UInt8

from yamame.envs.crafter.worldgen import generate_world

ACTIONS: tuple[str, ...] = tuple(constants.actions)
"""Actions by Crafter's own names."""
ITEMS: tuple[str, ...] = tuple(constants.items)
"""Items of the inventory: health, food, drink and energy first."""
MATERIALS: tuple[str, ...] = tuple(constants.materials)
"""Materials of cells; material i has the texture i + 1."""
CREATURES = (objects.Player, objects.Cow, objects.Zombie, objects.Skeleton, objects.Arrow, objects.Plant)
"""Objects on cells; their textures follow those of the materials."""
TEXTURES = 1 + len(MATERIALS) + len(CREATURES)
"""Number of textures; 0 is outside the world."""
MAP_COLUMNS, MAP_ROWS = 9, 7
"""Visible cells, with the player in the middle."""
VIEW_ROWS = 9
"""Rows of cells in an image, the last two of which show the inventory."""
IMAGE_PIXELS = 64
_DARK = 0.5
_NOISY_PIXELS = (IMAGE_PIXELS // MAP_COLUMNS * MAP_COLUMNS) * (IMAGE_PIXELS // MAP_COLUMNS * MAP_ROWS)
_OUTSIDE_GRAY = 127
_TEXTURE_OF = {kind: len(MATERIALS) + 1 + index for index, kind in enumerate(CREATURES)}


class CrafterGame:
    """One world at a time.

    The same as in the package, random numbers included, with one exception: which of several creatures in an area
    despawns depends there on memory addresses, and here on the order of creation, so that a seed determines the game.

    Args:
        draws_images: Whether `image` is drawn at every step.
    """

    def __init__(self, *, draws_images: bool) -> None:
        env: Any = crafter.Env(length=None, seed=0)
        env._local_view = FastLocalView(env._world, env._textures, (MAP_COLUMNS, MAP_ROWS))
        env._item_view = FastItemView(env._textures, (MAP_COLUMNS, VIEW_ROWS - MAP_ROWS))
        self._env = env
        self.image: UInt8[np.ndarray, "64 64 3"] | None = None
        """Image of the package; None without `draws_images`."""
        self._draws_images = draws_images

    def reset(self, seed: int) -> None:
        """Generate the world of a seed below 2^31 - 1, with a new player in the middle."""
        world = self._env._world
        world.reset(seed=seed)
        world._chunks = collections.defaultdict(_OrderedSet)
        self._env._step = 0
        self._env._update_time()
        self._env._player = objects.Player(world, (world.area[0] // 2, world.area[1] // 2))
        world.add(self._env._player)
        generate_world(world, self._env._player)
        self._last_health = self._env._player.health
        self._unlocked: set[str] = set()
        self._update_image()

    def step(self, action: int) -> float:
        """Take an action; return Crafter's own reward: a tenth of the change in health, and 1 for new achievements."""
        player, world = self._env._player, self._env._world
        self._env._step += 1
        self._env._update_time()
        player.action = ACTIONS[action]
        creatures = world.objects[1:]
        player.update()
        x, y = player.pos.tolist()
        for creature in creatures:
            creature_x, creature_y = creature.pos.tolist()
            if abs(creature_x - x) + abs(creature_y - y) < 2 * MAP_COLUMNS:
                creature.update()
        if self._env._step % 10 == 0:
            for area, chunk in world.chunks.items():
                self._env._balance_chunk(area, chunk)
        self._update_image()
        new = {name for name, count in player.achievements.items() if count} - self._unlocked
        reward = (player.health - self._last_health) / 10 + float(bool(new))
        self._unlocked |= new
        self._last_health = player.health
        return reward

    @property
    def dead(self) -> bool:
        """Whether the player has no health left."""
        return bool(self._env._player.health <= 0)

    @property
    def achievements(self) -> dict[str, int]:
        """Count of each achievement; a new dict at each call."""
        return dict(self._env._player.achievements)

    @property
    def position(self) -> tuple[int, int]:
        """Column and row of the player."""
        x, y = self._env._player.pos.tolist()
        return x, y

    @property
    def facing(self) -> tuple[int, int]:
        """Offset of the cell that the player acts on."""
        x, y = self._env._player.facing
        return x, y

    @property
    def inventory(self) -> list[int]:
        """Count of each of `ITEMS`, 0 to 9."""
        return list(self._env._player.inventory.values())

    @property
    def daylight(self) -> float:
        """From 0, at night, to 1."""
        return float(self._env._world.daylight)

    def textures(self) -> UInt8[np.ndarray, "7 9"]:
        """Return the textures of the cells around the player, by row: an object's, or else the material's.

        Ripe and unripe plants have the same texture.
        """
        x, y = self.position
        left, top = x - MAP_COLUMNS // 2, y - MAP_ROWS // 2
        cells, visible = visible_region(self._env._world, left, top, MAP_COLUMNS, MAP_ROWS)
        for column, row, visible_object in visible:
            cells[column, row] = _TEXTURE_OF[type(visible_object)]
        return cells.T

    def adjacent_materials(self) -> set[str]:
        """Return the materials of the player's cell and the eight around it."""
        x, y = self.position
        cells, _ = visible_region(self._env._world, x - 1, y - 1, 3, 3)
        return {MATERIALS[texture - 1] for texture in np.unique(cells).tolist() if texture}

    def render_frame(self, pixels: int) -> UInt8[np.ndarray, "{pixels} {pixels} 3"]:
        """Return the image in another size, without changing the random state of the game."""
        random = self._env._world.random
        state = random.get_state()
        frame: Any = self._env.render((pixels, pixels))
        random.set_state(state)
        return np.asarray(frame, np.uint8)

    def _update_image(self) -> None:
        if self._draws_images:
            self.image = self._env.render()
        elif self._env._world.daylight < _DARK:
            self._env._world.random.random_sample(
                _NOISY_PIXELS
            )  # the numbers that the package uses for noise in the dark


class _OrderedSet(dict[Any, None]):
    """Set that iterates in the order of insertion."""

    def add(self, member: Any) -> None:
        self[member] = None

    def remove(self, member: Any) -> None:
        del self[member]


def visible_region(
    world: Any, left: int, top: int, columns: int, rows: int
) -> tuple[UInt8[np.ndarray, "{columns} {rows}"], list[tuple[int, int, Any]]]:
    """Return a region of the package's map, whose first column is `left` and first row `top`.

    Returns:
        Texture of the material of each cell, 0 outside the world, x first as in the package; and column, row and object
        of each object in the region.
    """
    inside = slice(max(left, 0), max(left + columns, 0)), slice(max(top, 0), max(top + rows, 0))
    materials, object_ids = world._mat_map[inside], world._obj_map[inside]
    right, down = inside[0].start - left, inside[1].start - top
    cells = np.zeros((columns, rows), np.uint8)
    cells[right : right + materials.shape[0], down : down + materials.shape[1]] = materials
    visible = [(x + right, y + down, world._objects[object_ids[x, y]]) for x, y in np.argwhere(object_ids).tolist()]
    return cells, visible


class FastLocalView(engine.LocalView):
    """The map around the player, drawn three times as fast as by the package: all cells at once."""

    def __init__(self, world: Any, textures: Any, grid: tuple[int, int]) -> None:
        super().__init__(world, textures, grid)
        self._tiles: dict[tuple[int, int], UInt8[np.ndarray, "materials width height 3"]] = {}

    def __call__(self, player: Any, unit: Any) -> np.ndarray:
        """Draw the map. `unit`: width and height of a cell in pixels."""
        size = int(unit[0]), int(unit[1])
        columns, rows = self._grid.tolist()
        left, top = (player.pos - self._offset).tolist()
        cells, visible = visible_region(self._world, left, top, columns, rows)
        tiles = self._material_tiles(size)[cells]
        canvas = tiles.transpose(0, 2, 1, 3, 4).reshape(columns * size[0], rows * size[1], 3)
        for x, y, visible_object in visible:
            texture = self._textures.get(visible_object.texture, size)
            engine._draw_alpha(canvas, (x * size[0], y * size[1]), texture)
        lit = self._light(canvas, self._world.daylight)
        return self._sleep(lit) if player.sleeping else lit

    def _material_tiles(self, size: tuple[int, int]) -> UInt8[np.ndarray, "materials width height 3"]:
        """Return the images of all materials, after that of cells outside the world."""
        if size not in self._tiles:
            outside = np.full((*size, 3), _OUTSIDE_GRAY, np.uint8)
            images = [self._textures.get(name, size)[..., :3] for name in constants.materials]
            self._tiles[size] = np.stack([outside, *images])
        return self._tiles[size]


class FastItemView(engine.ItemView):
    """The inventory, drawn only when it changes."""

    _cached: tuple[tuple[int, ...], np.ndarray] | None = None

    def __call__(self, inventory: dict[str, int], unit: Any) -> np.ndarray:
        """Draw the inventory. `unit`: width and height of a cell in pixels."""
        key = (*inventory.values(), int(unit[0]), int(unit[1]))
        if self._cached is None or self._cached[0] != key:
            self._cached = key, super().__call__(inventory, unit)
        return self._cached[1]
