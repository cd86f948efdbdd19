"""Any environment registered with Gymnasium."""

import difflib
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gymnasium
from typing_extensions import override

from yamame.config.named_code import import_function, import_trusted_modules
from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import SingleEnvConfig
from yamame.envs.goal_tolerance import make_goal_trials
from yamame.errors import UserError, check_range


@dataclass(frozen=True, kw_only=True)
class GymnasiumConfig(SingleEnvConfig):
    """A registered Gymnasium environment."""

    id: str = "CartPole-v1"
    """Gymnasium id; `module:Name-v0` imports the module first."""
    horizon: int
    """Maximum number of steps of a trial, over all its attempts."""
    attempts: int | None = 1
    """Episodes of a trial, all on one task; memory is kept between them. None: as many as fit into the horizon."""
    goal_tolerance: float | None = None
    """Maximum difference, in each number of a goal, at which it counts as reached; for environments with goals. None:
    0.001, or for an environment with `compute_reward`, as in Gymnasium-Robotics, the distance at which it falls; if it
    falls gradually, goals are observations like others, and the reward is the environment's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "goal_tolerance", ge=0)
        check_range(self, "horizon", "attempts", ge=1)

    @property
    @override
    def task_name(self) -> str:
        return self.id.rpartition(":")[2].replace("/", "-")

    @property
    @override
    def required_extra(self) -> str:
        return extra_of(self.id)

    @property
    def imported_modules(self) -> tuple[str, ...]:
        """The module that making the environment imports, if any."""
        return (self.id.partition(":")[0],) if ":" in self.id else ()

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        return self._build(partial(make_env, self.id), num_envs, seed)

    @override
    def build_for_rendering(self, seed: int) -> TrialVectorEnv:
        env_fn = partial(make_env, self.id, render_mode="rgb_array")
        return replace(self, num_workers=0)._build(env_fn, 1, seed)

    def _build(self, env_fn: Callable[[], Any], num_envs: int, seed: int) -> TrialVectorEnv:
        envs = self.make_vector_env(env_fn, num_envs, seed)
        return make_goal_trials(
            envs, env_fn, tolerance=self.goal_tolerance, horizon=self.horizon, attempts=self.attempts
        )


def is_env_id(name: str) -> bool:
    """Return whether a name is a Gymnasium id, registered or not: it ends in a version, such as `CartPole-v1`."""
    return name in gymnasium.registry or re.search(r"-v\d+$", name) is not None


def find_env(name: str) -> Callable[[], Any] | str:
    """Return the function that a caller names as `module:function`, imported; a Gymnasium id as it is."""
    return name if is_env_id(name) else import_function(name)


def extra_of(env_id: str) -> str:
    """Return the extra of this package that installs what an environment of Gymnasium needs; "" if none does."""
    spec = gymnasium.registry.get(env_id)
    family = re.match(r"gymnasium\.envs\.(box2d|mujoco)\b", str(spec.entry_point) if spec else "")
    return family[1] if family else ""


def make_env(env_id: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Return `gymnasium.make(env_id)` without the environment checker. Raises `UserError` if it fails."""
    rendering: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*render_mode")  # an error if frames are needed
            return gymnasium.make(env_id, disable_env_checker=True, **rendering)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        if import_trusted_modules():  # they may register it
            return make_env(env_id, render_mode)
        nearest = difflib.get_close_matches(env_id, list(gymnasium.registry), n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise UserError(
            f"Gymnasium has no environment {env_id!r}: {hint}An id 'package:Name-v0' imports its package first, "
            "--import MODULE (in Python: modules=) the module that registers it"
        ) from error
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        extra = extra_of(env_id)
        action = f"pip install 'yamame[{extra}]'" if extra else str(error)
        raise UserError(f"environment {env_id!r} needs a package that is not installed: {action}") from error
    except TypeError as error:
        if render_mode is None:
            raise
        raise UserError(f"environment {env_id!r} cannot render: its constructor has no argument render_mode") from error
    except gymnasium.error.Error as error:
        raise UserError(f"Gymnasium cannot make environment {env_id!r}: {error}") from error
