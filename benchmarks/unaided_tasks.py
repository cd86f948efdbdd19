"""Tasks on which `unaided.py` trains the default agent, with the scores of a random and of a good policy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from yamame.envs.config import EnvConfig
from yamame.envs.dark_key_to_door import DarkKeyToDoorConfig
from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.maze_runner import MazeRunnerConfig
from yamame.envs.minigrid import MinigridConfig
from yamame.envs.package_delivery import PackageDeliveryConfig
from yamame.envs.popgym import PopgymConfig
from yamame.envs.tmaze import PassiveTMazeConfig
from yamame.envs.wind import WindConfig

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class _Task(gymnasium.Env[Any, Any]):
    """An episode of at most `length` steps. Subclasses define `_start`, `_observe` and `_reward`."""

    length: int

    def __init__(self) -> None:
        self.time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        self._start()
        return self._observe(), {}

    def step(self, action: Any) -> Step:
        reward, info = self._act(action)
        self.time += 1
        return self._observe(), reward, self.time >= self.length, False, info

    def _start(self) -> None:
        """Sample the episode."""

    def _observe(self) -> Any:
        raise NotImplementedError

    def _act(self, action: Any) -> tuple[float, dict[str, Any]]:
        """Apply the action of step `time`; return reward and info."""
        raise NotImplementedError


class Memory(_Task):
    """bsuite's memory chain: bits at the first step, a question about one of them `delay` steps later."""

    def __init__(self, delay: int, num_bits: int = 1) -> None:
        super().__init__()
        self.length, self.num_bits = delay + 1, num_bits
        self.observation_space = spaces.Box(-1.0, float(num_bits), (num_bits + 2,), np.float32)
        self.action_space = spaces.Discrete(2)

    def _start(self) -> None:
        self.bits = self.np_random.integers(2, size=self.num_bits)
        self.query = int(self.np_random.integers(self.num_bits))

    def _observe(self) -> np.ndarray:
        observation = np.zeros(self.num_bits + 2, np.float32)
        observation[0] = 1.0 - self.time / (self.length - 1)
        if self.time == self.length - 1:
            observation[1] = self.query
        if self.time == 0:
            observation[2:] = 2 * self.bits - 1
        return observation

    def _act(self, action: int) -> tuple[float, dict[str, Any]]:
        if self.time < self.length - 1:
            return 0.0, {}
        return (1.0 if action == self.bits[self.query] else -1.0), {}


class Umbrella(_Task):
    """bsuite's umbrella: the first action must match the forecast; what follows is noise, with 20 distractors."""

    def __init__(self, length: int = 20, num_distractors: int = 20) -> None:
        super().__init__()
        self.length, self.num_distractors = length, num_distractors
        self.observation_space = spaces.Box(0.0, 1.0, (3 + num_distractors,), np.float32)
        self.action_space = spaces.Discrete(2)

    def _start(self) -> None:
        self.need, self.has = int(self.np_random.integers(2)), int(self.np_random.integers(2))

    def _observe(self) -> np.ndarray:
        distractors = self.np_random.integers(2, size=self.num_distractors)
        return np.array([self.need, self.has, 1.0 - self.time / self.length, *distractors], np.float32)

    def _act(self, action: int) -> tuple[float, dict[str, Any]]:
        if self.time == 0:
            self.has = action
        if self.time < self.length - 1:
            return float(2 * self.np_random.integers(2) - 1), {}
        return (1.0 if self.has == self.need else -1.0), {"success": self.has == self.need}


class DiscountingChain(_Task):
    """bsuite's discounting chain: the first of five actions chooses when a reward comes; the latest is 10 % larger."""

    length = 100
    REWARD_STEPS = (1, 3, 10, 30, 100)

    def __init__(self) -> None:
        super().__init__()
        self.chosen = 0
        self.observation_space = spaces.Box(0.0, 5.0, (2,), np.float32)
        self.action_space = spaces.Discrete(5)

    def _observe(self) -> np.ndarray:
        return np.array([self.chosen + 1 if self.time else 0, self.time / self.length], np.float32)

    def _act(self, action: int) -> tuple[float, dict[str, Any]]:
        if self.time == 0:
            self.chosen = action
        is_best = self.chosen == len(self.REWARD_STEPS) - 1
        reward = (1.1 if is_best else 1.0) if self.time + 1 == self.REWARD_STEPS[self.chosen] else 0.0
        return reward, {"success": is_best and self.time + 1 == self.length}


