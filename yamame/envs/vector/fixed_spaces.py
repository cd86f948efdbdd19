"""Spaces of an environment must stay as they are when it is made: the agent is built for them."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from gymnasium import spaces

from yamame.data.spaces import describe_space, walk_space
from yamame.errors import UserError

_NAMES = ("observation_space", "action_space")


class FixedSpaces:
    """Finds a change of the spaces of one environment.

    A check is fast if the spaces are the same objects as before: of these, only the sizes of Discrete leaves are
    compared, which an environment may set.

    Args:
        env: The environment, or a vector environment.
        names: Its attributes with the observation space and the action space.
    """

    def __init__(self, env: Any, names: Sequence[str] = _NAMES) -> None:
        self._env, self._names = env, names
        self._last = [getattr(env, name) for name in names]
        self._expected = deepcopy(self._last)
        self._discrete = [
            leaf for space in self._last for _, leaf in walk_space(space) if isinstance(leaf, spaces.Discrete)
        ]
        self._sizes = self._read_sizes()

    def check(self, owner: str) -> None:
        """Raise `UserError` if a space differs from that with which the environment was made.

        Args:
            owner: Name of the environment.
        """
        found = [getattr(self._env, name) for name in self._names]
        if found[0] is self._last[0] and found[1] is self._last[1] and self._read_sizes() == self._sizes:
            return
        check_spaces_unchanged(owner, found, self._expected)
        self._last = found

    def _read_sizes(self) -> list[tuple[Any, Any]]:
        return [(leaf.n, leaf.start) for leaf in self._discrete]


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
