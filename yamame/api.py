"""The Python interface: `train`, `resume`, `load`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import VectorEnv

from yamame.environments.actions import native_action
from yamame.environments.factory import FactoryConfig
from yamame.model.policy import Policy
from yamame.records.errors import UserError
from yamame.records.spaces import flatten_observation
from yamame.records.step import PolicyInput
from yamame.run import session
from yamame.run.config import RunConfig
from yamame.run.defaults import default_config
from yamame.run.flags import apply_overrides
from yamame.run.session import About, Summary
from yamame.settings.catalogue import load_recipe
from yamame.settings.resolve import settings_from_overrides

EnvironmentFactory = Callable[[], gymnasium.Env[Any, Any] | VectorEnv]


@dataclass(frozen=True)
class Run:
    """A run on disk."""

    directory: Path
    summary: Summary
    """What `yamame train --json` prints."""

    def evaluate(self, trials: int | None = None, seed: int | None = None) -> Summary:
        """Judge the newest checkpoint: the same dict as `yamame eval --json` prints."""
        return session.evaluate_run(self.directory, trials=trials, seed=seed)

    def load(self, num_envs: int | None = None) -> "LoadedPolicy":
        """The trained policy."""
        return load(self.directory, num_envs=num_envs)


def train(
    task: str | EnvironmentFactory,
    *,
    horizon: int | None = None,
    attempts: int | None = 1,
    run_dir: str | Path | None = None,
    variants: Sequence[str] = (),
    quiet: bool = True,
    **settings: Any,
) -> Run:
    """Train on a recipe, or on the environments that a function of no arguments makes.

    `settings` are fields of the config, by name (`env_steps=…, seed=…`), as nested dicts (`env={"size": 5}`) or dotted
    (`**{"learner.learning_rate": 3e-4}`). For a function: `horizon` is the largest number of steps of a trial (taken
    from the environment's own time limit where it has one), `attempts` the number of episodes on one task that make a
    trial. Raises `UserError` for what cannot run.
    """
    if isinstance(task, str):
        recipe = load_recipe(task)
        config = settings_from_overrides(recipe, variants, settings)
        about = About(recipe=recipe.name, expected=recipe.about.get("expected", ""))
    else:
        env = FactoryConfig(factory=task, horizon=horizon or _horizon(task, attempts), attempts=attempts)
        env_steps = {key: settings[key] for key in ("env_steps",) if key in settings}
        config = apply_overrides(default_config(env, **env_steps), settings)
        about = About(recipe=env.task)
    return start(config, about, run_dir=run_dir, quiet=quiet)


def start(config: RunConfig, about: About, *, run_dir: str | Path | None = None, quiet: bool = True) -> Run:
    """Train what a full config says."""
    summary = session.start(config, about, run_dir=Path(run_dir) if run_dir else None, quiet=quiet)
    return Run(Path(summary["run_dir"]), summary)


def resume(run: str | Path, *, env_steps: int | None = None, quiet: bool = True) -> Run:
    """Go on where a run stands."""
    summary = session.go_on(Path(run), env_steps=env_steps, quiet=quiet)
    return Run(Path(summary["run_dir"]), summary)


def load(run: str | Path, *, num_envs: int | None = None) -> "LoadedPolicy":
    """The policy of a run's newest checkpoint: for one environment, or for `num_envs` stepped together."""
    return LoadedPolicy(Path(run), num_envs=num_envs)


class LoadedPolicy:
    """A policy with its memory, for environments that you step yourself.

    With `num_envs=None` everything is of one environment; otherwise observations, rewards and flags are batches of
    that many, and so are the actions.
    """

    def __init__(self, run: Path, *, num_envs: int | None) -> None:
        agent, _ = session.load_agent(run)
        of_task = session.read_spaces(run)
        self._observation_space, self._action_space = of_task["observation_space"], of_task["action_space"]
        self._single = num_envs is None
        self._num_envs = num_envs or 1
        self._policy = Policy(agent, num_envs=self._num_envs, generator=torch.Generator().manual_seed(0))
        self._deterministic = session.read_config(run).deterministic_actions
        self.reset()

    def reset(self) -> None:
        """Forget everything: new trials begin."""
        self._time = np.zeros(self._num_envs, np.int64)
        discrete = isinstance(self._action_space, gymnasium.spaces.Discrete)
        shape = (self._num_envs,) if discrete else (self._num_envs, *self._action_space.shape)
        self._previous_action = np.zeros(shape, np.int64 if discrete else np.float32)

    def act(
        self, observation: Any, reward: Any = 0.0, episode_start: Any = False, *, deterministic: bool | None = None
    ) -> Any:
        """The next action, in the environment's own action space.

        `reward` is what the previous action earned; `episode_start` says that `observation` is a reset's (it always is
        after `reset`). Memory stays from episode to episode until `reset`. `deterministic`: the mode of the policy
        instead of a sample (default: as in training).
        """
        step = PolicyInput(
            time=self._time.copy(),
            observation=flatten_observation(self._observation_space, self._batched(observation)),
            previous_action=self._previous_action,
            previous_reward=np.broadcast_to(np.asarray(reward, np.float32), (self._num_envs,)).copy(),
            episode_start=np.broadcast_to(np.asarray(episode_start, np.bool_), (self._num_envs,)) | (self._time == 0),
        )
        mode = self._deterministic if deterministic is None else deterministic
        self._previous_action = self._policy.act(step, deterministic=mode)
        self._time += 1
        action = native_action(self._action_space, self._previous_action)
        return action[0] if self._single else action

    def _batched(self, observation: Any) -> Any:
        if not self._single:
            return observation
        if isinstance(observation, dict):
            return {name: self._batched(part) for name, part in observation.items()}
        if isinstance(observation, tuple):
            return tuple(self._batched(part) for part in observation)
        return np.asarray(observation)[None]


def _horizon(factory: EnvironmentFactory, attempts: int | None) -> int:
    made = factory()
    spec = made.spec
    made.close()
    if spec is None or spec.max_episode_steps is None or attempts is None:
        raise UserError("the environment names no time limit: give horizon=, the largest number of steps of a trial")
    return spec.max_episode_steps * attempts