class DeepSea(_Task):
    """bsuite's deep sea: only `size` moves to the right in a row find the treasure; each costs a little."""

    def __init__(self, size: int = 10) -> None:
        super().__init__()
        self.length = size
        self.column = 0
        self.right = np.random.default_rng(42).integers(2, size=(size, size))
        """Action that moves to the right, in each cell."""
        self.observation_space = spaces.Box(0.0, 1.0, (size * size,), np.float32)
        self.action_space = spaces.Discrete(2)

    def _start(self) -> None:
        self.column = 0

    def _observe(self) -> np.ndarray:
        observation = np.zeros((self.length, self.length), np.float32)
        if self.time < self.length:
            observation[self.time, self.column] = 1.0
        return observation.reshape(-1)

    def _act(self, action: int) -> tuple[float, dict[str, Any]]:
        last = self.length - 1
        if action != self.right[self.time, self.column]:
            self.column = max(self.column - 1, 0)
            return 0.0, {}
        found = self.time == last and self.column == last
        self.column = min(self.column + 1, last)
        return float(found) - 0.01 / self.length, {}


class Catch(_Task):
    """bsuite's catch: a ball falls through 10 rows of 5 columns; the paddle must be below it.

    With `images`, an image of 20 x 20 pixels, in which the ball is visible in the first three rows only.
    """

    ROWS, COLUMNS, VISIBLE_ROWS, PIXELS = 10, 5, 3, (2, 4)
    length = ROWS - 1

    def __init__(self, *, images: bool = False) -> None:
        super().__init__()
        self.images = images
        shape = (self.ROWS * self.PIXELS[0], self.COLUMNS * self.PIXELS[1], 1)
        self.observation_space = (
            spaces.Box(0, 255, shape, np.uint8)
            if images
            else spaces.Box(0.0, 1.0, (self.ROWS * self.COLUMNS,), np.float32)
        )
        self.action_space = spaces.Discrete(3)

    def _start(self) -> None:
        self.ball, self.paddle = int(self.np_random.integers(self.COLUMNS)), self.COLUMNS // 2

    def _observe(self) -> np.ndarray:
        board = np.zeros((self.ROWS, self.COLUMNS), np.float32)
        if not self.images or self.time < self.VISIBLE_ROWS:
            board[self.time, self.ball] = 1.0
        board[-1, self.paddle] = 1.0
        if not self.images:
            return board.reshape(-1)
        return np.kron(board * 255, np.ones(self.PIXELS)).astype(np.uint8)[:, :, None]

    def _act(self, action: int) -> tuple[float, dict[str, Any]]:
        self.paddle = min(max(self.paddle + action - 1, 0), self.COLUMNS - 1)
        if self.time < self.length - 1:
            return 0.0, {}
        return (1.0 if self.paddle == self.ball else -1.0), {}


class FirstAction(_Task):
    """The first of two actions decides the reward at the end."""

    def __init__(self, length: int = 128) -> None:
        super().__init__()
        self.length = length
        self.chosen = 0
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def _observe(self) -> np.ndarray:
        return np.array([self.time == 0], np.float32)

    def _act(self, action: int) -> tuple[float, dict[str, Any]]:
        if self.time == 0:
            self.chosen = action
        return (float(self.chosen == 1) if self.time == self.length - 1 else 0.0), {}


class Combination(_Task):
    """Two numbers are shown at the first step and must be dialed at every step (MultiDiscrete actions)."""

    length = 12

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.MultiDiscrete([4, 5])
        self.action_space = spaces.MultiDiscrete([3, 4])

    def _start(self) -> None:
        self.code = self.np_random.integers([3, 4])

    def _observe(self) -> np.ndarray:
        return self.code + 1 if self.time == 0 else np.zeros(2, np.int64)

    def _act(self, action: np.ndarray) -> tuple[float, dict[str, Any]]:
        return float((np.asarray(action) == self.code).all()) / self.length, {}


class Recall(_Task):
    """A symbol at every step; at some steps the symbol at the previous such step must be named (Dict observations)."""

    length, SYMBOLS, ASK_PROB = 30, 4, 1 / 3

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"symbol": spaces.Discrete(self.SYMBOLS), "ask": spaces.MultiBinary(1)})
        self.action_space = spaces.Discrete(self.SYMBOLS)

    def _start(self) -> None:
        self.symbols = self.np_random.integers(self.SYMBOLS, size=self.length + 1)
        self.asks = self.np_random.random(self.length + 1) < self.ASK_PROB
        self.asks[[0, self.length - 1]] = True

    def _observe(self) -> dict[str, Any]:
        return {"symbol": int(self.symbols[self.time]), "ask": self.asks[[self.time]].astype(np.int8)}

    def _act(self, action: int) -> tuple[float, dict[str, Any]]:
        if self.time == 0 or not self.asks[self.time]:
            return 0.0, {}
        previous = np.flatnonzero(self.asks[: self.time])[-1]
        return float(action == self.symbols[previous]) / (self.asks[: self.length].sum() - 1), {}


