"""Small environments with every kind of action and mask, in a module that workers import quickly."""

from functools import partial
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 4


class RepeatPair(gymnasium.Env[Any, Any]):
    """Two digits are shown at step 0; each of 4 steps earns 1/4 if the action repeats both. Random actions: 1/12."""

    def __init__(self) -> None:
        self.action_space = spaces.MultiDiscrete([3, 4], start=[5, -2])
        self.observation_space = spaces.Box(0.0, 1.0, (7,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.digits, self.time = self.np_random.integers([3, 4]), 0
        shown = np.zeros(7, np.float32)
        shown[[self.digits[0], 3 + self.digits[1]]] = 1.0
        return shown, {}

    def step(self, action: np.ndarray) -> Any:
        self.time += 1
        right = np.array_equal(action - self.action_space.start, self.digits)
        return np.zeros(7, np.float32), right / STEPS, False, self.time == STEPS, {}


class RepeatBits(gymnasium.Env[Any, Any]):
    """Six bits are shown at step 0; each of 4 steps earns 1/4 times the fraction of them that the action repeats."""

    def __init__(self) -> None:
        self.action_space = self.observation_space = spaces.MultiBinary((2, 3))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.bits, self.time = self.np_random.integers(0, 2, (2, 3), np.int8), 0
        return self.bits.copy(), {}

    def step(self, action: np.ndarray) -> Any:
        assert self.action_space.contains(action)
        self.time += 1
        return np.zeros((2, 3), np.int8), (action == self.bits).mean() / STEPS, False, self.time == STEPS, {}


class RepeatParts(gymnasium.Env[Any, Any]):
    """Shows a digit and a bit at every step; each of 4 steps earns 1/4 if the action, a Dict, repeats both.

    One of the wrong digits is forbidden by a mask that is nested as the action is. Random legal actions: 1/4.
    """

    def __init__(self) -> None:
        self.action_space = spaces.Dict(digit=spaces.Discrete(3, start=5), bits=spaces.Tuple([spaces.MultiBinary(1)]))
        self.observation_space = spaces.Box(0.0, 1.0, (5,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._draw()

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        assert action["digit"] - 5 != self.forbidden, "forbidden digit"
        self.time += 1
        right = action["digit"] - 5 == self.digit and action["bits"][0][0] == self.bit
        observation, info = self._draw()
        return observation, right / STEPS, False, self.time == STEPS, info

    def _draw(self) -> tuple[np.ndarray, dict[str, Any]]:
        self.digit, self.bit = self.np_random.integers([3, 2]).tolist()
        self.forbidden = (self.digit + self.np_random.integers(1, 3)) % 3
        mask = {"bits": ([1, 1],), "digit": np.arange(3) != self.forbidden}
        return np.concatenate([np.eye(3)[self.digit], np.eye(2)[self.bit]], dtype=np.float32), {"action_mask": mask}


class ReachPoint(gymnasium.Env[Any, Any]):
    """Shows a point at each of 4 steps, which earns up to 1/4, less for a distant action: a Tuple of Boxes."""

    def __init__(self) -> None:
        self.action_space = spaces.Tuple([spaces.Box(0.0, 2.0, (1,)), spaces.Dict(y=spaces.Box(-4.0, 0.0, (1,)))])
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time, self.point = 0, self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.point, {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.time += 1
        found = np.array([action[0][0] - 1.0, action[1]["y"][0] / 2.0 + 1.0])
        reward = (1.0 - np.abs(found - self.point).mean()) / STEPS
        self.point = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.point, float(reward), False, self.time == STEPS, {}


class LegalMoves(gymnasium.Env[Any, Any]):
    """Step 0 shows the best of six moves, k; then come k + 1, k + 2, ... Three are legal, others at every step.

    Each of 4 steps earns 1/4 for the best legal move, an illegal one raises. Random legal moves: 1/3.
    """

    def __init__(self) -> None:
        self.action_space, self.observation_space = spaces.Discrete(6), spaces.Box(0.0, 1.0, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.best, self.time = int(self.np_random.integers(6)), 0
        return np.eye(6, dtype=np.float32)[self.best], self._draw()

    def step(self, action: int) -> Any:
        assert action in self.legal, "illegal move"
        self.time += 1
        right = action == min(self.legal, key=lambda move: (move - self.best) % 6)
        return np.zeros(6, np.float32), right / STEPS, False, self.time == STEPS, self._draw()

    def _draw(self) -> dict[str, Any]:
        self.legal = self.np_random.choice(6, 3, replace=False).tolist()
        return {"action_mask": np.isin(np.arange(6), self.legal).astype(np.int8)}


class Forbidding(gymnasium.Env[Any, Any]):
    """Forbids at random, refuses what is forbidden, and shows what it forbids in `where`.

    `where`: info (an array), nested (a tuple of one array a component), leaf (of the observation, called `legal`) or
    nowhere. Episodes have 3 to 5 steps; the last one allows nothing where it terminated, and says so.
    """

    sizes: tuple[int, ...]

    def __init__(self, action_space: spaces.Space[Any], where: str = "info") -> None:
        self.action_space, self.where = action_space, where
        self.sizes = {
            spaces.Discrete: lambda: (int(action_space.n),),
            spaces.MultiDiscrete: lambda: tuple(action_space.nvec.flatten().tolist()),
            spaces.MultiBinary: lambda: (2,) * int(np.prod(action_space.shape)),
        }[type(action_space)]()
        number = spaces.Box(-1.0, 1.0, (2,), np.float32)
        parts = {"legal": spaces.MultiBinary(sum(self.sizes)), "number": number}
        self.observation_space = spaces.Dict(parts) if where == "leaf" else number

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time, self.length = 0, int(self.np_random.integers(3, 6))
        return self._look(over=False)

    def step(self, action: Any) -> Any:
        self._refuse(action)
        self.time += 1
        over, terminated = self.time == self.length, self.length % 2 == 0
        observation, info = self._look(over=over and terminated)
        return observation, float(np.sum(action)), over and terminated, over and not terminated, info

    def _refuse(self, action: Any) -> None:
        start = np.asarray(getattr(self.action_space, "start", 0))
        for choice, allowed in zip(np.ravel(action - start), self._parts(), strict=True):
            assert allowed[choice], f"{action} is forbidden by {self.mask}"

    def _parts(self) -> list[np.ndarray]:
        bounds = [0, *np.cumsum(self.sizes)]
        return [self.mask[low:high] for low, high in pairwise(bounds)]

    def _look(self, *, over: bool) -> Any:
        self.mask = self.np_random.integers(0, 2, sum(self.sizes), np.int8)
        for part in self._parts():
            part[self.np_random.integers(len(part))] = 1
        self.mask *= not over
        number = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        observation = {"legal": self.mask.copy(), "number": number} if self.where == "leaf" else number
        info = {"info": {"action_mask": self.mask.copy()}, "nested": {"action_mask": tuple(self._parts())}}
        return observation, info.get(self.where, {})


SPACES = {
    "discrete": spaces.Discrete(5, start=2),
    "several": spaces.MultiDiscrete([[3, 2], [4, 1]], start=[[1, 0], [-1, 7]]),
    "bits": spaces.MultiBinary((2, 2)),
}


def forbidding(kind: str, where: str = "info") -> Any:
    """A factory of `Forbidding`."""
    return partial(Forbidding, SPACES[kind], where)


def forbidding_moves() -> Forbidding:
    """A factory that a run directory can name."""
    return Forbidding(SPACES["discrete"])


def forbidding_pairs() -> Forbidding:
    """Another."""
    return Forbidding(SPACES["several"], "nested")


def forbidding_bits() -> Forbidding:
    """Another."""
    return Forbidding(SPACES["bits"], "leaf")
