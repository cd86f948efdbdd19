"""Base classes of environment configs. A recipe selects its task by the config class."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper
from jaxtyping import Float32, Shaped
from typing_extensions import override

from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY
from yamame.data.schema import TaskSpec
from yamame.data.spaces import leaf_names, select_leaves
from yamame.envs.base import EpisodeVectorEnv, TrialVectorEnv
from yamame.envs.vector.autotune import make_vector_env
from yamame.envs.vector.subproc import STEP_TIMEOUT_SECONDS
from yamame.errors import UserError, check_range


@dataclass(frozen=True, kw_only=True)
class EnvConfig(ABC):
    """A task and its settings. `build` makes vector environments of it."""

    @property
    @abstractmethod
    def task_name(self) -> str:
        """Name of the task, valid in file names and metrics, such as `passive-tmaze-30`."""

    @property
    def max_trial_steps(self) -> int:
        """Maximum number of transitions of a trial, the horizon of the result of `build`; here the field `horizon`."""
        return self.horizon  # type: ignore[attr-defined]  # configs without it override this

    @property
    def required_num_envs(self) -> int | None:
        """The only number of environments that `build` accepts; None: any."""
        return None

    @property
    def required_extra(self) -> str:
        """Extra of this package that installs what the task needs, such as `popgym`; "": none, or not known."""
        return ""

    @property
    def action_mask_key(self) -> str:
        """Name of the action mask: a leaf of the observation or a key of info."""
        return ACTION_MASK_KEY

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the discrete actions, or of the dimensions of a continuous action; empty: unnamed."""
        return ()

    @property
    def observes_selection(self) -> bool:
        """Whether environments may return leaves of an observation that the policy does not observe."""
        return False

    def eval_config(self) -> "EnvConfig":
        """Return the evaluation config: the test tasks if the benchmark has them, else this config."""
        return self

    @abstractmethod
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """Build `num_envs` trials stepped together. All randomness follows from `seed`.

        Raises:
            UserError: If the settings, the spaces or the installed packages do not allow it.
        """

    def task_spec(self, envs: TrialVectorEnv) -> TaskSpec:
        """Return the spaces and the horizon of environments that `build` returned."""
        return TaskSpec(
            observation_space=envs.observation_space,
            action_space=envs.env_action_space,
            horizon=envs.horizon,
            action_mask_key=self.action_mask_key,
        )

    def build_for_rendering(self, seed: int) -> TrialVectorEnv:
        """Build as few environments as possible, the first of which can be rendered if the task has frames."""
        return self.build(self.required_num_envs or 1, seed)


@dataclass(frozen=True, kw_only=True)
class SingleEnvConfig(EnvConfig):
    """A task of single Gymnasium environments, which worker processes can step."""

    num_workers: int | None = None
    """Subprocesses that step the environments (unset: autotuned; 0: none). The results are the same."""
    step_timeout_seconds: float = STEP_TIMEOUT_SECONDS
    """Seconds after which a worker that has not finished a step is killed and restarted; 0: never. A reset may take ten
    times as long."""
    action_mask_key: str = ACTION_MASK_KEY
    """Name of the action mask: a leaf of the observation or, if there is none, a key of info. '': no action masks."""
    obs_keys: tuple[str, ...] = ()
    """Leaves to keep, such as `image` or `body/angle`, and with them goals and the action mask; empty: all."""
    drop_obs_keys: tuple[str, ...] = ()
    """Leaves of the observation to drop."""

    def __post_init__(self) -> None:
        check_range(self, "num_workers", "step_timeout_seconds", ge=0)
        check_range(self, "num_workers", le=1024)

    @property
    @override
    def observes_selection(self) -> bool:
        return bool(self.obs_keys or self.drop_obs_keys)

    @override
    def build_for_rendering(self, seed: int) -> TrialVectorEnv:
        return replace(self, num_workers=0).build(self.required_num_envs or 1, seed)  # frames come from this process

    def make_vector_env(self, env_fn: Callable[[], Any], num_envs: int, seed: int) -> EpisodeVectorEnv:
        """Make `num_envs` environments with `env_fn`, configured by these fields. Raises `UserError` as `build`."""
        return make_vector_env(
            partial(self._make_filtered, env_fn),
            num_envs,
            seed,
            self.num_workers,
            action_mask_key=self.action_mask_key,
            step_timeout_seconds=self.step_timeout_seconds,
        )

    def filter_observations(self, env: Any) -> Any:
        """Return a Gymnasium environment, single or vector, whose observation space has only the selected leaves.

        Observations pass unchanged: leaves outside the space are never read. Raises `UserError` for unknown names.
        """
        if not self.obs_keys and not self.drop_obs_keys:
            return env
        if isinstance(env, VectorEnv):
            vector_wrapper = VectorWrapper(env)
            vector_wrapper.single_observation_space = self._filter(env.single_observation_space)
            return vector_wrapper
        if isinstance(env, gymnasium.Env):
            wrapper: gymnasium.Wrapper[Any, Any, Any, Any] = gymnasium.Wrapper(env)
            wrapper.observation_space = self._filter(env.observation_space)
            return wrapper
        return env

    def _make_filtered(self, env_fn: Callable[[], Any]) -> Any:
        return self.filter_observations(env_fn())

    def _filter(self, space: spaces.Space[Any]) -> spaces.Space[Any]:
        keys = self.obs_keys
        if keys:
            parts = space.spaces if isinstance(space, spaces.Dict) else {}
            goals = (ACHIEVED_KEY, DESIRED_KEY) if {ACHIEVED_KEY, DESIRED_KEY} <= parts.keys() else ()
            masks = (self.action_mask_key,) if self.action_mask_key in leaf_names(space) else ()
            keys = tuple(dict.fromkeys((*keys, *goals, *masks)))
        return select_leaves(space, keys, self.drop_obs_keys)


class SupportsSolution(ABC):
    """Mix-in of an `EnvConfig` whose tasks can be solved by who knows what the agent must find out."""

    @abstractmethod
    def solve(self, envs: TrialVectorEnv) -> Shaped[np.ndarray, "E ..."]:
        """Return the best action of every environment, in the action space of the policy.

        Args:
            envs: Environments that `build` returned, after their `reset`.
        """


@dataclass(frozen=True, kw_only=True)
class GoalEnvConfig(EnvConfig):
    """A task whose agents follow instructions: sequences of sub-goals."""

    max_goals: int
    """Maximum number of sub-goals of an instruction; 1: the ablation "w/o multi-goal"."""
    hide_future_goals: bool = False
    """Show no sub-goal after the active one: the ablation "w/o full instruction"."""

    def __post_init__(self) -> None:
        check_range(self, "max_goals", ge=1)

    def with_instruction(self, text: str) -> "GoalEnvConfig":
        """Return the task with a fixed instruction in every trial. Raises `UserError` if the task cannot do that."""
        raise UserError(f"{self.task_name} samples its own instructions: leave --instruction out")

    def goal_text(self, goal: Float32[np.ndarray, "goal"]) -> str:
        """Return a sub-goal as text for people to read."""
        return "(" + ", ".join(f"{number:g}" for number in goal) + ")"


def apply_instruction(env: EnvConfig, instruction: str) -> EnvConfig:
    """Return the task with a fixed instruction in every trial; `env` itself if `instruction` is empty.

    Raises:
        UserError: If the task has no instructions, or not this one.
    """
    if not instruction:
        return env
    if not isinstance(env, GoalEnvConfig):
        raise UserError(f"{env.task_name} has no instructions: leave --instruction out")
    return env.with_instruction(instruction)
