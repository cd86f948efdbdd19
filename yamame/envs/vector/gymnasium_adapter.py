"""A Gymnasium vector environment of any autoreset mode, with no transition that never happened."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from jaxtyping import Bool, Float32, Shaped, UInt8

from yamame.data.actions import ACTION_MASK_KEY, check_action_space, policy_action_space, to_env_action
from yamame.data.spaces import flatten_observation, flatten_space
from yamame.data.step import EpisodeStep
from yamame.envs.rendering import render_fps, render_frame
from yamame.envs.vector.action_masks import ActionMaskExtractor, masks_from_vector_info
from yamame.envs.vector.obs_filter import stack_observations
from yamame.envs.vector.restarting import InvalidEnvOutputError, fault_from_exception
from yamame.envs.vector.serial import SerialVectorEnv, validate_env
from yamame.envs.vector.validation import nonfinite_rows, validate_finite, validate_shapes
from yamame.errors import UserError
from yamame.types import Fault, State, load_nested_state_dict, nested_state_dict

_STATE = ("_seed", "_observation", "_told", "_ended", "_late", "_step", "_announces_success")


class GymnasiumVectorAdapter:
    """`Environments` over a `gymnasium.vector.VectorEnv`, which may reset itself.

    * Reset by mask (mode DISABLED, and Gymnasium's own Sync and Async environments): the adapter passes
      `options={"reset_mask": bools, "new_task": bools}`. Sync and Async hand options on to each single environment,
      so they get one `new_task` bool a call.
    * SAME_STEP: the end of an episode is read from `info["final_obs"]`, the beginning of the next is already there.
    * NEXT_STEP without masks: `reset` returns what was last seen, and the next `step` delivers the first observation
      of those rows with `live` False.

    An environment that resets itself draws its own next task and plays every episode out: `reset` raises `UserError`
    when asked for anything else. The first reset passes a seed drawn from `seed`, later ones none. `action_mask_key` is where
    the environments say what they allow (see `ActionMaskExtractor`).

    Rows that are not finite after a step are reset by mask, and have `failed`. Raises `InvalidEnvOutputError` where that cannot
    be, for what is not finite after a reset, and for what is not of its space.
    """

    def __init__(self, environments: VectorEnv, seed: int, *, action_mask_key: str = ACTION_MASK_KEY) -> None:
        self.num_envs = environments.num_envs
        self.observation_space = environments.single_observation_space
        self.env_action_space = check_action_space(environments.single_action_space)
        self.action_space = policy_action_space(self.env_action_space)
        self._leaves = flatten_space(self.observation_space)
        self._masks = ActionMaskExtractor(action_mask_key, self.observation_space, self.env_action_space)
        self._mask_key = action_mask_key
        self._told: list[Any] = [None] * self.num_envs
        self._environments = environments
        # Gymnasium seeds row i with seed + i: halved, so that the sum still fits into 32 bits.
        self._seed: int | None = int(np.random.SeedSequence(seed).generate_state(1)[0] // 2)
        self._mode = _autoreset_mode(environments)
        self._hands_options_on = isinstance(environments.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        self._takes_mask = self._mode is AutoresetMode.DISABLED or self._hands_options_on
        self._resets_itself = self._mode is AutoresetMode.SAME_STEP or not self._takes_mask
        self._observation: dict[str, np.ndarray] = {}
        self._ended = np.zeros(self.num_envs, np.bool_)
        self._late = np.zeros(self.num_envs, np.bool_)
        self._step = np.zeros(self.num_envs, np.int64)
        self._announces_success = False

    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """See `Environments.reset`. The first call begins every environment."""
        begun_alone = reset_mask & self._ended if self._resets_itself else np.zeros_like(reset_mask)
        if (begun_alone & ~new_task).any():
            raise UserError(
                "this vector environment resets itself and cannot repeat a task: "
                "use attempts=1, or build it with autoreset_mode DISABLED and let it take options['new_task']"
            )
        to_begin = reset_mask & ~begun_alone
        if self._seed is not None or (reset_mask.all() and to_begin.any() and not self._takes_mask):
            self._observation = self._start_all(new_task)
            to_begin = reset_mask
        elif to_begin.any():
            self._observation = _choose(to_begin, self._start(to_begin, new_task), self._observation)
        if self._mode is AutoresetMode.NEXT_STEP:
            self._late = (self._late | begun_alone) & ~to_begin
        self._ended = self._ended & ~reset_mask
        self._step[reset_mask] = 0
        validate_finite(self._observation, None, self._step)
        return self._masks.add_to(self._observation, self._told, self._step, self._ended | self._late)

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """See `Environments.step`."""
        answer = self._environments.step(to_env_action(self.env_action_space, action))
        observation, reward, terminated, truncated, info = answer
        live = ~self._late
        terminated = np.asarray(terminated, np.bool_) & live
        truncated = np.asarray(truncated, np.bool_) & live
        self._late = np.zeros_like(live)
        self._ended = terminated | truncated
        self._step += live
        self._observation = led_to = self._flat(observation)
        self._told = told = self._masks_of(info)
        success_of = info
        if self._mode is AutoresetMode.SAME_STEP and self._ended.any():
            led_to, final_info = self._with_final(info), info.get("final_info", {})
            told = _choose_told(self._ended, self._masks_of(final_info), told)
            success_of = {**info, "final_success": _entry(final_info, "success")}
        validate_shapes(led_to, self._leaves)
        reward = np.where(live, self._one_number(reward), 0.0).astype(np.float32)
        failed, faults = self._failed(led_to, reward)
        if failed is not None:
            sound = ~failed
            live, terminated, truncated = live & sound, terminated & sound, truncated & sound
            reward, self._ended = np.where(sound, reward, np.float32(0.0)), self._ended & sound
            led_to, told = self._restart_failed(failed, led_to, told)
        return EpisodeStep(
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            is_transition=live,
            observation=self._masks.add_to(led_to, told, self._step, self._ended),
            success=self._success(success_of, live),
            failed=failed,
            faults=faults,
        )

    @property
    def render_fps(self) -> float:
        """See `RenderableVectorEnv`."""
        return render_fps(self._environments)

    def render(self) -> UInt8[np.ndarray, "height width 3"]:
        """See `RenderableVectorEnv`."""
        return render_frame(self._environments)

    def close(self) -> None:
        """Close the vector environment."""
        self._environments.close()

    def state_dict(self) -> State | None:
        """See `Resumable`: where the vector environment itself is."""
        return nested_state_dict(self._environments, self, _STATE)

    def load_state_dict(self, state: State) -> None:
        """See `Resumable`."""
        load_nested_state_dict(self._environments, self, state)

    def _start_all(self, new_task: Bool[np.ndarray, "E"]) -> dict[str, np.ndarray]:
        if self._seed is None and not new_task.all():
            raise UserError("this vector environment cannot repeat a task: use attempts=1")
        options: dict[str, Any] = {"new_task": True if self._hands_options_on else new_task.copy()}
        observation, info = self._environments.reset(seed=self._seed, options=options)
        self._seed = None
        self._told = self._masks_of(info)
        flat = self._flat(observation)
        validate_shapes(flat, self._leaves)
        return flat

    def _start(self, mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]) -> dict[str, np.ndarray]:
        if not self._takes_mask:
            raise UserError(
                "this vector environment resets itself and cannot cut an episode short: give a horizon that no episode "
                "exceeds, or build it with autoreset_mode DISABLED"
            )
        if not self._hands_options_on:
            options = {"reset_mask": mask.copy(), "new_task": new_task.copy()}
            observation, info = self._environments.reset(options=options)
            self._told = _choose_told(mask, self._masks_of(info), self._told)
            return self._flat(observation)
        for wanted in (True, False):
            rows = mask & (new_task == wanted)
            if rows.any():
                observation, info = self._environments.reset(options={"reset_mask": rows, "new_task": wanted})
                self._told = _choose_told(rows, self._masks_of(info), self._told)
        return self._flat(observation)

    def _failed(
        self, led_to: Mapping[str, np.ndarray], reward: Float32[np.ndarray, "E"]
    ) -> tuple[Bool[np.ndarray, "E"] | None, Sequence[Fault]]:
        """The rows that are not finite, where these can be begun anew alone; otherwise raises `InvalidEnvOutputError`."""
        try:
            validate_finite(led_to, reward, self._step)
        except InvalidEnvOutputError as error:
            if not self._takes_mask:
                raise
            return nonfinite_rows(led_to, reward), [fault_from_exception(error, "the vector environment")]
        return None, ()

    def _restart_failed(
        self, failed: Bool[np.ndarray, "E"], led_to: Mapping[str, np.ndarray], told: list[Any]
    ) -> tuple[dict[str, np.ndarray], list[Any]]:
        """Begin an episode on a new task in these rows: what was seen, and told of masks, with theirs."""
        begun = self._start(failed, np.ones_like(failed))
        self._observation = _choose(failed, begun, self._observation)
        self._step[failed] = 0
        led_to = _choose(failed, begun, led_to)
        validate_finite(led_to, None, self._step)
        return led_to, _choose_told(failed, self._told, told)

    def _one_number(self, reward: Any) -> Shaped[np.ndarray, "E"]:
        if np.shape(reward) != (self.num_envs,):
            message = f"rewards have shape {np.shape(reward)}: make it ({self.num_envs},)"
            raise InvalidEnvOutputError("shape_mismatch", message)
        return np.asarray(reward)

    def _masks_of(self, info: Mapping[str, Any]) -> list[Any]:
        return masks_from_vector_info(info, self._mask_key, self.num_envs)

    def _flat(self, observation: Any) -> dict[str, np.ndarray]:
        """Leaves that share no memory with the environment, which may reuse its buffers."""
        leaves = flatten_observation(self.observation_space, observation)
        return {name: leaf.copy() if leaf.dtype in (np.uint8, np.bool_) else leaf for name, leaf in leaves.items()}

    def _with_final(self, info: Mapping[str, Any]) -> dict[str, np.ndarray]:
        if "final_obs" not in info:
            raise UserError("the vector environment resets in the same step but gives no info['final_obs']: add it")
        final = info["final_obs"]
        if not (isinstance(final, np.ndarray) and final.dtype == np.object_):
            return _choose(self._ended, self._flat(final), self._observation)
        led_to = {name: leaf.copy() for name, leaf in self._observation.items()}
        for name, leaf in stack_observations(self.observation_space, list(final[self._ended])).items():
            led_to[name][self._ended] = leaf
        return led_to

    def _success(self, info: Mapping[str, Any], live: Bool[np.ndarray, "E"]) -> Bool[np.ndarray, "E"] | None:
        success = _entry(info, "success")
        if "final_success" in info:
            final = info["final_success"]
            success = final if success is None else np.where(self._ended, False if final is None else final, success)
        self._announces_success |= success is not None
        if success is None:
            return np.zeros_like(live) if self._announces_success else None
        return success & live


def _autoreset_mode(environments: VectorEnv) -> AutoresetMode:
    # Sync and Async write their mode into metadata that all environments of a class share, so their own field counts.
    mode = getattr(environments.unwrapped, "autoreset_mode", environments.metadata.get("autoreset_mode"))
    try:
        return AutoresetMode(mode)
    except ValueError:
        raise UserError(
            "the vector environment does not say how it resets: set metadata['autoreset_mode'] to a "
            "gymnasium.vector.AutoresetMode"
        ) from None


def _choose(
    mask: Bool[np.ndarray, "E"], new: Mapping[str, np.ndarray], old: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """`new` in the rows of `mask`, `old` elsewhere."""
    return {name: np.where(mask.reshape(-1, *[1] * (leaf.ndim - 1)), new[name], leaf) for name, leaf in old.items()}


def _choose_told(mask: Bool[np.ndarray, "E"], new: list[Any], old: list[Any]) -> list[Any]:
    return [new_one if chosen else old_one for chosen, new_one, old_one in zip(mask, new, old, strict=True)]


def _entry(info: Mapping[str, Any], key: str) -> Bool[np.ndarray, "E"] | None:
    """A true-or-false entry of vector infos, False where it is absent; None where no environment gave it."""
    if key not in info:
        return None
    values = np.asarray(info[key])
    if values.dtype == np.object_:
        values = np.array([0.0 if value is None else float(value) for value in values])
    return (values > 0) & info.get(f"_{key}", True)


def make_episode_vector_env(
    environments: Any, seed: int, *, action_mask_key: str = ACTION_MASK_KEY
) -> SerialVectorEnv | GymnasiumVectorAdapter:
    """One `gymnasium.Env`, several of them, or a `gymnasium.vector.VectorEnv`, to be stepped together in this process.

    `action_mask_key` is where they say which actions they allow (see `ActionMaskExtractor`).
    Raises `UserError` for anything else and for spaces that are not supported.
    """
    if isinstance(environments, VectorEnv):
        return GymnasiumVectorAdapter(environments, seed, action_mask_key=action_mask_key)
    several = environments if isinstance(environments, Sequence) else [environments]
    for each in several:
        validate_env(each)
    return SerialVectorEnv(several, seed, action_mask_key=action_mask_key)
