"""What is seen of a game of Crafter: by agents as textures or pixels, by people as films."""

from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32

from yamame.envs.crafter.game import IMAGE_PIXELS, ITEMS, MAP_COLUMNS, MAP_ROWS, TEXTURES, CrafterGame

ObservationMode = Literal["textures", "pixels", "crop"]
"""`textures`: the map around the player as numbers and what else is known as a vector, the paper's default; `pixels`:
Crafter's own picture; `crop`: the map's part of it and the inventory as a vector."""

CROP_ROWS = 48
"""Of the 64 rows of a picture, those above the inventory; the map has 49 of them."""
INFO = 2 + len(ITEMS) + 2 + 1
"""Numbers beside the map: where the player looks (2), the inventory, where it is (2), daylight."""
FRAME_PIXELS = 432
"""Width and height of a film; each texture of 16 x 16 pixels is three times as large."""


def observation_spaces(view: ObservationMode) -> dict[str, spaces.Space[Any]]:
    """Leaf of the observation -> its space."""
    match view:
        case "textures":
            textures = spaces.Box(0, TEXTURES - 1, (MAP_ROWS, MAP_COLUMNS), np.uint8)
            return {"textures": textures, "info": spaces.Box(-1.0, 1.0, (INFO,), np.float32)}
        case "pixels":
            return {"image": spaces.Box(0, 255, (IMAGE_PIXELS, IMAGE_PIXELS, 3), np.uint8)}
        case "crop":
            image = spaces.Box(0, 255, (CROP_ROWS, IMAGE_PIXELS, 3), np.uint8)
            return {"image": image, "inventory": spaces.Box(0.0, 1.0, (len(ITEMS),), np.float32)}


def observe(view: ObservationMode, game: CrafterGame) -> dict[str, np.ndarray]:
    """What an agent sees now, as `observation_spaces` says. Source of the scales: the authors' code.

    Differs from the paper's runs, where textures at the border of the world were scrambled: outside it they are 0.
    """
    if view == "textures":
        return {"textures": game.textures(), "info": _info(game)}
    assert game.image is not None, "make the game with draws=True"
    if view == "pixels":
        return {"image": game.image}
    return {"image": game.image[:CROP_ROWS], "inventory": np.array(game.inventory, np.float32) / 10}


def _info(game: CrafterGame) -> Float32[np.ndarray, "21"]:
    x, y = game.position
    inventory = [count / 10 for count in game.inventory]
    return np.array([*game.facing, *inventory, (x - 30) / 60, (y - 30) / 60, game.daylight], np.float32)
