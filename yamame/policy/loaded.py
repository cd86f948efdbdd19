"""`LoadedPolicy`: a trained policy for environments that its user steps. Without PyTorch from an ONNX file."""

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from yamame.config.named_code import caller_modules, without_environments
from yamame.data.action_distribution import SupportsDistribution, to_env_distribution
from yamame.data.actions import (
    NativeActionSpace,
    num_choices,
    policy_action_space,
    split_env_actions,
    to_env_action,
    zero_action,
)
from yamame.data.spaces import space_from_json
from yamame.data.step import PolicyInput
from yamame.envs.vector.action_masks import ActionMaskExtractor
from yamame.errors import UserError, require_pytorch
from yamame.policy.inputs import ActInputs, expand_mask
from yamame.runs.locate import Source, check_source, locate_run

if TYPE_CHECKING:
    from yamame.algorithms.analysis import ValueFunction
    from yamame.collect.experience import TrainedPolicy
    from yamame.policy.onnx import OnnxPolicy
    from yamame.training.trained_run import TrainedRun


class LoadedPolicy:
    """A trained policy with its memory, for environments that you step yourself.

    With `num_envs=None` it acts in a single environment; otherwise observations, rewards, flags and actions have a
    leading dimension of size `num_envs`. Made by `from_run` or `from_onnx`.
    """

    def __init__(
        self,
        policy: "TrainedPolicy | OnnxPolicy",
        *,
        num_envs: int | None,
        observation_space: spaces.Space[Any],
        action_space: NativeActionSpace,
        action_mask_key: str,
        needs_action_masks: bool,
        horizon: int,
        attempts: int | None,
        deterministic: bool,
        ignores_unknown: bool,
        make_values: "Callable[[], ValueFunction] | None" = None,
    ) -> None:
        self._policy = policy
        self.observation_space, self.action_space = observation_space, action_space
        self.horizon = horizon
        """Longest trial in training, in steps."""
        self._inputs = ActInputs(observation_space, num_envs=num_envs, ignores_unknown=ignores_unknown)
        self._single_inputs = ActInputs(observation_space, num_envs=None, ignores_unknown=ignores_unknown)
        self._single = num_envs is None
        self._num_envs = num_envs or 1
        self._deterministic = deterministic
        self._mask_key = action_mask_key
        self._masks = ActionMaskExtractor(action_mask_key, observation_space, action_space)
        self.needs_action_mask = needs_action_masks and not self._masks.in_observation
        """Whether `act` needs `action_mask`."""
        self._attempts = attempts
        self._make_values = make_values
        self._values: ValueFunction | None = None
        self._value_EG = np.zeros((0, 0), np.float32)
        self._last_step: PolicyInput | None = None
        self._warned: set[str] = set()
        self._time = np.zeros(self._num_envs, np.int64)
        self._previous_action = zero_action(policy_action_space(action_space), self._num_envs)
        self._num_actions = 0

    @classmethod
    def from_run(cls, run: "TrainedRun", *, num_envs: int | None) -> "LoadedPolicy":
        """Return the policy of a run."""
        from yamame.algorithms.analysis import SupportsValues

        num_envs = _checked_num_envs(num_envs)
        algorithm = run.config.algorithm
        make_values = None
        if isinstance(algorithm, SupportsValues) and not run.checkpoint.has_acting_weights_only:
            make_values = partial(algorithm.value_function, run.model, num_envs=num_envs or 1)
        return cls(
            run.policy(num_envs=num_envs or 1, seed=0),
            num_envs=num_envs,
            observation_space=run.task.observation_space,
            action_space=run.task.action_space,
            action_mask_key=run.task.action_mask_key,
            needs_action_masks=run.train_state.has_action_masks,
            horizon=run.task.horizon,
            attempts=getattr(run.config.env, "attempts", None),
            deterministic=run.config.deterministic_actions,
            ignores_unknown=run.config.env.observes_selection,
            make_values=make_values,
        )

    @classmethod
    def from_onnx(cls, path: Path, *, num_envs: int | None) -> "LoadedPolicy":
        """Load the policy of an ONNX file of `yamame export`. Raises `UserError` as `OnnxPolicy` does."""
        from yamame.policy.onnx import OnnxPolicy

        num_envs = _checked_num_envs(num_envs)
        policy = OnnxPolicy(path, num_envs=num_envs or 1)
        manifest = policy.manifest
        try:
            observation_space, action_space = map(space_from_json, (manifest.observation_space, manifest.action_space))
        except Exception as problem:  # altered spaces make Gymnasium raise anything
            raise UserError(f"the spaces in the manifest of {path} cannot be read ({problem})") from problem
        return cls(
            policy,
            num_envs=num_envs,
            observation_space=observation_space,
            action_space=action_space,
            action_mask_key=manifest.action_mask_key,
            needs_action_masks=manifest.needs_action_masks,
            horizon=manifest.horizon,
            attempts=manifest.attempts,
            deterministic=manifest.deterministic,
            ignores_unknown=manifest.observes_selection,
        )

    def reset(self, reset_mask: Any = True) -> None:
        """Clear the memory, for new trials in all environments or in those where `reset_mask` is true.

        Raises:
            UserError: If `reset_mask` is not one flag for each environment.
        """
        self._time[self._inputs.flags("reset_mask", reset_mask)] = 0

    def act(
        self,
        observation: Any,
        reward: Any = 0.0,
        episode_start: Any = False,
        *,
        deterministic: bool | None = None,
        action_mask: Any = None,
        step_mask: Any = True,
    ) -> Any:
        """Return the next action, in the action space of the environment. Memory is kept across episodes.

        Args:
            observation: Observation of the environment.
            reward: Reward of the previous action.
            episode_start: Whether `observation` was returned by a reset of the environment; implied after `reset`.
            deterministic: Return the mode of the policy instead of a sample; None: as in evaluations of the run.
            action_mask: Mask of allowed actions in `info`, at every call, if the policy was trained with such masks.
                Masks in observations need no argument.
            step_mask: With `num_envs`, the environments that step. The memory of the others stays as it is: what is
                passed for them is ignored, and their actions mean nothing.

        Warns once of a missing `reset`: when a trial becomes longer than in training, or an episode starts in a trial
        of one episode; and of an observation outside of its bounds.

        Raises:
            UserError: If an observation, reward, flag or mask has the wrong shape or is of another kind than its space;
                a dict lacks a key or has one of its own; a number is not finite; a category is not in its space; a mask
                allows no action; or the policy was trained with masks in `info` and there is none. Nothing has changed
                then.
        """
        steps = self._inputs.flags("step_mask", step_mask)
        episode_start = self._inputs.flags("episode_start", episode_start)
        reward = self._inputs.reward(reward, steps)
        flat = self._inputs.observation(observation, steps)
        masks = self._split_masks(action_mask)
        if not isinstance(deterministic, bool | np.bool_ | None):
            raise UserError(f"expected deterministic to be True, False or None, got {deterministic!r}")
        # a timestep that is passed again replaces its first version: the others are passed their next one early
        step = PolicyInput(
            time=self._time.copy(),
            observation=self._add_masks(flat, masks, self._time, steps),
            previous_action=self._previous_action,
            previous_reward=reward,
            episode_start=episode_start | (self._time == 0),
        )
        self._check_time(steps, episode_start)
        self._check_bounds(flat, steps)
        mode = self._deterministic if deterministic is None else deterministic
        action = self._policy.act(step, deterministic=mode)
        self._previous_action = np.where(expand_mask(steps, action), action, self._previous_action)
        self._time += steps
        self._num_actions += 1
        self._last_step = step
        if self._values is not None:
            self._value_EG = self._values.step(step)
        action = to_env_action(self.action_space, action)
        return split_env_actions(self.action_space, action)[0] if self._single else action

    def distribution(self) -> Any:
        """Return the distribution from which the last call of `act` chose: an `ActionDistribution`.

        It has the units of the environment, and is nested as a Dict or Tuple of actions is. With `num_envs` its arrays
        have the environments as first dimension.

        Raises:
            UserError: If `act` was not called yet, or the algorithm has no distributions.
        """
        if self._last_step is None:
            raise UserError("there is no action yet: call act before distribution")
        if not isinstance(self._policy, SupportsDistribution):
            raise UserError(f"a {type(self._policy).__name__} has no action distributions")
        return to_env_distribution(self.action_space, self._policy.last_parameters(), single=self._single)

    def values(self) -> dict[float, Any]:
        """Return the value of each discount factor at the timestep of the last call of `act`.

        It is the discounted sum of rewards that the critics expect of the policy of that discount factor, in units of
        the environment's reward; with `num_envs` an array of one for each environment. The last key is the acting gamma
        of training.

        The critics have a memory of their own, which is kept from the first call on: a step takes about twice as long
        then. So the first call follows the first step of a trial.

        Raises:
            UserError: If `act` was not called yet, the first call comes later in a trial, or there are no critics:
                exported files and policies shared with `--acting-only` have none.
        """
        if self._last_step is None:
            raise UserError("there is no timestep yet: call act before values")
        if self._make_values is None:
            raise UserError("the policy has no critics: load the run directory that it is from to get values")
        if self._values is None:
            time = int(self._last_step.time.max())
            if time > 0:
                raise UserError(
                    f"values() was called at step {time} of a trial for the first time: call it after the first act of "
                    "a trial, since the critics have a memory of their own; reset() starts another trial"
                )
            self._values = self._make_values()
            self._value_EG = self._values.step(self._last_step)
        columns = dict(zip(self._values.gammas, self._value_EG.T, strict=True))
        acting = self._values.gammas[-1]  # where it is also one of the others, its place would be theirs
        columns[acting] = columns.pop(acting)
        return {gamma: float(column[0]) if self._single else column.copy() for gamma, column in columns.items()}

    def predict(
        self,
        observation: Any,
        state: int | None = None,
        episode_start: Any = None,
        deterministic: bool | None = None,
        *,
        reward: Any = 0.0,
        action_mask: Any = None,
    ) -> tuple[Any, int]:
        """Return the next action and the state to pass to the next call, in the form of Stable-Baselines3.

        For trials of one episode; `act` keeps the memory across episodes.

        Args:
            observation: Observation of the environment.
            state: State that the last call returned; None: the memory is cleared, for new trials.
            episode_start: Whether `observation` was returned by a reset of the environment, which clears the memory.
            deterministic: As in `act`.
            reward: As in `act`. An agent that learned from rewards what to do needs them.
            action_mask: As in `act`.

        Raises:
            UserError: As in `act`, and if `state` is not that of the last call: the memory itself stays in the policy.
        """
        if state is None:
            self.reset()
        elif state != self._num_actions:
            raise UserError("state is not that of the last call of predict: earlier states cannot be continued")
        elif episode_start is not None:
            self.reset(episode_start)
        action = self.act(observation, reward, deterministic=deterministic, action_mask=action_mask)
        return action, self._num_actions

    def check(self, observation: Any, action_mask: Any = None) -> None:
        """Raise `UserError` if `act` would refuse this observation or mask of a single environment."""
        steps = np.ones(1, np.bool_)
        flat = self._single_inputs.observation(observation, steps)
        self._add_masks(flat, [action_mask], np.zeros(1, np.int64), steps)

    def _add_masks(
        self, flat: Mapping[str, np.ndarray], masks: Sequence[Any], time: np.ndarray, steps: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return leaves of an observation with the action masks, given one for each environment; None: without."""
        if self.needs_action_mask and any(mask is None for mask in itertools.compress(masks, steps)):
            raise UserError("the policy was trained with action masks: pass action_mask at every call")
        if self.needs_action_mask:  # of environments that do not step
            all_allowed = np.ones(sum(num_choices(self.action_space)), np.bool_)
            masks = [all_allowed if mask is None else mask for mask in masks]
        return self._masks.add_to(flat, masks, time, ended=~steps)

    def _split_masks(self, action_mask: Any) -> list[Any]:
        """Return the mask of each environment; None: there is none."""
        if action_mask is not None and not self.needs_action_mask:
            problem = "takes masks from observations" if self._masks.in_observation else "was trained without masks"
            raise UserError(f"the policy {problem}: leave action_mask out")
        if self._single or action_mask is None:
            return [action_mask] * self._num_envs
        try:
            return self._masks.from_vector_info({self._mask_key: action_mask}, self._num_envs)
        except (TypeError, ValueError) as problem:
            raise UserError(f"expected action_mask to be {self._num_envs} masks, one an environment") from problem

    def _check_time(self, steps: np.ndarray, episode_start: np.ndarray) -> None:
        if (steps & (self._time >= self.horizon)).any():
            self._warn(
                f"a trial is longer than the {self.horizon} steps of training: call reset() when a trial ends, "
                "or train with a larger horizon"
            )
        elif self._attempts == 1 and (steps & episode_start & (self._time > 0)).any():
            self._warn("an episode starts in a trial of one episode: call reset(), which clears the memory")

    def _check_bounds(self, flat: Mapping[str, np.ndarray], steps: np.ndarray) -> None:
        name = self._inputs.leaf_outside_bounds(flat, steps)
        if name is not None:
            self._warn(f"observation {name!r} is outside of the bounds that its space had in training")

    def _warn(self, message: str) -> None:
        """Warn at the caller of `act`, once for each message."""
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, stacklevel=4)


def _checked_num_envs(num_envs: Any) -> int | None:
    if num_envs is None:
        return None
    if isinstance(num_envs, bool) or not isinstance(num_envs, int | np.integer) or num_envs < 1:
        raise UserError(f"num_envs is {num_envs!r}: pass at least 1, or None for a single environment")
    return int(num_envs)


def load(path: Source, *, num_envs: int | None = None, modules: Sequence[str | ModuleType] = ()) -> LoadedPolicy:
    """Load the policy of a run's latest checkpoint, or of an ONNX file. Needs no code of the environment.

    Args:
        path: What `open` takes, or a file `NAME.onnx` of `yamame export`, for which PyTorch is not imported.
        num_envs: Number of environments stepped together; None: a single environment.
        modules: As in `open`; for a run directory.

    Raises:
        UserError: If there is no run, or the file is not one of `yamame export`.
    """
    path = check_source(path)
    suffix = Path(path).suffix
    if suffix == ".onnx":
        return LoadedPolicy.from_onnx(Path(path), num_envs=num_envs)
    if suffix == ".pt2":
        raise UserError(f"{path} acts in PyTorch alone, by torch.export.load: export an .onnx file to load it here")
    with require_pytorch(f"the policy of {path}"):
        from yamame.training.trained_run import load_trained_run

    with caller_modules(modules), without_environments():
        return LoadedPolicy.from_run(load_trained_run(locate_run(path)), num_envs=num_envs)