class HiddenPlatform(_Task):
    """A platform is hidden in a square, as in a water maze; whoever finds it is put back to the center of the square.

    The velocity is the action, and the observation is the position and whether the platform was found in this step. A
    task is a place of the platform: a good policy sweeps the square once, then returns to the place again and again. On
    a circle through the middle of all places it finds the platform 14.5 times, from the first step on knowing it 20.
    """

    length, SPEED, RADIUS = 160, 0.06, 0.15

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _start(self) -> None:
        self.position, self.found = np.zeros(2), False
        angle, distance = self.np_random.uniform(0.0, 2.0 * np.pi), self.np_random.uniform(0.5, 0.8)
        self.platform = distance * np.array([np.cos(angle), np.sin(angle)])

    def _observe(self) -> np.ndarray:
        return np.array([*self.position, self.found], np.float32)

    def _act(self, action: np.ndarray) -> tuple[float, dict[str, Any]]:
        if self.found:
            self.position = np.zeros(2)
        self.position = np.clip(self.position + self.SPEED * np.clip(action, -1.0, 1.0), -1.0, 1.0)
        self.found = bool(np.linalg.norm(self.position - self.platform) < self.RADIUS)
        return float(self.found), {}


class NoisyChoice(_Task):
    """The better of two actions depends on the sign of one of 16 numbers; rewards have noise of five times their size.

    All 16 numbers are new at every step, so that no observation occurs twice. Success: the last action is the better.
    """

    length, NOISE = 10, 0.5

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-np.inf, np.inf, (16,), np.float32)
        self.action_space = spaces.Discrete(2)

    def _observe(self) -> np.ndarray:
        self.seen = self.np_random.normal(size=16).astype(np.float32)
        return self.seen

    def _act(self, action: int) -> tuple[float, dict[str, Any]]:
        is_better = bool(action == (self.seen[0] > 0.0))
        reward = 0.1 * is_better + float(self.np_random.normal(scale=self.NOISE))
        return reward, {"success": is_better and self.time == self.length - 1}


class Recite(_Task):
    """Twenty symbols of four are shown one by one, then named in the same order."""

    NUM_ITEMS, SYMBOLS = 20, 4
    length = 2 * NUM_ITEMS

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Discrete(self.SYMBOLS + 1)
        self.action_space = spaces.Discrete(self.SYMBOLS)

    def _start(self) -> None:
        self.symbols = self.np_random.integers(self.SYMBOLS, size=self.NUM_ITEMS)

    def _observe(self) -> int:
        return int(self.symbols[self.time]) if self.time < self.NUM_ITEMS else self.SYMBOLS

    def _act(self, action: int) -> tuple[float, dict[str, Any]]:
        if self.time < self.NUM_ITEMS:
            return 0.0, {}
        return float(action == self.symbols[self.time - self.NUM_ITEMS]) / self.NUM_ITEMS, {}


