"""Python API: `train`, `resume`, `load`."""

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
from yamame.paper import paper_config
from yamame.presets import apply_presets, default_config
from yamame.recipes import SMALL, check_preset, config_from_overrides, load_recipe, make_metadata
from yamame.runs import RunMetadata, RunResult
from yamame.tools.report import write_report_if_finished
from yamame.tools.video import record_video

EnvFn = Callable[[], gymnasium.Env[Any, Any] | VectorEnv]


@dataclass(frozen=True)
class Run:
    """A run directory and the result of its training."""

    directory: Path
    result: RunResult
    """The keys of `yamame train --json`."""
    config: RunConfig | None = None
    """Config of the run; None: read from the run directory, which cannot hold every function."""

    def evaluate(self, trials: int | None = None, seed: int | None = None, *, instruction: str = "") -> RunResult:
        """Evaluate the latest checkpoint without exploration noise.

        Args:
            trials: Number of trials; None: `eval.final_trials`.
            seed: Seed of tasks and actions; None: that of all evaluations of the run.
            instruction: Instruction of every trial; "": sampled by the task.

        Returns:
            The keys of `yamame eval --json`.
        """
        return runs.evaluate(self.directory, trials=trials, seed=seed, instruction=instruction, config=self.config)

    def record_video(
        self, path: str | Path, trials: int = 1, seed: int | None = None, *, instruction: str = ""
    ) -> None:
        """Record a video of the deterministic policy of the latest checkpoint.

        Args:
            path: Output file, .gif or .mp4.
            trials: Number of trials.
            seed: As in `evaluate`.
            instruction: As in `evaluate`.

        Raises:
            UserError: If the environment cannot render or the file cannot be written.
        """
        record_video(self.directory, Path(path), instruction=instruction, trials=trials, seed=seed, config=self.config)

    def load(self, num_envs: int | None = None) -> "LoadedPolicy":
        """Load the policy of the latest checkpoint, for `num_envs` environments; None: a single one."""
        return LoadedPolicy(self.directory, num_envs=num_envs, config=self.config)


def train(
    recipe_or_env_fn: str | EnvFn,
    *,
    horizon: int | None = None,
    attempts: int | None = 1,
    run_dir: str | Path | None = None,
    preset: str = SMALL,
    size: str | None = None,
    model: str | None = None,
    variants: Sequence[str] = (),
    quiet: bool = True,
    **settings: Any,
) -> Run:
    """Train on a recipe or on your own environment.

    Args:
        recipe_or_env_fn: Name of a recipe, or a function without arguments that returns a new `gymnasium.Env` or
            `VectorEnv`.
        horizon: Maximum number of steps of a trial, `env.horizon` of a recipe; None: that of the recipe, or the time
            limit of the environment times `attempts`.
        attempts: Number of episodes on one task that make a trial, `env.attempts` of a recipe; None: as many as fit
            into the horizon.
        run_dir: Run directory; None: `runs/RECIPE-TIME`.
        preset: `small`, for a CPU, or `paper`: the settings of the paper, for your own environment those of POPGym.
        size: Network size: tiny, small, base or large; None: that of the recipe.
        model: Trajectory encoder: the name of a file in yamame/nets/sequence/; None: that of the recipe.
        variants: Names of ablations to apply.
        quiet: Hide progress.
        settings: Fields of the config, which take precedence: by name (`env_steps=…, seed=…`), as nested dicts
            (`env={"size": 5}`) or dotted (`**{"learner.learning_rate": 3e-4}`).

    Raises:
        UserError: If the config cannot run.
    """
    check_preset(preset)
    if isinstance(recipe_or_env_fn, str):
        recipe = load_recipe(recipe_or_env_fn, preset)
        settings |= {} if horizon is None else {"env.horizon": horizon}
        settings |= {} if attempts == 1 else {"env.attempts": attempts}
        config = config_from_overrides(recipe, variants, settings, size=size, model=model)
        metadata = make_metadata(recipe, config)
    else:
        env = _env_config(recipe_or_env_fn, horizon, attempts)
        env_steps = {key: settings[key] for key in ("env_steps",) if key in settings}
        num_envs = {"num_envs": env.vector_size} if env.vector_size else {}
        default = default_config(env, **env_steps) if preset == SMALL else paper_config(env)
        config = apply_presets(default, variants, size=size, model=model)
        config = apply_overrides(config, {**num_envs, **settings})
        metadata = RunMetadata(recipe=env.task_name)
    result = runs.train(config, metadata, run_dir=Path(run_dir) if run_dir else None, quiet=quiet)
    write_report_if_finished(result)
    return Run(Path(result["run_dir"]), result, config)


