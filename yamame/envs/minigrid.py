"""MiniGrid and BabyAI: partially observed rooms and missions in words (Chevalier-Boisvert et al. 2023)."""

import importlib
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from typing_extensions import override

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import SingleEnvConfig
from yamame.envs.gymnasium import make_env
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import ConfigFieldError, UserError, check_range

# fmt: off
VOCABULARY = (
    ",", "a", "after", "and", "at", "avoid", "ball", "behind", "blue", "box", "door", "end", "fetch", "find",
    "from", "front", "get", "go", "goal", "green", "grey", "hallway", "in", "key", "left", "lava", "matching",
    "must", "near", "next", "object", "of", "on", "open", "opening", "pick", "purple", "put", "reach", "red",
    "right", "room", "rooms", "square", "the", "then", "to", "traverse", "unlock", "up", "use", "yellow", "you",
    "your",
)
# fmt: on
"""Words of missions; word i is the token i + 1, and 0 is padding."""
_TOKEN_OF = {word: token for token, word in enumerate(VOCABULARY, start=1)}
_MAX_SEED = 2**31 - 1


class MinigridEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A MiniGrid environment with its mission as tokens and with tasks that can be repeated.

    Observation: `image`, the cells in front of the agent, each an object, a color and a state; `direction`; `mission`,
    `mission_words` tokens. A task is everything that a reset samples, the room and the mission. If
    `options["new_task"]` is False it is repeated, including later random events (moving objects). The reward is
    MiniGrid's: `1 - 0.9 steps / limit` at the end if the mission succeeded in time. `info["success"]`: this step ended
    the episode with a reward. Raises `UserError` for longer missions.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], *, mission_words: int) -> None:
        super().__init__(env)
        constants = importlib.import_module("minigrid.core.constants")
        sizes = [len(constants.OBJECT_TO_IDX), len(constants.COLOR_TO_IDX), len(constants.STATE_TO_IDX)]
        declared = env.observation_space
        assert isinstance(declared, spaces.Dict)
        view = declared["image"].shape
        assert view is not None
        self.observation_space = spaces.Dict(
            {
                "image": spaces.MultiDiscrete(np.broadcast_to(sizes, view)),
                "direction": declared["direction"],
                "mission": spaces.MultiDiscrete([len(VOCABULARY) + 1] * mission_words),
            }
        )
        self._mission_words = mission_words
        self._task_seed: int | None = None
        self._task_rng = np.random.default_rng()  # not that of the level, which each task seeds

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None:
            self._task_rng = np.random.default_rng(seed)
        if self._task_seed is None or (options or {}).get("new_task", True):
            self._task_seed = int(self._task_rng.integers(_MAX_SEED))
        observation, info = self.env.reset(seed=self._task_seed)
        return self._encode(observation), info

    @override
    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward = float(reward)
        success = terminated and reward > 0.0
        return self._encode(observation), reward, terminated, truncated, {**info, "success": success}

    def _encode(self, observation: dict[str, Any]) -> dict[str, Any]:
        return {
            "image": observation["image"].astype(np.int64),
            "direction": observation["direction"],
            "mission": encode_mission(observation["mission"], self._mission_words),
        }


def encode_mission(mission: str, count: int) -> np.ndarray:
    """Return the words and commas of a mission as `count` tokens, padded with zeros.

    Raises:
        UserError: If there are more words, or words outside `VOCABULARY`.
    """
    words = re.findall(r"[^\s,]+|,", mission.lower())
    if len(words) > count:
        raise UserError(f"the mission {mission!r} has {len(words)} words: set env.mission_words to at least that")
    unknown = [word for word in words if word not in _TOKEN_OF]
    if unknown:
        raise UserError(f"the mission {mission!r} has the unknown word {unknown[0]!r}: choose another environment")
    tokens = np.zeros(count, np.int64)
    tokens[: len(words)] = [_TOKEN_OF[word] for word in words]
    return tokens


@dataclass(frozen=True, kw_only=True)
class MinigridConfig(SingleEnvConfig):
    """A MiniGrid or BabyAI environment by its Gymnasium id."""

    action_names = ("left", "right", "forward", "pick up", "drop", "toggle", "done")

    name: str = "MiniGrid-MemoryS7-v0"
    """Gymnasium id, such as `MiniGrid-MemoryS13-v0` or `BabyAI-GoToLocal-v0`."""
    horizon: int = 245
    """Maximum number of steps of a trial, over all its attempts. MiniGrid itself truncates an attempt after 245 steps
    in MemoryS7, 845 in MemoryS13, 64 in BabyAI-GoToLocal."""
    attempts: int | None = 1
    """Attempts of a trial, all in one room; None: as many as fit into the horizon."""
    mission_words: int = 16
    """Maximum number of words of a mission. Compound missions of BabyAI have up to 72."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "horizon", "attempts", "mission_words", ge=1)
        if not self.name.startswith(("MiniGrid-", "BabyAI-")):
            raise ConfigFieldError(self, "name", f"must start with MiniGrid- or BabyAI-, not be {self.name!r}")

    @property
    @override
    def required_extra(self) -> str:
        return "minigrid"

    @property
    @override
    def task_name(self) -> str:
        return self.name

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        env_fn = partial(make_minigrid, self.name, mission_words=self.mission_words)
        return TrialWrapper(self.make_vector_env(env_fn, num_envs, seed), horizon=self.horizon, attempts=self.attempts)


def make_minigrid(name: str, *, mission_words: int) -> MinigridEnv:
    """Return one environment. Raises `UserError` if the id is unknown or the package is not installed."""
    try:
        importlib.import_module("minigrid")
        levels: Any = importlib.import_module("minigrid.envs.babyai.core.roomgrid_level")
    except ImportError as error:
        raise UserError(f"environment {name!r} needs the package minigrid: pip install 'yamame[minigrid]'") from error
    levels.print = lambda *_: None  # BabyAI prints every room that it rejects on stdout, which is for results
    return MinigridEnv(make_env(name), mission_words=mission_words)
