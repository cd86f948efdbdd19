"""A user's own environments: made by a function, or registered with Gymnasium."""

import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, TimeLimit
from gymnasium.wrappers.vector import NormalizeObservation as NormalizeVectorObservation
from gymnasium.wrappers.vector import NormalizeReward as NormalizeVectorReward
from typing_extensions import override

from yamame.config.named_code import import_name
from yamame.envs.base import EpisodeVectorEnv, TrialVectorEnv
from yamame.envs.config import EnvConfig, SingleEnvConfig
from yamame.envs.goal_tolerance import make_goal_trials
from yamame.envs.gymnasium import GymnasiumConfig, make_env
from yamame.envs.pettingzoo import AgentVectorEnv, default_vector_size, is_parallel_env
from yamame.envs.vector.construction import call_env_fn
from yamame.envs.vector.faults import close_envs
from yamame.envs.vector.gymnasium_adapter import make_episode_vector_env
from yamame.envs.working_directory import kept_working_directory
from yamame.envs.wrapper_chain import wrapper_chain
from yamame.envs.wrappers.restarting import RestartingVectorEnv
from yamame.errors import ConfigFieldError, UserError, check_range, describe_error

EnvFn = Callable[[], Any]
"""Makes a new `gymnasium.Env`, `gymnasium.vector.VectorEnv` or `pettingzoo.ParallelEnv` at each call."""

DEFAULT_TIME_LIMIT = 1_000
"""Maximum number of steps of an episode if neither the environment nor `horizon` sets one."""

_LIMIT_ATTRIBUTES = ("_max_episode_steps", "max_episode_steps", "max_steps", "_max_steps")
_MAX_LIMIT = 10_000_000
_NORMALIZING = (NormalizeObservation, NormalizeReward, NormalizeVectorObservation, NormalizeVectorReward)


