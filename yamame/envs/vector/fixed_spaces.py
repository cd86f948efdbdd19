"""Spaces of an environment must stay as they are when it is made: the agent is built for them."""

from collections.abc import Sequence
from copy import deepcopy
from operator import attrgetter
from typing import Any

from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv

from yamame.data.spaces import describe_space, walk_space
from yamame.errors import UserError

_NAMES = ("observation_space", "action_space")


class FixedSpaces:
    """Finds a change of the spaces of one environment.

    A check is fast if the spaces are the same objects as before: of these, only the sizes of Discrete leaves are
    compared, which an environment may set.

    Args:
        env: The environment, or a vector environment.
        owner: Its name in messages.
        names: Its attributes with the observation space and the action space.
    """

    def __init__(self, env: Any, owner: str, names: tuple[str, str] = _NAMES) -> None:
        self._env, self._owner = env, owner
        self._read = attrgetter(*names)
        self._observation_space, self._action_space = spaces_now = self._read(env)
        self._expected = deepcopy(spaces_now)
        self._discrete = [
            leaf for space in spaces_now for _, leaf in walk_space(space) if isinstance(leaf, spaces.Discrete)
        ]
        self._sizes = [leaf.n for leaf in self._discrete]

    def check(self) -> None:
        """Raise `UserError` if a space differs from that with which the environment was made."""
        observation_space, action_space = found = self._read(self._env)
        are_same = observation_space is self._observation_space and action_space is self._action_space
        if are_same and [leaf.n for leaf in self._discrete] == self._sizes:
            return
        check_spaces_unchanged(self._owner, found, self._expected)
        self._observation_space, self._action_space = found


class FixedAsyncSpaces:
    """Finds a change of the spaces of the environments of an `AsyncVectorEnv`, which are in processes of their own.

    They are compared after 1, 2, 4, 8, … resets: to send the bounds of an image takes longer than a step.

    Args:
        env: The vector environment.
    """

    def __init__(self, env: AsyncVectorEnv) -> None:
        self._env = env
        self._expected = self._read()
        self._num_resets = 0

    def check(self) -> None:
        """Raise `UserError` if a space differs from that with which its environment was made; call after a reset."""
        self._num_resets += 1
        if self._num_resets & (self._num_resets - 1):
            return
        for row, (found, expected) in enumerate(zip(self._read(), self._expected, strict=True)):
            check_spaces_unchanged(f"environment {row}", found, expected)

    def _read(self) -> list[tuple[spaces.Space[Any], spaces.Space[Any]]]:
        return list(zip(*map(self._env.get_attr, _NAMES), strict=True))


def check_spaces_unchanged(
    owner: str, found: Sequence[spaces.Space[Any]], expected: Sequence[spaces.Space[Any]]
) -> None:
    """Raise `UserError` if the observation space or the action space `found` is not the one that is expected."""
    for name, new, old in zip(_NAMES, found, expected, strict=True):
        if new != old:
            more = ", with action masks where some are not allowed" if name == "action_space" else ""
            raise UserError(
                f"{owner} changed its {name} from {describe_space(old)} to {describe_space(new)} after it was made: "
                f"declare one space for all episodes, the largest one{more}"
            )
