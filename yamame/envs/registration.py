"""Environments by their Gymnasium id, our own among them."""

import difflib
import warnings
from typing import Any

import gymnasium

from yamame.errors import UserError


def register_environments() -> None:
    """Let `gymnasium.make` and `make_vec` know `yamame/...`; a second call does nothing."""
    if "yamame/PassiveTMaze-v0" in gymnasium.registry:
        return
    maze, batched_maze = "yamame.envs.single_env:make_tmaze", "yamame.envs.tmaze:TMazeVectorEnv"
    gymnasium.register(
        "yamame/PassiveTMaze-v0", entry_point=maze, vector_entry_point=batched_maze, kwargs={"passive": True}
    )
    gymnasium.register(
        "yamame/ActiveTMaze-v0", entry_point=maze, vector_entry_point=batched_maze, kwargs={"passive": False}
    )
    gymnasium.register(
        "yamame/DarkKeyToDoor-v0",
        entry_point="yamame.envs.single_env:make_dark_key_to_door",
        vector_entry_point="yamame.envs.dark_key_to_door:DarkKeyToDoorVectorEnv",
    )
    gymnasium.register(
        "yamame/Wind-v0",
        entry_point="yamame.envs.single_env:make_wind",
        vector_entry_point="yamame.envs.wind:WindVectorEnv",
    )


def make_env(environment_id: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """`gymnasium.make`, with its errors in one line that says what to do."""
    rendering: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*render_mode")  # told when it is looked at
            return gymnasium.make(environment_id, disable_env_checker=True, **rendering)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        nearest = difflib.get_close_matches(environment_id, list(gymnasium.registry), n=1)
        hint = (
            f"did you mean {nearest[0]!r}?"
            if nearest
            else "import the package that registers it (id 'package:Name-v0')"
        )
        raise UserError(f"Gymnasium has no environment {environment_id!r}: {hint}") from error
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise UserError(f"environment {environment_id!r} needs a package that is not installed: {error}") from error
    except TypeError as error:
        if render_mode is None:
            raise
        raise UserError(f"environment {environment_id!r} cannot be filmed: it takes no render_mode") from error
    except gymnasium.error.Error as error:
        raise UserError(f"Gymnasium cannot make environment {environment_id!r}: {error}") from error
