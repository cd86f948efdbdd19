"""Adapter from Gymnasium vector environments, whatever their autoreset mode, without invalid transitions."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Bool, Float, Shaped, UInt8
from typing_extensions import override

from yamame.data.actions import ACTION_MASK_KEY, check_action_space, policy_action_space, to_env_action
from yamame.data.observations import ObservationParser, OutOfSpaceError
from yamame.data.step import VectorStep
from yamame.envs.base import RenderableVectorEnv
from yamame.envs.rendering import render_fps, render_frame
from yamame.envs.vector.action_masks import ActionMaskExtractor
from yamame.envs.vector.construction import validate_env
from yamame.envs.vector.faults import (
    ENV_ERRORS,
    MAX_RESET_SEED,
    InvalidEnvOutputError,
    fault_from_exception,
    nonfinite_rows,
    out_of_space_error,
    stack_flags,
    stack_rewards,
    stack_success_flags,
    validate_finite,
    validate_infos,
)
from yamame.envs.vector.fixed_spaces import FixedAsyncSpaces, FixedSpaces
from yamame.envs.vector.overwritten_finals import OverwrittenFinals
from yamame.envs.vector.serial import SerialVectorEnv
from yamame.errors import UserError, describe_error
from yamame.types import Fault, State, load_nested_state_dict, nested_state_dict

_STATE = ("_seed", "_observation", "_info_masks", "_ended", "_reset_pending", "_step", "_reports_success")


class GymnasiumVectorAdapter(RenderableVectorEnv):
    """`EpisodeVectorEnv` over a `gymnasium.vector.VectorEnv`, which may reset on its own.

    * Reset by mask (mode DISABLED, and Gymnasium's `SyncVectorEnv` and `AsyncVectorEnv`): the adapter passes
      `options={"reset_mask": bools}`, and `"new_task": bools` if some of the rows repeat their task. Sync and async
      environments forward options to each single environment, so they get `"new_task": False` in a call of its own.
    * SAME_STEP: the final observation of an episode is `info["final_obs"]`; the next episode has already started.
    * NEXT_STEP without masks: `reset` returns the last observation, and the next `step` delivers the first observation
      of those rows, with `is_transition` False.

    An environment that resets on its own samples its next task and finishes every episode: `reset` raises `UserError`
    if asked for anything else. Rows that are not finite after a step are reset by mask and reported as `failed`.

    Args:
        env: The vector environment.
        seed: The first reset gets a seed derived from it, later resets none.
        action_mask_key: See `ActionMaskExtractor`.

    Raises:
        InvalidEnvOutputError: From `reset` and `step`, for values that are not finite where rows cannot be reset by
            mask or after a reset.
        UserError: From `reset` and `step`, for an observation that is not in its space.
    """

    def __init__(self, env: VectorEnv, seed: int, *, action_mask_key: str = ACTION_MASK_KEY) -> None:
        self.num_envs = env.num_envs
        self.observation_space = env.single_observation_space
        self.env_action_space = check_action_space(env.single_action_space)
        self.action_space = policy_action_space(self.env_action_space)
        self._parser = ObservationParser(self.observation_space)
        self._masks = ActionMaskExtractor(action_mask_key, self.observation_space, self.env_action_space)
        self._mask_method = self._masks.vector_method(env)
        self._info_masks: list[Any] = [None] * self.num_envs
        self._env = env
        self._fixed_spaces = FixedSpaces(
            env, "the vector environment", ("single_observation_space", "single_action_space")
        )
        self._fixed_single_spaces: list[FixedSpaces] = []
        if isinstance(env.unwrapped, SyncVectorEnv):
            self._fixed_single_spaces = [
                FixedSpaces(single, f"environment {row}") for row, single in enumerate(env.unwrapped.envs)
            ]
        self._async_spaces = FixedAsyncSpaces(env.unwrapped) if isinstance(env.unwrapped, AsyncVectorEnv) else None
        # Gymnasium seeds row i with seed + i, which must be a valid seed, too
        first = int(np.random.SeedSequence(seed).generate_state(1)[0] // 2)
        self._seed: int | None = min(first, MAX_RESET_SEED - self.num_envs)
        self._mode = _autoreset_mode(env)
        self._forwards_options = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        self._resets_by_mask = self._mode is AutoresetMode.DISABLED or self._forwards_options
        self._autoresets = self._mode is AutoresetMode.SAME_STEP or not self._resets_by_mask
        self._observation: dict[str, np.ndarray] = {}
        self._overwritten_finals = OverwrittenFinals()
        self._ended = np.zeros(self.num_envs, np.bool_)
        self._reset_pending = np.zeros(self.num_envs, np.bool_)
        self._step = np.zeros(self.num_envs, np.int64)
        self._reports_success = False

    @property
    def env(self) -> VectorEnv:
        """The vector environment."""
        return self._env

    @override
    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        self._check_spaces(reset_mask)
        autoreset = reset_mask & self._ended if self._autoresets else np.zeros_like(reset_mask)
        if (autoreset & ~new_task).any():
            raise UserError(
                "this vector environment resets itself and cannot repeat a task: "
                "use attempts=1, or build it with autoreset_mode DISABLED and let it take options['new_task']"
            )
        to_reset = reset_mask & ~autoreset
        if self._seed is not None or (reset_mask.all() and to_reset.any() and not self._resets_by_mask):
            self._observation = self._reset_all(new_task)
            to_reset = reset_mask
        elif to_reset.any():
            self._observation = _where(to_reset, self._reset_rows(to_reset, new_task), self._observation)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._reset_pending = (self._reset_pending | autoreset) & ~to_reset
        self._ended = self._ended & ~reset_mask
        self._step[reset_mask] = 0
        validate_finite(self._observation, None, self._step)
        self._check_spaces(reset_mask)
        if self._async_spaces:
            self._async_spaces.check()
        return self._masks.add_to(self._observation, self._info_masks, self._step, self._ended | self._reset_pending)

    @override
    def step(self, action: Shaped[np.ndarray, "E ..."]) -> VectorStep:
        result = self._env.step(to_env_action(self.env_action_space, action))
        observation, reward, terminated, truncated, info = self._parse(result)
        is_transition = ~self._reset_pending
        terminated, truncated = terminated & is_transition, truncated & is_transition
        self._reset_pending = np.zeros_like(is_transition)
        self._ended = terminated | truncated
        self._step += is_transition
        before, self._observation = self._observation, self._flatten(observation)
        final = self._observation
        self._info_masks = info_masks = self._extract_masks(info)
        success_info = info
        if self._mode is AutoresetMode.SAME_STEP and self._ended.any():
            final, final_info = self._insert_final(info), info.get("final_info", {})
            self._overwritten_finals.compare(self._ended, before, final, self._observation)
            if not isinstance(final_info, Mapping):
                raise UserError(
                    f"info['final_info'] of the vector environment is a {type(final_info).__name__}: make it a dict of "
                    "arrays, as in Gymnasium 1.x"
                )
            final_masks = self._masks_in(final_info)
            info_masks = _where_list(self._ended, final_masks, info_masks)
            success_info = {**info, "final_success": _success_entry(final_info, self.num_envs)}
        reward = np.where(is_transition, reward, 0.0)
        failed, faults = self._find_failed(final, reward)
        if failed is not None:
            valid = ~failed
            is_transition, terminated, truncated = is_transition & valid, terminated & valid, truncated & valid
            reward, self._ended = np.where(valid, reward, 0.0), self._ended & valid
            final, info_masks = self._restart_failed(failed, final, info_masks)
        final = self._masks.add_to(final, info_masks, self._step, self._ended)
        return VectorStep(
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            is_transition=is_transition,
            final_observation=final,
            observation=final,
            episode_start=~is_transition,
            success=self._success(success_info, is_transition),
            failed=failed,
            faults=faults,
        )

    @property
    @override
    def render_fps(self) -> float:
        return render_fps(self._env)

    @override
    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        return render_frame(self._env)

    @override
    def close(self) -> None:
        try:
            self._env.close()
        except ENV_ERRORS as error:
            print(f"the vector environment could not be closed ({describe_error(error)})", file=sys.stderr)

    def state_dict(self) -> State | None:
        """Return the state; None if the vector environment cannot save its state."""
        state = nested_state_dict(self._env, self, _STATE)
        return state and {**state, "masks_in_info": self._masks.in_info}

    def load_state_dict(self, state: State) -> None:
        """Restore the result of `state_dict`."""
        load_nested_state_dict(self._env, self, state)
        self._masks.in_info = state.get("masks_in_info")

    def _check_spaces(self, rows: Bool[np.ndarray, "E"]) -> None:
        """Raise `UserError` if spaces have changed: of `rows`, where single environments are in this process."""
        self._fixed_spaces.check()
        for row, fixed_spaces in enumerate(self._fixed_single_spaces):
            if rows[row]:
                fixed_spaces.check()

    def _reset_all(self, new_task: Bool[np.ndarray, "E"]) -> dict[str, np.ndarray]:
        if self._seed is None and not new_task.all():
            raise UserError("this vector environment cannot repeat a task: use attempts=1")
        observation, info = self._reset_env(seed=self._seed)
        self._seed = None
        self._info_masks = self._extract_masks(info)
        return self._flatten(observation)

    def _reset_env(self, **kwargs: Any) -> tuple[Any, Mapping[str, Any]]:
        result = self._env.reset(**kwargs)
        if not (isinstance(result, tuple) and len(result) == 2):
            message = "the vector environment's reset does not return (observation, info)"
            raise InvalidEnvOutputError("shape_mismatch", message)
        validate_infos(result[1:])
        return result

    def _parse(
        self, result: Any
    ) -> tuple[Any, Float[np.ndarray, "E"], Bool[np.ndarray, "E"], Bool[np.ndarray, "E"], Mapping[str, Any]]:
        """Return observation, rewards, flags and info of a step. Raises `InvalidEnvOutputError` for invalid values."""
        if not (isinstance(result, tuple) and len(result) == 5):
            message = "the vector environment's step does not return (observation, reward, terminated, truncated, info)"
            raise InvalidEnvOutputError("shape_mismatch", message)
        observation, reward, terminated, truncated, info = result
        validate_infos([info])
        for name, values in {"reward": reward, "terminated": terminated, "truncated": truncated}.items():
            if np.shape(values) != (self.num_envs,):
                message = f"{name} has shape {np.shape(values)}: make it ({self.num_envs},)"
                raise InvalidEnvOutputError("shape_mismatch", message)
        flags = stack_flags("terminated", terminated), stack_flags("truncated", truncated)
        return observation, stack_rewards(reward), *flags, info

    def _reset_rows(self, mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]) -> dict[str, np.ndarray]:
        """Reset the rows of a mask, which is not empty."""
        if not self._resets_by_mask:
            raise UserError(
                "this vector environment resets itself and cannot truncate an episode: give a horizon that no episode "
                "exceeds, or build it with autoreset_mode DISABLED"
            )
        repeats = mask & ~new_task
        resets: list[tuple[Any, dict[str, Any]]] = [(mask, {"new_task": new_task.copy()} if repeats.any() else {})]
        if self._forwards_options:
            resets = [(mask & new_task, {}), (repeats, {"new_task": False})]
        for rows, options in resets:
            if rows.any():
                observation, info = self._reset_env(options={"reset_mask": rows.copy(), **options})
                self._info_masks = _where_list(rows, self._extract_masks(info), self._info_masks)
        return self._flatten(observation, mask)

    def _find_failed(
        self, final: Mapping[str, np.ndarray], reward: Float[np.ndarray, "E"]
    ) -> tuple[Bool[np.ndarray, "E"] | None, Sequence[Fault]]:
        """Return the rows that are not finite. Raises `InvalidEnvOutputError` if they cannot be reset by mask."""
        try:
            validate_finite(final, reward, self._step)
        except InvalidEnvOutputError as error:
            if not self._resets_by_mask:
                raise
            return nonfinite_rows(final, reward), [fault_from_exception(error, "the vector environment")]
        return None, ()

    def _restart_failed(
        self, failed: Bool[np.ndarray, "E"], final: Mapping[str, np.ndarray], info_masks: list[Any]
    ) -> tuple[dict[str, np.ndarray], list[Any]]:
        """Start an episode on a new task in the failed rows; return observation and masks with theirs."""
        first = self._reset_rows(failed, np.ones_like(failed))
        self._observation = _where(failed, first, self._observation)
        self._step[failed] = 0
        final = _where(failed, first, final)
        validate_finite(final, None, self._step)
        return final, _where_list(failed, self._info_masks, info_masks)

    def _extract_masks(self, info: Mapping[str, Any]) -> list[Any]:
        masks = self._masks_in(info)
        if self._mask_method is None or any(mask is not None for mask in masks):
            return masks
        return self._mask_method(self._ended)

    def _masks_in(self, info: Mapping[str, Any]) -> list[Any]:
        try:
            return self._masks.from_vector_info(info, self.num_envs)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"info has not one action mask for each of {self.num_envs} environments: give an array of as many rows"
            ) from error

    def _flatten(self, observation: Any, rows: Bool[np.ndarray, "E"] | None = None) -> dict[str, np.ndarray]:
        """Return leaves that share no memory with the environment, which may reuse its buffers.

        Raises `UserError` if an observation is not in its space: of `rows`, if given.
        """
        try:
            leaves = self._parser.split(observation, rows)
        except OutOfSpaceError as error:
            row = min(error.row, self.num_envs - 1)
            raise out_of_space_error(error, row, int(self._step[row])) from error
        for name, leaf in leaves.items():
            if leaf.shape[:1] != (self.num_envs,):
                message = f"observation {name!r} has shape {leaf.shape}: its first dimension must be {self.num_envs}"
                raise InvalidEnvOutputError("shape_mismatch", message)
        return {name: leaf.copy() if leaf.dtype in (np.uint8, np.bool_) else leaf for name, leaf in leaves.items()}

    def _insert_final(self, info: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the last observation with the final observations of the episodes that have ended."""
        if "final_obs" not in info:
            raise UserError("the vector environment resets in the same step but gives no info['final_obs']: add it")
        final = info["final_obs"]
        if not (isinstance(final, np.ndarray) and final.dtype == np.object_):
            return _where(self._ended, self._flatten(final, self._ended), self._observation)
        leaves = {name: leaf.copy() for name, leaf in self._observation.items()}
        try:
            ended = self._parser.stack(list(final[self._ended]))
        except OutOfSpaceError as error:
            row = int(np.flatnonzero(self._ended)[error.row])
            raise out_of_space_error(error, row, int(self._step[row])) from error
        for name, leaf in ended.items():
            leaves[name][self._ended] = leaf
        return leaves

    def _success(self, info: Mapping[str, Any], is_transition: Bool[np.ndarray, "E"]) -> Bool[np.ndarray, "E"] | None:
        success = _success_entry(info, self.num_envs)
        if "final_success" in info:
            final = info["final_success"]
            success = final if success is None else np.where(self._ended, False if final is None else final, success)
        self._reports_success |= success is not None
        if success is None:
            return np.zeros_like(is_transition) if self._reports_success else None
        return success & is_transition


def make_episode_vector_env(
    envs: Any, seed: int, *, action_mask_key: str = ACTION_MASK_KEY
) -> SerialVectorEnv | GymnasiumVectorAdapter:
    """Return one or more `gymnasium.Env`, or a `gymnasium.vector.VectorEnv`, as an `EpisodeVectorEnv` in this process.

    Raises:
        UserError: If `envs` is anything else, or has spaces that are not supported.
    """
    if isinstance(envs, VectorEnv):
        return GymnasiumVectorAdapter(envs, seed, action_mask_key=action_mask_key)
    singles = envs if isinstance(envs, Sequence) else [envs]
    for env in singles:
        validate_env(env)
    return SerialVectorEnv(singles, seed, action_mask_key=action_mask_key)


def _autoreset_mode(env: VectorEnv) -> AutoresetMode:
    # Sync and Async write their mode into metadata that all environments of a class share, so read their own field.
    mode = getattr(env.unwrapped, "autoreset_mode", env.metadata.get("autoreset_mode"))
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise UserError(
            "the vector environment does not declare how it resets: set metadata['autoreset_mode'] to a "
            "gymnasium.vector.AutoresetMode"
        ) from None


def _where(
    mask: Bool[np.ndarray, "E"], new: Mapping[str, np.ndarray], old: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the leaves of `new` in the rows of `mask`, of `old` elsewhere."""
    return {name: np.where(mask.reshape(-1, *[1] * (leaf.ndim - 1)), new[name], leaf) for name, leaf in old.items()}


def _where_list(mask: Bool[np.ndarray, "E"], new: list[Any], old: list[Any]) -> list[Any]:
    return [new_item if is_new else old_item for is_new, new_item, old_item in zip(mask, new, old, strict=True)]


def _has_value(entry: Any) -> bool:
    """Return whether at least one environment has another value than None in an entry of a vector info."""
    if isinstance(entry, np.ndarray) and entry.dtype == np.object_:
        return any(value is not None for value in entry)
    return entry is not None


def _success_entry(info: Mapping[str, Any], num_envs: int) -> Bool[np.ndarray, "E"] | None:
    """Return `success` of a vector info, else `is_success`, False where it is absent; None if no environment has it."""
    key = next((key for key in ("success", "is_success") if _has_value(info.get(key))), None)
    if key is None:
        return None
    values = np.asarray(info[key])
    if values.shape[:1] != (num_envs,):
        raise UserError(f"info[{key!r}] has shape {values.shape}: its first dimension must be {num_envs}")
    if values.dtype == np.object_:
        values = np.array([False if value is None else value for value in values])
    if values.size == len(values):  # Gymnasium stacks arrays of one number
        values = values.reshape(-1)
    is_given = np.broadcast_to(info.get(f"_{key}", True), values.shape)
    return stack_success_flags(f"info[{key!r}]", np.where(is_given, values, np.zeros_like(values)))
