"""What environments say about the actions that they allow, wherever they say it, as one observation leaf."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Int64, Shaped

from yamame.data.actions import ACTION_MASK_KEY, NativeActionSpace, has_allowed_action, num_choices
from yamame.data.spaces import flatten_space, stored_shape
from yamame.errors import UserError

InfoMasks = Sequence[Any]
"""For each environment what its info has under the key of masks; None where it has nothing."""


class ActionMaskExtractor:
    """Puts the masks of E environments into their observations, as the leaf `ACTION_MASK_KEY`: bool `[E, A]`.

    A mask is the observation leaf called `key`, or where there is no such leaf, what every info has under `key`: an
    array or nested sequences with one entry for every choice of every component, zero where it is forbidden. Whether
    infos have any shows at the first reset. An environment whose episode has ended may allow nothing, or say nothing:
    then everything counts as allowed, since no action is taken there.

    `first_row` is the number of the first of these environments in error messages.
    """

    def __init__(
        self,
        key: str,
        observation_space: spaces.Space[Any],
        action_space: NativeActionSpace,
        *,
        first_row: int = 0,
    ) -> None:
        leaves = flatten_space(observation_space)
        if ACTION_MASK_KEY in leaves and key != ACTION_MASK_KEY:
            raise UserError(f"observation {ACTION_MASK_KEY!r} has the name of action masks: rename it with a wrapper")
        self._key = key
        self._sizes = num_choices(action_space)
        self._in_observation = key in leaves
        self._first_row = first_row
        self._announced: bool | None = None
        if self._in_observation:
            self._check_size(int(np.prod(stored_shape(leaves[key]))), f"observation {key!r}")

    def add_to(
        self,
        observation: Mapping[str, Shaped[np.ndarray, "E ..."]],
        told: InfoMasks,
        step: Int64[np.ndarray, "E"],
        resting: Bool[np.ndarray, "E"],
    ) -> dict[str, Shaped[np.ndarray, "E ..."]]:
        """The leaves of `observation` with the masks, if there are any. `resting` episodes have ended.

        Raises `UserError`, naming the environment and the `step` of its episode, for masks that are missing, of
        another size, or allow nothing.
        """
        leaves = dict(observation)
        if self._in_observation:
            raw = leaves.pop(self._key)
            mask_EA = raw.reshape(len(raw), -1) != 0
        elif any(each is not None for each in told) or self._announced:
            mask_EA = self._from_infos(told, step, resting)
        elif self._key in ("", ACTION_MASK_KEY):
            self._announced = False
            return leaves
        else:
            raise UserError(
                f"env.action_mask_key is {self._key!r}, but neither the observation nor the info of the first reset has it: "
                "mend the name, or leave the flag out to do without masks"
            )
        allows_E = has_allowed_action(mask_EA, self._sizes)
        mask_EA[resting & ~allows_E] = True
        for row in np.flatnonzero(~allows_E & ~resting)[:1]:
            raise UserError(
                f"environment {self._first_row + row} allows no action at step {step[row]} of its episode: "
                "its mask needs at least one action (of every component), or the episode must end"
            )
        return {**leaves, ACTION_MASK_KEY: mask_EA}

    def _from_infos(
        self, told: InfoMasks, step: Int64[np.ndarray, "E"], resting: Bool[np.ndarray, "E"]
    ) -> Bool[np.ndarray, "E A"]:
        if self._announced is None:
            self._announced = True
        mask_EA = np.zeros((len(told), sum(self._sizes)), np.bool_)
        for row, value in enumerate(told):
            if (value is None and not resting[row]) or not self._announced:
                raise missing_mask_error(self._key, self._first_row + row, int(step[row]))
            if value is not None:
                flat = _flat(value)
                self._check_size(len(flat), f"environment {self._first_row + row}: info[{self._key!r}]")
                mask_EA[row] = flat
        return mask_EA

    def _check_size(self, found: int, where: str) -> None:
        wanted = sum(self._sizes)
        if found != wanted or not wanted:
            raise UserError(
                f"{where} has {found} entries, but an action mask has one for each of {wanted} choices: "
                "mend it, or let env.action_mask_key name something else"
            )


def missing_mask_error(key: str, row: int, step: int) -> UserError:
    """The complaint about an environment that gives a mask at some times, or beside others that do, and not always."""
    return UserError(
        f"info[{key!r}] is not given by every environment at every reset and step (look at environment {row}, "
        f"step {step} of its episode): give it always, or set env.action_mask_key to '' to do without"
    )


def masks_from_infos(infos: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    """What single environments say."""
    return [info.get(key) if key else None for info in infos]


def masks_from_vector_info(info: Mapping[str, Any], key: str, num_envs: int) -> list[Any]:
    """What a vector environment says."""
    if not key or key not in info:
        return [None] * num_envs
    given = np.broadcast_to(info.get(f"_{key}", True), num_envs)
    return [value if there else None for value, there in zip(info[key], given, strict=True)]


def _flat(mask: Any) -> Bool[np.ndarray, "A"]:
    if isinstance(mask, tuple | list):
        return np.concatenate([_flat(part) for part in mask]) if mask else np.zeros(0, np.bool_)
    return np.asarray(mask).reshape(-1) != 0
