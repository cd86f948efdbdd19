"""Registration of environments with Gymnasium, and creation by id."""

import difflib
import warnings
from typing import Any

import gymnasium

from yamame.errors import UserError


def register_environments() -> None:
    """Register `yamame/...` for `gymnasium.make` and `gymnasium.make_vec`. Idempotent."""
    if "yamame/PassiveTMaze-v0" in gymnasium.registry:
        return
    for name, module, stem, kwargs in (
        ("PassiveTMaze", "tmaze", "TMaze", {"passive": True}),
        ("ActiveTMaze", "tmaze", "TMaze", {"passive": False}),
        ("DarkKeyToDoor", "dark_key_to_door", "DarkKeyToDoor", {}),
        ("Wind", "wind", "Wind", {}),
    ):
        gymnasium.register(
            f"yamame/{name}-v0",
            entry_point=f"yamame.envs.{module}:{stem}Env",
            vector_entry_point=f"yamame.envs.{module}:{stem}VectorEnv",
            kwargs=kwargs,
        )


def make_env(env_id: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Return `gymnasium.make(env_id)` without the environment checker. Raises `UserError` if it fails."""
    rendering: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*render_mode")  # an error if frames are needed
            return gymnasium.make(env_id, disable_env_checker=True, **rendering)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        nearest = difflib.get_close_matches(env_id, list(gymnasium.registry), n=1)
        hint = (
            f"did you mean {nearest[0]!r}?"
            if nearest
            else "import the package that registers it (id 'package:Name-v0')"
        )
        raise UserError(f"Gymnasium has no environment {env_id!r}: {hint}") from error
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise UserError(f"environment {env_id!r} needs a package that is not installed: {error}") from error
    except TypeError as error:
        if render_mode is None:
            raise
        raise UserError(f"environment {env_id!r} cannot render: its constructor has no argument render_mode") from error
    except gymnasium.error.Error as error:
        raise UserError(f"Gymnasium cannot make environment {env_id!r}: {error}") from error
