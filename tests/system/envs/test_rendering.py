"""Frames of our own environments, also in a window on a virtual screen."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest

from yamame.envs.bandit import BanditVectorEnv
from yamame.envs.dark_key_to_door import DarkKeyToDoorVectorEnv
from yamame.envs.endless_tmaze import EndlessTMazeVectorEnv
from yamame.envs.gridnavi import GridNaviVectorEnv
from yamame.envs.maze_runner import MazeRunnerVectorEnv
from yamame.envs.package_delivery import LEFT, PackageDeliveryVectorEnv
from yamame.envs.rendering import AGENT, FLOOR, GOAL, GREY, HINT, GridCanvas, PlaneCanvas
from yamame.envs.rooms import RoomsVectorEnv
from yamame.envs.tmaze import TMazeVectorEnv
from yamame.envs.vector.numpy_env import NumpyVectorEnv
from yamame.envs.wind import GOAL as GOAL_POINT
from yamame.envs.wind import WindVectorEnv
from yamame.errors import UserError

OURS: dict[str, Any] = {
    "passive T-maze": TMazeVectorEnv,
    "active T-maze": partial(TMazeVectorEnv, passive=False),
    "endless T-maze": EndlessTMazeVectorEnv,
    "bandit": BanditVectorEnv,
    "Dark Key-To-Door": DarkKeyToDoorVectorEnv,
    "Package Delivery": PackageDeliveryVectorEnv,
    "MazeRunner": MazeRunnerVectorEnv,
    "GridNavi": GridNaviVectorEnv,
    "Rooms": RoomsVectorEnv,
    "Wind": WindVectorEnv,
}
every_one = pytest.mark.parametrize("make", OURS.values(), ids=OURS)


def has(frame: np.ndarray, color: tuple[int, int, int]) -> bool:
    return bool((frame == color).all(-1).any())


@every_one
def test_each_environment_has_its_own_frame(make: Any) -> None:
    env: NumpyVectorEnv = make(2, render_mode="rgb_array")
    env.reset(seed=3)
    for _ in range(4):
        frames = env.render()
        assert len(frames) == 2 and all(has(frame, AGENT) for frame in frames)
        np.testing.assert_array_equal(frames[1], env.render_single(1))
        env.step(np.repeat(env.single_action_space.sample()[None], 2, axis=0))


def test_gymnasium_shows_them_in_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """As its `make` does with `render_mode="human"`."""
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    maze = gymnasium.wrappers.HumanRendering(gymnasium.make("yamame/PassiveTMaze-v0", render_mode="rgb_array"))
    maze.reset(seed=3)
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    np.testing.assert_array_equal(shown, maze.env.render())
    maze.close()


def test_an_unknown_render_mode_is_refused_in_a_line() -> None:
    with pytest.raises(UserError, match="give 'rgb_array', or None"):
        TMazeVectorEnv(1, render_mode="ansi")


def test_the_road_shows_forks_and_where_they_lead() -> None:
    roads = PackageDeliveryVectorEnv(1)
    roads.reset(seed=0)
    frame, side = roads.render_single(0), 480 // 12
    assert has(frame, AGENT) and has(frame, GOAL)
    for fork in np.flatnonzero(roads.correct_side[0] >= 0):
        left, top = (fork % 10 + 1) * side, (3 * (fork // 10) + 1) * side
        above, below = (
            frame[top - side : top, left : left + side],
            frame[top + side : top + 2 * side, left : left + side],
        )
        assert has(above, HINT) == (roads.correct_side[0, fork] == LEFT) != has(below, HINT)


def test_the_point_and_its_wind() -> None:
    points = WindVectorEnv(1)
    points.reset(seed=0)
    before = points.render_single(0)
    assert before.shape == (480, 480, 3) and all(has(before, color) for color in (AGENT, GOAL, FLOOR, GREY))
    points.wind[:], points._position[:] = 0.0, GOAL_POINT
    at_the_goal = points.render_single(0)
    rows, columns = np.nonzero((at_the_goal == AGENT).all(-1))
    assert abs(columns.mean() - 240) < 2 and abs(rows.mean() - 80) < 2 and not has(at_the_goal, GREY)
    points._position[:] = 9.0  # far outside: at the edge
    rows, columns = np.nonzero((points.render_single(0) == AGENT).all(-1))
    assert rows.min() == 0 and columns.max() == 479


def test_shapes_are_smooth_and_where_they_belong() -> None:
    board = GridCanvas(3, 2, FLOOR)
    board.disc(1, 0, AGENT, fraction=0.5)
    board.arrow(2, 1, HINT, up=True, fraction=0.8)
    side = board.pixels
    disc = (board.image == AGENT).all(-1)
    rows, columns = np.nonzero(disc)
    assert rows.mean() == pytest.approx(1.5 * side - 0.5) and columns.mean() == pytest.approx(1.5 * side - 0.5)
    assert disc.sum() == pytest.approx(np.pi * (side / 4) ** 2, rel=0.1)
    assert len(np.unique(board.image.reshape(-1, 3), axis=0)) > 10  # edges are mixed
    width = (board.image[:side, 2 * side :] == HINT).all(-1).sum(1)
    assert width[side // 4] < width[side // 2] < width[3 * side // 4]
    tiny = GridCanvas(500, 500, FLOOR)
    tiny.text(0, 0, "1", AGENT)
    tiny.disc(1, 1, AGENT, fraction=0.5)
    assert not has(tiny.image[-1:, :1], AGENT)
    plane = PlaneCanvas((0.0, 2.0), (0.0, 1.0), FLOOR)
    plane.arrow(np.zeros(2), np.zeros(2), AGENT)
    assert plane.image().shape == (240, 480, 3) and not has(plane.image(), AGENT)
