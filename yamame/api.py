"""The Python interface: `train`, `resume`, `load`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import VectorEnv

from yamame import runs
from yamame.config import RunConfig
from yamame.config_io import apply_overrides, caller_modules
from yamame.data.actions import policy_action_space, to_env_action, zero_action
from yamame.data.spaces import flatten_observation, flatten_space, stored_shape
from yamame.data.step import PolicyInput
from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.vector.action_masks import ActionMaskExtractor
from yamame.errors import UserError
from yamame.presets import apply_model, apply_size, apply_variants, default_config
from yamame.recipes import config_from_overrides, load_recipe, make_metadata
from yamame.runs import RunMetadata, RunResult
from yamame.tools.report import write_report_if_finished
from yamame.tools.video import record_video

EnvFn = Callable[[], gymnasium.Env[Any, Any] | VectorEnv]


@dataclass(frozen=True)
class Run:
    """A run on disk."""

    directory: Path
    result: RunResult
    """What `yamame train --json` prints."""
    config: RunConfig | None = None
    """All settings, where this process trained the run."""

    def evaluate(self, trials: int | None = None, seed: int | None = None, *, instruction: str = "") -> RunResult:
        """Judge the newest checkpoint: the same dict as `yamame eval --json` prints."""
        return runs.evaluate(self.directory, trials=trials, seed=seed, instruction=instruction, config=self.config)

    def record_video(
        self, path: str | Path, trials: int = 1, seed: int | None = None, *, instruction: str = ""
    ) -> None:
        """Film the greedy policy of the newest checkpoint into a .gif or .mp4 file; `UserError` if that cannot be.

        `instruction` is what to do instead of what the task would draw, as for `yamame play`.
        """
        record_video(self.directory, Path(path), instruction=instruction, trials=trials, seed=seed, config=self.config)

    def load(self, num_envs: int | None = None) -> "LoadedPolicy":
        """The trained policy."""
        return LoadedPolicy(self.directory, num_envs=num_envs, config=self.config)


def train(
    recipe_or_env_fn: str | EnvFn,
    *,
    horizon: int | None = None,
    attempts: int | None = 1,
    run_dir: str | Path | None = None,
    size: str | None = None,
    model: str | None = None,
    variants: Sequence[str] = (),
    quiet: bool = True,
    **settings: Any,
) -> Run:
    """Train on a recipe, or on the environments that a function of no arguments makes.

    `settings` are fields of the config, by name (`env_steps=…, seed=…`), as nested dicts (`env={"size": 5}`) or dotted
    (`**{"learner.learning_rate": 3e-4}`). `horizon` is the largest number of steps of a trial (a function's
    environment may name it itself, by its time limit), `attempts` the number of episodes on one task that make a
    trial (None: as many as fit into the horizon); for a recipe they are short for `env.horizon` and `env.attempts`.
    `size` is that of the network: tiny, small, base or large; None leaves it to the recipe. Single fields win over it.
    `model` selects the trajectory encoder: the name of a file in yamame/nets/sequence/.
    Raises `UserError` for what cannot run.
    """
    if isinstance(recipe_or_env_fn, str):
        recipe = load_recipe(recipe_or_env_fn)
        settings |= {} if horizon is None else {"env.horizon": horizon}
        settings |= {} if attempts == 1 else {"env.attempts": attempts}
        config = config_from_overrides(recipe, variants, settings, size=size, model=model)
        about = make_metadata(recipe, config)
    else:
        env = _environment(recipe_or_env_fn, horizon, attempts)
        env_steps = {key: settings[key] for key in ("env_steps",) if key in settings}
        num_envs = {"num_envs": env.vector_size} if env.vector_size else {}
        config = apply_variants(apply_size(apply_model(default_config(env, **env_steps), model), size), variants)
        config = apply_overrides(config, {**num_envs, **settings})
        about = RunMetadata(recipe=env.task_name)
    return start(config, about, run_dir=run_dir, quiet=quiet)


def start(config: RunConfig, about: RunMetadata, *, run_dir: str | Path | None = None, quiet: bool = True) -> Run:
    """Train what a full config says."""
    summary = runs.train(config, about, run_dir=Path(run_dir) if run_dir else None, quiet=quiet)
    write_report_if_finished(summary)
    return Run(Path(summary["run_dir"]), summary, config)


def resume(
    run: str | Path, *, env_steps: int | None = None, quiet: bool = True, modules: Sequence[str | ModuleType] = ()
) -> Run:
    """Resume training from the latest checkpoint. `modules` are as in `load`."""
    with caller_modules(modules):
        result = runs.resume(Path(run), env_steps=env_steps, quiet=quiet)
        write_report_if_finished(result)
        return Run(Path(result["run_dir"]), result, runs.read_config(Path(result["run_dir"])))


def load(run: str | Path, *, num_envs: int | None = None, modules: Sequence[str | ModuleType] = ()) -> "LoadedPolicy":
    """Load the policy of a run's latest checkpoint.

    Args:
        run: Run directory.
        num_envs: Number of environments stepped together; None: a single environment.
        modules: Modules whose classes the config may name, such as `["my_encoders"]` or `[__name__]`. Classes of this
            package are always found; no other module is imported.

    Raises:
        UserError: If there is no run.
    """
    with caller_modules(modules):
        return LoadedPolicy(Path(run), num_envs=num_envs)


class LoadedPolicy:
    """A policy with its memory, for environments that you step yourself.

    With `num_envs=None` everything is of one environment; otherwise observations, rewards and flags are batches of
    that many, and so are the actions.
    """

    def __init__(self, run: Path, *, num_envs: int | None, config: RunConfig | None = None) -> None:
        if num_envs is not None and num_envs < 1:
            raise UserError(f"num_envs is {num_envs}: pass at least 1, or None for a single environment")
        config = config or runs.read_config(run)
        model, _ = runs.load_model(run, config=config)
        task = runs.read_task_spec(run, config)
        self._observation_space, self._action_space = task.observation_space, task.action_space
        self._leaves = flatten_space(self._observation_space)
        self._single = num_envs is None
        self._num_envs = 1 if num_envs is None else num_envs
        self._policy = config.algorithm.build_policy(
            model, num_envs=self._num_envs, generator=torch.Generator().manual_seed(0)
        )
        self._deterministic = config.deterministic_actions
        self._masks = ActionMaskExtractor(config.env.action_mask_key, self._observation_space, self._action_space)
        self._time = np.zeros(self._num_envs, np.int64)
        self._previous_action = zero_action(policy_action_space(self._action_space), self._num_envs)

    def reset(self, reset_mask: Any = True) -> None:
        """Forget everything, in all environments or in those of a mask: new trials begin there."""
        self._time[np.broadcast_to(np.asarray(reset_mask, np.bool_), self._time.shape)] = 0

    def act(
        self,
        observation: Any,
        reward: Any = 0.0,
        episode_start: Any = False,
        *,
        deterministic: bool | None = None,
        action_mask: Any = None,
    ) -> Any:
        """The next action, in the environment's own action space.

        `reward` is what the previous action earned; `episode_start` says that `observation` is a reset's (it always is
        after `reset`). Memory stays from episode to episode until `reset`. `deterministic`: the mode of the policy
        instead of a sample (default: as in training). `action_mask` is what `info` allows; give it at every call if
        the policy was trained with masks from there (those in observations are found). Raises `UserError` for an
        observation or mask of another shape, and for a mask that allows nothing.
        """
        told = [action_mask] * self._num_envs if self._single or action_mask is None else list(action_mask)
        step = PolicyInput(
            time=self._time.copy(),
            observation=self._masks.add_to(
                self._flat(observation), told, self._time, np.zeros(self._num_envs, np.bool_)
            ),
            previous_action=self._previous_action,
            previous_reward=np.broadcast_to(np.asarray(reward, np.float32), (self._num_envs,)).copy(),
            episode_start=np.broadcast_to(np.asarray(episode_start, np.bool_), (self._num_envs,)) | (self._time == 0),
        )
        mode = self._deterministic if deterministic is None else deterministic
        self._previous_action = self._policy.act(step, deterministic=mode)
        self._time += 1
        action = to_env_action(self._action_space, self._previous_action)
        return action[0] if self._single else action

    def _flat(self, observation: Any) -> dict[str, np.ndarray]:
        flat = flatten_observation(self._observation_space, self._batched(observation))
        for name, leaf in self._leaves.items():
            expected = (self._num_envs, *stored_shape(leaf))
            if flat[name].shape != expected:
                found, wanted = (shape[self._single :] for shape in (flat[name].shape, expected))
                raise UserError(
                    f"observation {name!r} has shape {found}, not {wanted}: "
                    "yamame.load(run, num_envs=k) acts for k environments, without num_envs for one"
                )
        return flat

    def _batched(self, observation: Any) -> Any:
        if not self._single:
            return observation
        if isinstance(observation, dict):
            return {name: self._batched(part) for name, part in observation.items()}
        if isinstance(observation, tuple):
            return tuple(self._batched(part) for part in observation)
        return np.asarray(observation)[None]


def _environment(factory: EnvFn, horizon: int | None, attempts: int | None) -> EnvFnConfig:
    """The task of a function; what the function makes may name the horizon, and be several environments at once."""
    if not callable(factory):
        raise UserError(
            f"{type(factory).__name__} is no recipe and makes no environments: give a recipe's name, or a class or "
            "function of no arguments that makes a new environment at each call"
        )
    made = factory()
    if not isinstance(made, gymnasium.Env | VectorEnv):
        raise UserError(f"the factory makes a {type(made).__name__}: it must return a gymnasium.Env or VectorEnv")
    rows = made.num_envs if isinstance(made, VectorEnv) else None
    limit = made.spec.max_episode_steps if made.spec else None
    made.close()
    if horizon is None:
        if limit is None or attempts is None:
            raise UserError(
                "the environment names no time limit: give horizon=, the largest number of steps of a trial"
            )
        horizon = limit * attempts
    return EnvFnConfig(env_fn=factory, horizon=horizon, attempts=attempts, vector_size=rows)