class WithoutVelocities(gymnasium.ObservationWrapper[Any, Any, Any]):
    """CartPole that observes positions only."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, spaces.Box)
        self.observation_space = spaces.Box(space.low[::2], space.high[::2], dtype=np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[::2]


def cart_pole_without_velocities() -> gymnasium.Env[Any, Any]:
    return WithoutVelocities(gymnasium.make("CartPole-v1"))


@dataclass(frozen=True)
class UnaidedTask:
    """A task and its budget."""

    env: EnvConfig
    env_steps: int
    good: float
    """Score of a good policy: the optimum, or the best known where that is out of reach. Estimates in Minesweeper and
    Battleship, where naming every cell once earns 0.08."""
    random: float
    """Score of uniformly random actions over 1,024 trials (`python benchmarks/unaided.py --measure-random`); in T-mazes
    that of a guess at the junction, since random actions never arrive there."""
    measure: Literal["return_mean", "success_rate"] = "return_mean"

    def score(self, result: dict[str, Any]) -> float:
        """Return the normalized score of an evaluation: 0 is random, 1 is good."""
        return min(max((result[self.measure] - self.random) / (self.good - self.random), 0.0), 1.0)


def _own(env_fn: Callable[[], gymnasium.Env[Any, Any]], horizon: int) -> EnvFnConfig:
    return EnvFnConfig(env_fn=env_fn, horizon=horizon, num_workers=0)


def _registered(env_id: str, horizon: int) -> EnvFnConfig:
    return _own(partial(gymnasium.make, env_id), horizon)


def _popgym(name: str) -> PopgymConfig:
    return PopgymConfig(name=name, num_workers=0)


def _minigrid(name: str, horizon: int) -> MinigridConfig:
    return MinigridConfig(name=name, horizon=horizon, num_workers=0)


SUCCESS: Literal["success_rate"] = "success_rate"

TASKS: dict[str, UnaidedTask] = {
    "cartpole": UnaidedTask(_registered("CartPole-v1", 500), 100_000, 500.0, 22.4),
    "cartpole-positions": UnaidedTask(_own(cart_pole_without_velocities, 500), 50_000, 500.0, 22.4),
    "acrobot": UnaidedTask(_registered("Acrobot-v1", 500), 100_000, -85.0, -499.2),
    "pendulum": UnaidedTask(_registered("Pendulum-v1", 200), 50_000, -150.0, -1229.0),
    "mountain-car-continuous": UnaidedTask(_registered("MountainCarContinuous-v0", 999), 100_000, 93.0, -33.2),
    "lunar-lander": UnaidedTask(_registered("LunarLander-v3", 1000), 150_000, 250.0, -183.5),
    "memory-length-30": UnaidedTask(_own(partial(Memory, 30), 31), 50_000, 1.0, 0.0),
    "memory-length-100": UnaidedTask(_own(partial(Memory, 100), 101), 100_000, 1.0, 0.0),
    "memory-size-10": UnaidedTask(_own(partial(Memory, 2, 10), 3), 50_000, 1.0, 0.0),
    "umbrella-20": UnaidedTask(_own(Umbrella, 20), 200_000, 1.0, 0.5, SUCCESS),
    "discounting-chain": UnaidedTask(_own(DiscountingChain, 100), 50_000, 1.0, 0.2, SUCCESS),
    "deep-sea-10": UnaidedTask(_own(DeepSea, 10), 50_000, 0.99, 0.0),
    "catch": UnaidedTask(_own(Catch, 9), 30_000, 1.0, -0.617),
    "repeat-previous": UnaidedTask(_popgym("RepeatPreviousEasy"), 100_000, 1.0, -0.5),
    "count-recall": UnaidedTask(_popgym("CountRecallEasy"), 150_000, 0.98, -0.924),
    "autoencode": UnaidedTask(_popgym("AutoencodeEasy"), 100_000, 1.0, -0.5),
    "higher-lower": UnaidedTask(_popgym("HigherLowerEasy"), 100_000, 0.531, 0.0),
    "position-only-cartpole": UnaidedTask(_popgym("PositionOnlyCartPoleEasy"), 100_000, 1.0, 0.112),
    "multiarmed-bandit": UnaidedTask(_popgym("MultiarmedBanditEasy"), 100_000, 0.631, 0.0),
    "mine-sweeper": UnaidedTask(_popgym("MineSweeperEasy"), 100_000, 0.7, -0.235),
    "battleship": UnaidedTask(_popgym("BattleshipEasy"), 100_000, 0.3, -0.456),
    "tmaze-30": UnaidedTask(PassiveTMazeConfig(horizon=30), 50_000, 1.0, 0.5, SUCCESS),
    "tmaze-100": UnaidedTask(PassiveTMazeConfig(horizon=100), 100_000, 1.0, 0.5, SUCCESS),
    "first-action-128": UnaidedTask(_own(FirstAction, 128), 100_000, 1.0, 0.5),
    "dark-key-to-door-5": UnaidedTask(DarkKeyToDoorConfig(size=5, horizon=100, attempt_length=25), 200_000, 17.0, 1.9),
    "wind": UnaidedTask(WindConfig(), 300_000, 62.0, 0.0),
    "package-delivery": UnaidedTask(PackageDeliveryConfig(), 300_000, 2.97, 0.18),
    "maze-runner-15": UnaidedTask(MazeRunnerConfig(), 300_000, 1.9, 0.38),
    "minigrid-memory-s7": UnaidedTask(_minigrid("MiniGrid-MemoryS7-v0", 245), 150_000, 0.977, 0.165),
    "minigrid-door-key-5x5": UnaidedTask(_minigrid("MiniGrid-DoorKey-5x5-v0", 250), 150_000, 0.96, 0.037),
    "combination": UnaidedTask(_own(Combination, 12), 50_000, 1.0, 1 / 12),
    "hidden-platform": UnaidedTask(_own(HiddenPlatform, 160), 150_000, 14.5, 0.14),
    "noisy-choice": UnaidedTask(_own(NoisyChoice, 10), 100_000, 1.0, 0.5, SUCCESS),
    "recite-20": UnaidedTask(_own(Recite, 40), 100_000, 1.0, 0.25),
    "recall-dict": UnaidedTask(_own(Recall, 30), 100_000, 1.0, 0.25),
    "blinking-catch-pixels": UnaidedTask(_own(partial(Catch, images=True), 9), 30_000, 1.0, -0.617),
}
