"""Generation of Crafter's worlds, seventy times as fast as by the package and the same to the bit.

The package evaluates a noise function, written in Python, a dozen times per cell. The points of evaluation never
change: only the contributions of the surrounding lattice points depend on the seed. So the package's own function is
traced once at every point, recording its summands. A world is then one pass of NumPy over that record, in the same
order of operations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np
import opensimplex
from crafter import constants, objects, worldgen
from jaxtyping import Float64, Int64

try:
    from opensimplex import internals
except ImportError:  # an older version, which cannot be traced
    internals = None

_Field = tuple[str, Callable[[int, int], tuple[float, float]], float, float]
_FIELDS: tuple[_Field, ...] = (
    ("start", lambda x, y: (x, y), 3, 8),
    ("water", lambda x, y: (x, y), 15, 3),
    ("water_detail", lambda x, y: (x, y), 5, 3),
    ("mountain", lambda x, y: (x, y), 15, 0),
    ("mountain_detail", lambda x, y: (x, y), 5, 0),
    ("cave", lambda x, y: (x, y), 7, 6),
    ("wide_tunnel", lambda x, y: (2 * x, y / 5), 3, 7),
    ("high_tunnel", lambda x, y: (x / 5, 2 * y), 3, 7),
    ("coal", lambda x, y: (x, y), 8, 1),
    ("iron", lambda x, y: (x, y), 6, 2),
    ("lava", lambda x, y: (x, y), 5, 6),
    ("sand", lambda x, y: (x, y), 9, 4),
    ("tree", lambda x, y: (x, y), 7, 5),
)
"""Noise fields of a world: name, coordinates of a cell, scale, and third coordinate."""


@dataclass(frozen=True)
class _Record:
    """Summands of the noise function at P points: M contributions of V lattice points."""

    lattice: Int64[np.ndarray, "3 V"]
    """Coordinates modulo 256."""
    point: Int64[np.ndarray, "M"]
    corner: Int64[np.ndarray, "M"]
    """Lattice point of each contribution."""
    offset: Float64[np.ndarray, "3 M"]
    weight: Float64[np.ndarray, "M"]


def generate_world(world: Any, player: Any) -> None:
    """Generate the same world as `crafter.worldgen.generate_world`, from the same random state.

    The first world of a process takes half as long as with the package. Calls Crafter's own function if the installed
    version of opensimplex cannot be traced.
    """
    if not (hasattr(internals, "_noise3") and hasattr(internals, "_extrapolate3")):
        worldgen.generate_world(world, player)
        return
    noise = _noise(world.area, opensimplex.OpenSimplex(world.random.randint(0, 2**31 - 1)))
    tunnels = _set_materials(world, player, noise)
    _set_creatures(world, player, tunnels)


def _noise(area: tuple[int, int], simplex: Any) -> dict[str, Float64[np.ndarray, "x y"]]:
    """Return all fields of `_FIELDS` at all cells."""
    record = _record(area)
    x, y, z = record.lattice
    permutation, gradient_index = simplex._perm, simplex._perm_grad_index3
    gradients = internals.GRADIENTS3[
        gradient_index[(permutation[(permutation[x] + y) & 255] + z) & 255] + np.arange(3)[:, None]
    ][:, record.corner]
    slopes = gradients * record.offset
    contributions = record.weight * (slopes[0] + slopes[1] + slopes[2])
    values = np.bincount(record.point, contributions, len(_FIELDS) * area[0] * area[1]) / internals.NORM_CONSTANT3
    return dict(zip((name for name, *_ in _FIELDS), values.reshape(-1, *area), strict=True))


@cache
def _record(area: tuple[int, int]) -> _Record:
    """Trace the package's noise function at every cell of every field."""
    summands: Any = []
    function = getattr(internals._noise3, "py_func", internals._noise3)  # numba, if installed, wraps it
    recorder = {"_extrapolate3": lambda *contribution: summands.append(contribution) or 0.0}
    trace = FunctionType(function.__code__, {**vars(internals), **recorder})
    point = 0
    for _, coordinates, scale, depth in _FIELDS:
        for cell in np.ndindex(area):
            x, y = coordinates(*cell)
            trace(x / scale, y / scale, depth, point, 0)  # the last two are passed to the recorder
            point += 1
    table = np.array(summands).T
    x_y_z = table[2:5].astype(np.int64) & 255  # the permutation of 256 depends on these bits only
    packed, corner = np.unique(x_y_z[0] << 16 | x_y_z[1] << 8 | x_y_z[2], return_inverse=True)
    lattice = np.stack([packed >> 16, packed >> 8 & 255, packed & 255])
    offset = table[5:]
    squares = offset * offset
    attenuation = 2 - squares[0] - squares[1] - squares[2]
    attenuation *= attenuation
    return _Record(lattice, table[0].astype(np.int64), corner, offset, attenuation * attenuation)