@dataclass(frozen=True, kw_only=True)
class EnvFnConfig(SingleEnvConfig):
    """Environments made by a function without arguments: single ones, a vector environment, or PettingZoo's."""

    env_fn: EnvFn
    """Makes a new environment at each call: a `gymnasium.Env`; with `vector_size` a `gymnasium.vector.VectorEnv` or a
    `pettingzoo.ParallelEnv`."""
    horizon: int
    """Maximum number of steps of a trial, over all its attempts."""
    attempts: int | None = 1
    """Episodes of a trial, all on one task; memory is kept between them. None: as many as fit into the horizon."""
    goal_tolerance: float | None = None
    """Maximum difference, in each number of a goal, at which it counts as reached; for environments with goals. None:
    0.001, or for an environment with `compute_reward`, as in Gymnasium-Robotics, the distance at which it falls; if it
    falls gradually, goals are observations like others, and the reward is the environment's."""

    eval_env_fn: EnvFn | None = None
    """Makes an environment of the test tasks, by which results are measured; None: they are the training tasks."""
    vector_size: int | None = None
    """Number of environments of the vector environment that `env_fn` makes, or of agents in all copies of the parallel
    environment that it makes; None: it makes single environments."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("horizon", "attempts"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int | np.integer | None):
                raise ConfigFieldError(self, name, f"must be a whole number, got {number!r}")
        if not (self.eval_env_fn is None or callable(self.eval_env_fn)):
            found = type(self.eval_env_fn).__name__
            raise ConfigFieldError(
                self, "eval_env_fn", f"must be a class or function that returns a new environment, got a {found}"
            )
        check_range(self, "goal_tolerance", ge=0)
        check_range(self, "horizon", "attempts", "vector_size", ge=1)
        if self.vector_size and self.num_workers:
            raise ConfigFieldError(self, "num_workers", "must be left out: a vector environment runs in this process")

    @property
    @override
    def task_name(self) -> str:
        function = self.env_fn
        while isinstance(function, partial):
            function = function.func
        name = getattr(function, "__name__", type(function).__name__)
        return "custom" if name == "<lambda>" else name.strip("_").replace("_", "-")

    @property
    @override
    def required_num_envs(self) -> int | None:
        return self.vector_size

    @override
    def eval_config(self) -> "EnvFnConfig":
        """Return the config of the test tasks."""
        return self if self.eval_env_fn is None else replace(self, env_fn=self.eval_env_fn, eval_env_fn=None)

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        envs = (
            RestartingVectorEnv(partial(self._adapt_vector_env, num_envs=num_envs), seed)
            if self.vector_size
            else self.make_vector_env(self.env_fn, num_envs, seed)
        )
        return make_goal_trials(
            envs, self.env_fn, tolerance=self.goal_tolerance, horizon=self.horizon, attempts=self.attempts
        )

    def _adapt_vector_env(self, seed: int, *, num_envs: int) -> EpisodeVectorEnv:
        env = call_env_fn(self.env_fn)
        if is_parallel_env(env):
            return self._adapt_parallel_env(env, seed, num_envs=num_envs)
        if not isinstance(env, VectorEnv):
            raise UserError(
                f"the function makes single environments, where vector environments of {num_envs} are expected: let "
                "env_fn and eval_env_fn both make single environments, or both vector environments of the same size "
                "(in an EnvFnConfig leave vector_size out)"
            )
        if env.num_envs != num_envs:
            raise UserError(
                f"the function makes a vector environment of {env.num_envs}, expected {num_envs}: set num_envs to "
                f"{env.num_envs}; eval_env_fn must make vector environments of the same size as env_fn"
            )
        return make_episode_vector_env(self.filter_observations(env), seed, action_mask_key=self.action_mask_key)

    def _adapt_parallel_env(self, first: Any, seed: int, *, num_envs: int) -> EpisodeVectorEnv:
        num_agents = len(first.possible_agents)
        if num_envs % num_agents:
            raise UserError(f"{num_envs} rows are no multiple of {num_agents} agents: set vector_size and num_envs")
        if self.attempts != 1:
            raise UserError("agents that share an environment cannot repeat a task: use attempts=1")
        if self.obs_keys or self.drop_obs_keys:
            raise UserError("obs_keys and drop_obs_keys are for Gymnasium: select with a wrapper of PettingZoo")
        envs = [first]
        try:
            envs += [call_env_fn(self.env_fn) for _ in range(num_envs // num_agents - 1)]
        except Exception as error:
            first.close()
            raise UserError(
                f"env_fn failed to make another copy beside the first ({describe_error(error)}): fix it, or pass "
                f"env={{'vector_size': {num_agents}}} and num_envs={num_agents} if only one can exist"
            ) from error
        return AgentVectorEnv(envs, seed, action_mask_key=self.action_mask_key)


@kept_working_directory()
def env_config(env: EnvFn | str, *, horizon: int | None, attempts: int | None) -> EnvFnConfig | GymnasiumConfig:
    """Return the config of a function's environments or of a Gymnasium id, after making one.

    Args:
        env: Function, or id of a registered environment.
        horizon: Maximum number of steps of a trial; None: the time limit of the environment (`find_time_limit`) times
            `attempts`. If it has none, `DEFAULT_TIME_LIMIT` is used, which is printed.
        attempts: Episodes of a trial; None: as many as fit into the horizon.

    Raises:
        UserError: If the environment cannot be made, or `horizon` and `attempts` are both None.
    """
    if not (isinstance(env, str) or callable(env)):
        raise UserError(
            f"expected the name of a recipe, a Gymnasium id or a function, got {type(env).__name__}: pass a class or "
            "function without arguments that returns a new environment"
        )
    made = make_env(env) if isinstance(env, str) else call_env_fn(env)
    vector_size, time_limit = None, None
    if is_parallel_env(made):
        vector_size = default_vector_size(made)
    elif isinstance(made, gymnasium.Env | VectorEnv):
        vector_size = made.num_envs if isinstance(made, VectorEnv) else None
        time_limit = find_time_limit(made)
        _name_normalizing_wrappers(made)
    else:
        raise UserError(f"expected the function to return a gymnasium.Env or VectorEnv, got {type(made).__name__}")
    close_envs([made])
    if horizon is None:
        if attempts is None:
            raise UserError("as many attempts as fit into the horizon: pass horizon=, the maximum length of a trial")
        if time_limit is None:
            time_limit = DEFAULT_TIME_LIMIT
            print(
                f"the environment has no time limit: its episodes end after {time_limit:,} steps at the latest; "
                "horizon= sets another maximum",
                file=sys.stderr,
            )
        horizon = time_limit * attempts
    if isinstance(env, str):
        return GymnasiumConfig(id=env, horizon=horizon, attempts=attempts)
    return EnvFnConfig(env_fn=env, horizon=horizon, attempts=attempts, vector_size=vector_size)


def _name_normalizing_wrappers(env: Any) -> None:
    """Print a line for each of Gymnasium's wrappers whose statistics move during a run."""
    for level in _levels(env):
        if isinstance(level, _NORMALIZING):
            print(
                f"{type(level).__name__} has statistics of its own in each environment, also in those of evaluations, "
                "so that results are not comparable: leave it out, the agent normalizes by itself",
                file=sys.stderr,
            )


