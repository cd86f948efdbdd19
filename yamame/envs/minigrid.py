"""MiniGrid and BabyAI: rooms of which only a part is seen, and missions in words (Chevalier-Boisvert et al. 2023)."""

import importlib
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import SingleEnvConfig
from yamame.envs.registration import make_env
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
"""What missions are made of; word i is the token i + 1, and 0 is behind the end."""
_TOKEN_OF = {word: token for token, word in enumerate(VOCABULARY, start=1)}
_MAX_SEED = 2**31 - 1


class MinigridEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A MiniGrid environment with its mission as tokens, and with tasks that can be repeated.

    Observation: `image`, the cells in front of the agent, each an object, a color and a state; `direction`; `mission`,
    `mission_words` tokens. A task is everything that a reset draws, the room and the mission; with
    `options["new_task"]` false it is repeated, and so is what is drawn afterwards (things that move). The reward is
    MiniGrid's: `1 - 0.9 steps / limit` at the end for what was done in time. `info["success"]`: this step ended the
    episode with a reward. Raises `UserError` for missions of more words.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], *, mission_words: int) -> None:
        super().__init__(environment)
        known = importlib.import_module("minigrid.core.constants")
        sizes = [len(known.OBJECT_TO_IDX), len(known.COLOR_TO_IDX), len(known.STATE_TO_IDX)]
        declared = environment.observation_space
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

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """As Gymnasium; a new task unless `options["new_task"]` is false."""
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        if self._task_seed is None or (options or {}).get("new_task", True):
            self._task_seed = int(self.np_random.integers(_MAX_SEED))
        seen, info = self.env.reset(seed=self._task_seed)
        return self._observation(seen), info

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """As Gymnasium."""
        seen, reward, terminated, truncated, info = self.env.step(action)
        earned = float(reward)
        success = terminated and earned > 0.0
        return self._observation(seen), earned, terminated, truncated, {**info, "success": success}

    def _observation(self, seen: dict[str, Any]) -> dict[str, Any]:
        mission = encode_mission(seen["mission"], self._mission_words)
        return {"image": seen["image"].astype(np.int64), "direction": seen["direction"], "mission": mission}


def encode_mission(mission: str, count: int) -> np.ndarray:
    """The words of a mission and its commas as `count` tokens, zeros at the end.

    Raises `UserError` where there are more, or words that are not in `WORDS`.
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

    name: str = "MiniGrid-MemoryS7-v0"
    """Id, such as `MiniGrid-MemoryS13-v0` or `BabyAI-GoToLocal-v0`."""
    horizon: int = 245
    """Largest number of steps of a trial, all its attempts together. MiniGrid ends an attempt by itself after 245 steps
    in MemoryS7, 845 in MemoryS13, 64 in BabyAI-GoToLocal."""
    attempts: int | None = 1
    """Attempts on one room that make a trial; None: as many as fit into the horizon."""
    mission_words: int = 16
    """Words of the longest mission. BabyAI's missions of several parts have up to 72."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "horizon", "attempts", "mission_words", ge=1)
        if not self.name.startswith(("MiniGrid-", "BabyAI-")):
            raise ConfigFieldError(self, "name", f"must begin with MiniGrid- or BabyAI-, not be {self.name!r}")

    @property
    def task_name(self) -> str:
        """The id."""
        return self.name

    @property
    def max_trial_steps(self) -> int:
        """The horizon."""
        return self.horizon

    @property
    def action_names(self) -> tuple[str, ...]:
        """See `EnvConfig.action_names`."""
        return ("left", "right", "forward", "pick up", "drop", "toggle", "done")

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build`; `UserError` for an unknown id names the nearest one."""
        make = partial(make_minigrid, self.name, mission_words=self.mission_words)
        return TrialWrapper(self.make_vector_env(make, num_envs, seed), horizon=self.horizon, attempts=self.attempts)


def make_minigrid(name: str, *, mission_words: int) -> MinigridEnv:
    """One environment. Raises `UserError` for an unknown id and where the package is missing."""
    try:
        importlib.import_module("minigrid")
        levels: Any = importlib.import_module("minigrid.envs.babyai.core.roomgrid_level")
    except ImportError as error:
        raise UserError(f"environment {name!r} needs the package minigrid: pip install 'yamame[minigrid]'") from error
    levels.print = _say_nothing  # BabyAI prints every room that it draws and rejects, on stdout, which is for results
    return MinigridEnv(make_env(name), mission_words=mission_words)


def _say_nothing(*_: Any) -> None:
    pass