def _set_materials(world: Any, player: Any, noise: dict[str, Float64[np.ndarray, "x y"]]) -> np.ndarray:
    """Fill the map and return which cells are tunnels."""
    name_of = world._mat_names
    id_of = {name: number for number, name in name_of.items()}
    start = 4 - _distance(world.area, player) + 2 * noise["start"]
    start = 1 / (1 + np.exp(-start))
    water = noise["water"] + 0.15 * noise["water_detail"] + 0.1 - 2 * start
    mountain = (noise["mountain"] + 0.3 * noise["mountain_detail"]) / 1.3 - (4 * start + 0.3 * water)
    grass = start > 0.5
    rock = ~grass & (mountain > 0.15)
    cave = rock & (noise["cave"] > 0.15) & (mountain > 0.3)
    tunnels = rock & ~cave & ((noise["wide_tunnel"] > 0.4) | (noise["high_tunnel"] > 0.4))
    ore = rock & ~cave & ~tunnels
    shore = ~grass & ~rock
    sand = shore & (water > 0.25) & (water <= 0.35) & (noise["sand"] > -0.2)
    wet = shore & ~sand & (water > 0.3)
    kinds = (cave | tunnels, ore & (mountain > 0.3) & (noise["lava"] > 0.35), ore, sand, wet)
    names = ("path", "lava", "stone", "sand", "water")
    materials = np.select(kinds, [id_of[name] for name in names], id_of["grass"])
    meadow = shore & ~sand & ~wet
    sparse = (
        ("tree", meadow & (noise["tree"] > 0), 0.8),
        ("coal", ore & (noise["coal"] > 0), 0.85),
        ("iron", ore & (noise["iron"] > 0.4), 0.75),
        ("diamond", ore & (mountain > 0.18), 0.994),
    )
    uniform = world.random.random_sample
    for x, y, *possible in _cells([where for _, where, _ in sparse]):
        for (name, _, threshold), is_possible in zip(sparse, possible, strict=True):
            if is_possible and uniform() > threshold:  # the first that exceeds its threshold
                materials[x, y] = id_of[name]
                break
    world._mat_map[:] = materials
    return tunnels


def _set_creatures(world: Any, player: Any, tunnels: np.ndarray) -> None:
    """Add cows on grass, zombies anywhere and skeletons in tunnels, none of them near the player."""
    uniform = world.random.random_sample
    names = np.array(["", *constants.materials])[world._mat_map]
    distance = _distance(world.area, player)
    cows = (names == "grass") & (distance > 3)
    zombies = np.isin(names, constants.walkable) & (distance > 10)
    skeletons = (names == "path") & tunnels
    for x, y, cow, zombie, skeleton in _cells([cows, zombies, skeletons]):
        if cow and uniform() > 0.985:
            world.add(objects.Cow(world, (x, y)))
        elif zombie and uniform() > 0.993:
            world.add(objects.Zombie(world, (x, y), player))
        elif skeleton and uniform() > 0.95:
            world.add(objects.Skeleton(world, (x, y), player))


def _cells(possible: list[np.ndarray]) -> list[list[int]]:
    """Return, in the package's order, x, y and the flags of `possible` for each cell with any of them."""
    flags = np.stack(possible)
    x, y = np.nonzero(flags.any(axis=0))
    return np.stack([x, y, *flags[:, x, y]], axis=1).tolist()


def _distance(area: tuple[int, int], player: Any) -> Float64[np.ndarray, "x y"]:
    x, y = np.indices(area)
    return np.asarray(np.sqrt((x - player.pos[0]) ** 2 + (y - player.pos[1]) ** 2))