def resume(
    run: str | Path, *, env_steps: int | None = None, quiet: bool = True, modules: Sequence[str | ModuleType] = ()
) -> Run:
    """Resume training from the latest checkpoint.

    Args:
        run: Run directory.
        env_steps: New total number of environment steps; None: that of the config.
        quiet: Hide progress.
        modules: As in `load`.
    """
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
    """A trained policy with its memory, for environments that you step yourself.

    With `num_envs=None` it acts in a single environment; otherwise observations, rewards, flags and actions have a
    leading dimension of size `num_envs`.
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
        """Clear the memory, for new trials in all environments or in those where `reset_mask` is true."""
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
        """Return the next action, in the action space of the environment. Memory is kept across episodes.

        Args:
            observation: Observation of the environment.
            reward: Reward of the previous action.
            episode_start: Whether `observation` was returned by a reset of the environment; implied after `reset`.
            deterministic: Return the mode of the policy instead of a sample; None: as in training.
            action_mask: Mask of allowed actions in `info`, at every call, if the policy was trained with such masks.
                Masks in observations need no argument.

        Raises:
            UserError: If an observation or mask has the wrong shape, or a mask allows no action.
        """
        info_masks = [action_mask] * self._num_envs if self._single or action_mask is None else list(action_mask)
        step = PolicyInput(
            time=self._time.copy(),
            observation=self._masks.add_to(
                self._flatten(observation), info_masks, self._time, np.zeros(self._num_envs, np.bool_)
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

    def _flatten(self, observation: Any) -> dict[str, np.ndarray]:
        flat = flatten_observation(self._observation_space, self._add_batch_dim(observation))
        for name, leaf in self._leaves.items():
            expected = (self._num_envs, *stored_shape(leaf))
            if flat[name].shape != expected:
                found, expected = (shape[self._single :] for shape in (flat[name].shape, expected))
                raise UserError(
                    f"expected observation {name!r} to have shape {expected}, got {found}: pass num_envs=k to "
                    "yamame.load for k environments, and no num_envs for a single one"
                )
        return flat

    def _add_batch_dim(self, observation: Any) -> Any:
        if not self._single:
            return observation
        if isinstance(observation, dict):
            return {name: self._add_batch_dim(part) for name, part in observation.items()}
        if isinstance(observation, tuple):
            return tuple(self._add_batch_dim(part) for part in observation)
        return np.asarray(observation)[None]


def _env_config(env_fn: EnvFn, horizon: int | None, attempts: int | None) -> EnvFnConfig:
    """Make an environment to read its size and its time limit; return the config of the task."""
    if not callable(env_fn):
        raise UserError(
            f"expected the name of a recipe or a function, got {type(env_fn).__name__}: pass a class or function "
            "without arguments that returns a new environment"
        )
    env = env_fn()
    if not isinstance(env, gymnasium.Env | VectorEnv):
        raise UserError(f"expected the function to return a gymnasium.Env or VectorEnv, got {type(env).__name__}")
    vector_size = env.num_envs if isinstance(env, VectorEnv) else None
    time_limit = env.spec.max_episode_steps if env.spec else None
    env.close()
    if horizon is None:
        if time_limit is None or attempts is None:
            raise UserError("the environment has no time limit: pass horizon=, the maximum number of steps of a trial")
        horizon = time_limit * attempts
    return EnvFnConfig(env_fn=env_fn, horizon=horizon, attempts=attempts, vector_size=vector_size)
