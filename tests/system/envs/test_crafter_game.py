import importlib
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

pytest.importorskip("crafter")

import crafter
from crafter import constants, engine, objects, worldgen

from yamame.envs.crafter import worldgen as crafter_worldgen
from yamame.envs.crafter.game import ACTIONS, MAP_COLUMNS, MAP_ROWS, CrafterGame, _OrderedSet
from yamame.envs.crafter.worldgen import generate_world


def world_of(generate: Any, seed: int) -> Any:
    world = engine.World((64, 64), constants.materials, (12, 12))
    world.reset(seed=seed)
    player = objects.Player(world, (32, 32))
    world.add(player)
    generate(world, player)
    return world


def inhabitants(world: Any) -> list[tuple[str, int, int]]:
    return [(type(each).__name__, *each.pos.tolist()) for each in world.objects]


def assert_same(ours: Any, theirs: Any) -> None:
    assert np.array_equal(ours._mat_map, theirs._mat_map)
    assert np.array_equal(ours._obj_map, theirs._obj_map)
    assert inhabitants(ours) == inhabitants(theirs)
    assert list(ours.chunks) == list(theirs.chunks)
    assert ours.random.get_state()[2] == theirs.random.get_state()[2]
    assert np.array_equal(ours.random.get_state()[1], theirs.random.get_state()[1])


def the_package(seed: int) -> tuple[Any, int]:
    """The package's environment after a reset, with its areas in order, and the seed of its world."""
    theirs = crafter.Env(seed=seed, length=None)
    theirs.reset()
    areas: Any = defaultdict(_OrderedSet)
    for area, members in theirs._world._chunks.items():
        for each in sorted(members, key=theirs._world._objects.index):
            areas[area].add(each)
    theirs._world._chunks = areas
    return theirs, hash((seed, 1)) % (2**31 - 1)


def keep_alive(*players: Any) -> None:
    for player in players:
        player.inventory.update(health=9, food=9, drink=9)


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 10), marks=pytest.mark.thorough)])
def test_worlds_are_those_of_the_package(seeds: range) -> None:
    for seed in seeds:
        assert_same(world_of(generate_world, seed), world_of(worldgen.generate_world, seed))


def test_noise_is_that_of_the_package_to_the_bit() -> None:
    simplex = importlib.import_module("opensimplex").OpenSimplex(seed=12345)
    noise = crafter_worldgen._noise((64, 64), simplex)
    for name, place, grain, depth in crafter_worldgen._FIELDS:
        for x, y in [(0, 0), (7, 0), (40, 0), (32, 8), (63, 63), (15, 30), (11, 47), (33, 2)]:
            at_x, at_y = place(x, y)
            assert noise[name][x, y] == simplex.noise3(at_x / grain, at_y / grain, depth)


def test_another_noise_package_is_called_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("opensimplex.internals._extrapolate3")
    called = []
    monkeypatch.setattr(worldgen, "generate_world", lambda world, player: called.append((world, player)))
    world_of(generate_world, 0)
    assert len(called) == 1


def test_a_game_is_that_of_the_package_by_day_and_by_night() -> None:
    theirs, seed = the_package(3)
    ours = CrafterGame(draws_images=False)
    ours.reset(seed)
    rng, daylight = np.random.default_rng(0), []
    for _ in range(330):
        keep_alive(ours._env._player, theirs._player)
        action = int(rng.integers(len(ACTIONS)))
        _, reward, _, info = theirs.step(action)
        assert ours.step(action) == reward
        assert ours.achievements == info["achievements"]
        assert ours.inventory == list(info["inventory"].values())
        assert ours.position == tuple(info["player_pos"])
        daylight.append(ours.daylight)
    assert min(daylight) < 0.3 and max(daylight) > 0.9
    assert sum(ours.achievements.values()) > 3
    assert_same(ours._env._world, theirs._world)


def test_pictures_are_those_of_the_package_anywhere_at_any_time() -> None:
    theirs, seed = the_package(5)
    ours = CrafterGame(draws_images=True)
    ours.reset(seed)
    places = [(0, 0), (63, 63), (3, 61), (62, 2), (32, 40), (10, 12), (45, 20), (20, 50)]
    rng = np.random.default_rng(0)
    for turn, place in enumerate(places):
        for game in (ours._env, theirs):
            game._step = 40 * turn + 1
            game._player.inventory.update(health=9, wood=turn, stone=9 - turn, energy=5)
            if game._world[place][1] is None:
                game._world.move(game._player, place)
        for action in (0, int(rng.integers(1, 6)), 6, 0):
            image, *_ = theirs.step(action)
            ours.step(action)
            assert ours.image is not None and np.array_equal(ours.image, image)
    for game in (ours._env, theirs):
        game._world.daylight = 1.0
    assert np.array_equal(ours.render_frame(432), theirs.render((432, 432)))


def test_a_seed_determines_the_game() -> None:
    games = [CrafterGame(draws_images=False), CrafterGame(draws_images=True), CrafterGame(draws_images=False)]
    for game in games:
        game.reset(11)
    rng = np.random.default_rng(1)
    for step in range(400):
        action = int(rng.integers(1, 6))
        for game in games:
            keep_alive(game._env._player)
            game.step(action)
        if step % 20 == 0:
            assert games[0].render_frame(432).shape == (432, 432, 3)
    assert_same(games[0]._env._world, games[1]._env._world)
    assert_same(games[0]._env._world, games[2]._env._world)


@pytest.mark.parametrize("place", [(0, 0), (63, 63), (0, 63), (63, 0), (4, 3), (3, 2), (59, 60), (60, 61), (32, 32)])
def test_textures_are_what_the_package_says_and_0_outside_the_world(place: tuple[int, int]) -> None:
    game = CrafterGame(draws_images=False)
    game.reset(7)
    game._env._world.remove(game._env._player)
    game._env._player.removed = False
    here = game._env._world[place][1]
    if here:
        game._env._world.remove(here)
    game._env._player.pos = np.array(place)
    game._env._world.add(game._env._player)
    margin = 10
    whole = np.pad(game._env._sem_view(), margin)
    x, y = place[0] + margin, place[1] + margin
    seen = whole[x - MAP_COLUMNS // 2 :, y - MAP_ROWS // 2 :][:MAP_COLUMNS, :MAP_ROWS].T
    textures = game.textures()
    assert textures.shape == (7, 9) and np.array_equal(textures, seen)
    inside = [
        [0 <= place[0] + column - 4 < 64 and 0 <= place[1] + row - 3 < 64 for column in range(9)] for row in range(7)
    ]
    assert np.array_equal(textures > 0, inside)
    assert textures[3, 4] == 13
    names = {
        constants.materials[cell - 1]
        for cell in game._env._world._mat_map[
            max(place[0] - 1, 0) : place[0] + 2, max(place[1] - 1, 0) : place[1] + 2
        ].flatten()
    }
    assert game.adjacent_materials() == names
