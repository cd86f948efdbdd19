"""`LoadedPolicy`: a trained policy for environments that its user steps. Without PyTorch from an ONNX file."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from yamame.config.named_code import caller_modules
from yamame.data.actions import NativeActionSpace, policy_action_space, split_env_actions, to_env_action, zero_action
from yamame.data.observations import ObservationParser, ObservationShapeError
from yamame.data.spaces import flatten_space, space_from_json, stored_shape
from yamame.data.step import PolicyInput
from yamame.envs.vector.action_masks import ActionMaskExtractor
from yamame.errors import UserError
from yamame.runs.locate import locate_run

if TYPE_CHECKING:
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
    ) -> None:
        self._policy = policy
        self.observation_space, self.action_space = observation_space, action_space
        self.horizon = horizon
        """Longest trial in training, in steps."""
        self._leaves = flatten_space(observation_space)
        self._parser = ObservationParser(observation_space)
        self._single = num_envs is None
        self._num_envs = num_envs or 1
        self._deterministic = deterministic
        self._masks = ActionMaskExtractor(action_mask_key, observation_space, action_space)
        self.needs_action_mask = needs_action_masks and not self._masks.in_observation
        """Whether `act` needs `action_mask`."""
        self._attempts = attempts
        self._warned: set[str] = set()
        self._time = np.zeros(self._num_envs, np.int64)
        self._previous_action = zero_action(policy_action_space(action_space), self._num_envs)
        self._num_actions = 0

    @classmethod
    def from_run(cls, run: "TrainedRun", *, num_envs: int | None) -> "LoadedPolicy":
        """Return the policy of a run."""
        _check_num_envs(num_envs)
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
        )

    @classmethod
    def from_onnx(cls, path: Path, *, num_envs: int | None) -> "LoadedPolicy":
        """Load the policy of an ONNX file of `yamame export`. Raises `UserError` as `OnnxPolicy` does."""
        from yamame.policy.onnx import OnnxPolicy

        _check_num_envs(num_envs)
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
        )

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
            UserError: If an observation or mask has the wrong shape, an observation is not finite, a mask allows no
                action, or the policy was trained with masks in `info` and there is none.
        """
        if self.needs_action_mask and action_mask is None:
            raise UserError("the policy was trained with action masks: pass action_mask at every call")
        steps = np.broadcast_to(np.asarray(step_mask, np.bool_), self._time.shape)
        self._check_time(steps, episode_start)
        flat = self._flatten(observation, steps)
        if not steps.all():
            flat = {name: _zero_where(~steps, leaf) for name, leaf in flat.items()}
        self._check_range(flat, steps)
        info_masks = [action_mask] * self._num_envs if self._single or action_mask is None else list(action_mask)
        # a timestep that is passed again replaces its first version: the others are passed their next one early
        step = PolicyInput(
            time=self._time.copy(),
            observation=self._masks.add_to(flat, info_masks, self._time, ended=~steps),
            previous_action=self._previous_action,
            previous_reward=_zero_where(~steps, np.broadcast_to(np.asarray(reward, np.float32), steps.shape)),
            episode_start=np.broadcast_to(np.asarray(episode_start, np.bool_), steps.shape) | (self._time == 0),
        )
        mode = self._deterministic if deterministic is None else deterministic
        action = self._policy.act(step, deterministic=mode)
        self._previous_action = np.where(_expand(steps, action), action, self._previous_action)
        self._time += steps
        self._num_actions += 1
        action = to_env_action(self.action_space, action)
        return split_env_actions(self.action_space, action)[0] if self._single else action

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
        flat = self._parser.stack([observation])
        self._check_range(flat, np.ones(1, np.bool_))
        if self.needs_action_mask and action_mask is None:
            raise UserError("the policy was trained with action masks: pass action_mask at every call")
        self._masks.add_to(flat, [action_mask], np.zeros(1, np.int64), np.zeros(1, np.bool_))

    def _check_time(self, steps: np.ndarray, episode_start: Any) -> None:
        if (steps & (self._time >= self.horizon)).any():
            self._warn(
                f"a trial is longer than the {self.horizon} steps of training: call reset() when a trial ends, "
                "or train with a larger horizon"
            )
        elif self._attempts == 1 and (steps & np.asarray(episode_start, np.bool_) & (self._time > 0)).any():
            self._warn("an episode starts in a trial of one episode: call reset(), which clears the memory")

    def _warn(self, message: str) -> None:
        """Warn at the caller of `act`, once for each message."""
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, stacklevel=4)

    def _flatten(self, observation: Any, steps: np.ndarray) -> dict[str, np.ndarray]:
        """Return the leaves; those of environments that do not step are not checked."""
        hint = "pass num_envs=k to yamame.load for k environments, and no num_envs for a single one"
        try:
            if self._single:
                return self._parser.stack([observation])
            return self._parser.split(observation, steps)
        except ObservationShapeError as error:
            shape = stored_shape(self._leaves[error.name])
            expected = shape if self._single else (self._num_envs, *shape)
            raise UserError(
                f"expected observation {error.name!r} to have shape {expected}, got {error.shape}: {hint}"
            ) from error

    def _check_range(self, flat: Mapping[str, np.ndarray], steps: np.ndarray) -> None:
        for name, leaf in self._leaves.items():
            if not isinstance(leaf, spaces.Box):
                continue
            if not np.isfinite(flat[name]).all():
                raise UserError(f"observation {name!r} has NaN or infinite numbers")
            values = flat[name][steps]
            if (values < leaf.low).any() or (values > leaf.high).any():
                self._warn(f"observation {name!r} is outside of the bounds that its space had in training")


def _zero_where(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.where(_expand(mask, values), values.dtype.type(0), values)


def _expand(mask: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Give a mask `[E]` as many dimensions as `like` has."""
    return mask.reshape(-1, *(1,) * (like.ndim - 1))


def _check_num_envs(num_envs: int | None) -> None:
    if num_envs is not None and num_envs < 1:
        raise UserError(f"num_envs is {num_envs}: pass at least 1, or None for a single environment")


def load(path: str | Path, *, num_envs: int | None = None, modules: Sequence[str | ModuleType] = ()) -> LoadedPolicy:
    """Load the policy of a run's latest checkpoint, or of an ONNX file. Needs no code of the environment.

    Args:
        path: What `open` takes, or a file `NAME.onnx` of `yamame export`, for which PyTorch is not imported.
        num_envs: Number of environments stepped together; None: a single environment.
        modules: As in `open`; for a run directory.

    Raises:
        UserError: If there is no run, or the file is not one of `yamame export`.
    """
    suffix = Path(path).suffix
    if suffix == ".onnx":
        return LoadedPolicy.from_onnx(Path(path), num_envs=num_envs)
    if suffix == ".pt2":
        raise UserError(f"{path} acts in PyTorch alone, by torch.export.load: export an .onnx file to load it here")
    from yamame.training.trained_run import load_trained_run

    with caller_modules(modules):
        return LoadedPolicy.from_run(load_trained_run(locate_run(path)), num_envs=num_envs)