def _levels(env: Any) -> Sequence[Any]:
    """Return an environment and all that it wraps, outermost first; of a `SyncVectorEnv`, also its first one."""
    levels = list(wrapper_chain(env))
    inner = wrapper_chain(levels[-1].envs[0]) if isinstance(levels[-1], SyncVectorEnv) else ()
    return [*levels, *inner]


def find_time_limit(env: gymnasium.Env[Any, Any] | VectorEnv) -> int | None:
    """Return the maximum number of steps of an episode; None: unknown.

    It is the smallest limit of the `TimeLimit`s among the wrappers, also of the environments in Gymnasium's vector
    environments; without one, that of the environment's spec; without both, an attribute of the environment or of a
    wrapper such as `max_steps`, which is printed.
    """
    levels = _levels(env)
    vector_env = next((level for level in reversed(levels) if isinstance(level, VectorEnv)), None)
    limits = [level._max_episode_steps for level in levels if isinstance(level, TimeLimit)]
    if isinstance(vector_env, AsyncVectorEnv) and all(vector_env.call("has_wrapper_attr", "_max_episode_steps")):
        limits += vector_env.get_attr("_max_episode_steps")
    if limits:
        return min(limits)
    specs = (getattr(level, "spec", None) for level in levels)
    limit: int | None = next(filter(None, map(_limit_of_spec, specs)), None)
    return _limit_of_attribute(levels) if limit is None else limit


def _limit_of_spec(spec: Any) -> int | None:
    """Return the limit that a spec passes to the constructor of a vector environment, or else that of its wrapper."""
    limit: int | None = getattr(spec, "max_episode_steps", None)
    return getattr(spec, "kwargs", {}).get("max_episode_steps", limit)


def _limit_of_attribute(levels: Sequence[Any]) -> int | None:
    """Return the first attribute of a name of `_LIMIT_ATTRIBUTES` that is a positive integer, and print it.

    A property counts, an attribute that a wrapper passes on does not. Integers beyond `_MAX_LIMIT` stand for no limit.
    """
    for level in levels:
        for name in _LIMIT_ATTRIBUTES:
            limit = inspect.getattr_static(level, name, None)
            if isinstance(limit, property):
                with suppress(Exception):  # one that works after a reset only
                    limit = getattr(level, name)
            is_integer = isinstance(limit, int | np.integer) and not isinstance(limit, bool)
            if is_integer and 0 < limit <= _MAX_LIMIT:
                print(
                    f"episodes end after {limit:,} steps at the latest, the {name} of {type(level).__name__}; "
                    "horizon= sets another maximum",
                    file=sys.stderr,
                )
                return int(limit)
    return None


def environment_flags(env: EnvConfig) -> str:
    """Return the flags that name the user's code of an environment, for a command that makes it."""
    if isinstance(env, EnvFnConfig):
        return name_function(import_name(env.env_fn), import_name(env.eval_env_fn))
    return "".join(f" --import {module}" for module in getattr(env, "imported_modules", ()))


def name_function(name: str | None, test_name: str | None) -> str:
    """Return the flags for functions `module:function` that make training and test tasks."""
    module, test_module = ((each or "").partition(":")[0] for each in (name, test_name))
    imports = f" --import {test_module}" if test_module and test_module != module else ""
    return f" --env {name or 'MODULE:FUNCTION'}{imports}"
