"""`LoadedPolicy`: a trained policy for environments that its user steps."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from yamame.config import RunConfig
from yamame.data.actions import policy_action_space, split_env_actions, to_env_action, zero_action
from yamame.data.spaces import flatten_observation, flatten_space, stored_shape
from yamame.data.step import PolicyInput
from yamame.envs.vector.action_masks import ActionMaskExtractor
from yamame.errors import UserError
from yamame.run_files import read_config, read_task_spec
from yamame.run_state import restore_train_state
from yamame.runs import LATEST, load_model


class LoadedPolicy:
    """A trained policy with its memory, for environments that you step yourself.

    With `num_envs=None` it acts in a single environment; otherwise observations, rewards, flags and actions have a
    leading dimension of size `num_envs`.
    """

    def __init__(
        self, run: Path, *, num_envs: int | None, checkpoint: str = LATEST, config: RunConfig | None = None
    ) -> None:
        if num_envs is not None and num_envs < 1:
            raise UserError(f"num_envs is {num_envs}: pass at least 1, or None for a single environment")
        config = config or read_config(run)
        model, loaded = load_model(run, checkpoint, config)
        task = read_task_spec(run, config)
        self._observation_space, self._action_space = task.observation_space, task.action_space
        self._leaves = flatten_space(self._observation_space)
        self._single = num_envs is None
        self._num_envs = 1 if num_envs is None else num_envs
        self._policy = config.algorithm.build_policy(
            model, num_envs=self._num_envs, generator=torch.Generator().manual_seed(0)
        )
        self._deterministic = config.deterministic_actions
        self._masks = ActionMaskExtractor(config.env.action_mask_key, self._observation_space, self._action_space)
        self._needs_masks = restore_train_state(loaded, run).has_action_masks
        self._horizon, self._attempts = task.horizon, getattr(config.env, "attempts", None)
        self._warned: set[str] = set()
        self._time = np.zeros(self._num_envs, np.int64)
        self._previous_action = zero_action(policy_action_space(self._action_space), self._num_envs)
        self._num_actions = 0

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

        Warns once of a missing `reset`: when a trial becomes longer than in training, or an episode starts in a trial
        of one episode; and of an observation outside of its bounds.

        Raises:
            UserError: If an observation or mask has the wrong shape, an observation is not finite, a mask allows no
                action, or the policy was trained with masks in `info` and there is none.
        """
        if self._needs_masks and action_mask is None and not self._masks.in_observation:
            raise UserError("the policy was trained with action masks: pass action_mask at every call")
        self._check_time(episode_start)
        flat = self._flatten(observation)
        self._check_range(flat)
        info_masks = [action_mask] * self._num_envs if self._single or action_mask is None else list(action_mask)
        step = PolicyInput(
            time=self._time.copy(),
            observation=self._masks.add_to(flat, info_masks, self._time, np.zeros(self._num_envs, np.bool_)),
            previous_action=self._previous_action,
            previous_reward=np.broadcast_to(np.asarray(reward, np.float32), (self._num_envs,)).copy(),
            episode_start=np.broadcast_to(np.asarray(episode_start, np.bool_), (self._num_envs,)) | (self._time == 0),
        )
        mode = self._deterministic if deterministic is None else deterministic
        self._previous_action = self._policy.act(step, deterministic=mode)
        self._time += 1
        self._num_actions += 1
        action = to_env_action(self._action_space, self._previous_action)
        return split_env_actions(self._action_space, action)[0] if self._single else action

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

    def _check_time(self, episode_start: Any) -> None:
        if (self._time >= self._horizon).any():
            self._warn(
                f"a trial is longer than the {self._horizon} steps of training: call reset() when a trial ends, "
                "or train with a larger horizon"
            )
        elif self._attempts == 1 and (np.asarray(episode_start, np.bool_) & (self._time > 0)).any():
            self._warn("an episode starts in a trial of one episode: call reset(), which clears the memory")

    def _warn(self, message: str) -> None:
        """Warn at the caller of `act`, once for each message."""
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, stacklevel=4)

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

    def _check_range(self, flat: Mapping[str, np.ndarray]) -> None:
        for name, leaf in self._leaves.items():
            if not isinstance(leaf, spaces.Box):
                continue
            if not np.isfinite(flat[name]).all():
                raise UserError(f"observation {name!r} has NaN or infinite numbers")
            if (flat[name] < leaf.low).any() or (flat[name] > leaf.high).any():
                self._warn(f"observation {name!r} is outside of the bounds that its space had in training")

    def _add_batch_dim(self, observation: Any) -> Any:
        if not self._single:
            return observation
        if isinstance(observation, dict):
            return {name: self._add_batch_dim(part) for name, part in observation.items()}
        if isinstance(observation, tuple):
            return tuple(self._add_batch_dim(part) for part in observation)
        return np.asarray(observation)[None]
