"""POPGym: 13 families of memory tasks, each easy, medium and hard (Morad et al. 2023; paper, figure 3)."""

import difflib
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium import spaces
from typing_extensions import override

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import SingleEnvConfig
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError

# fmt: off
POPGYM_FAMILIES = (
    "Autoencode", "Battleship", "Concentration", "CountRecall", "HigherLower", "MineSweeper", "MultiarmedBandit",
    "NoisyPositionOnlyCartPole", "NoisyPositionOnlyPendulum", "PositionOnlyCartPole", "PositionOnlyPendulum",
    "RepeatFirst", "RepeatPrevious",
)
# fmt: on
POPGYM_NAMES = tuple(family + level for family in POPGYM_FAMILIES for level in ("Easy", "Medium", "Hard"))
"""The 39 environments of the figure in the paper."""


@dataclass(frozen=True, kw_only=True)
class PopgymConfig(SingleEnvConfig):
    """One of the 39 POPGym environments; a trial is one episode.

    The horizon, which scales the time input, is 1024 for all of them: the longest episode has 831 steps, so none is
    truncated. Differs from the authors' code, where it is 10,000, which makes the time input almost constant.
    """

    name: str = "RepeatPreviousEasy"
    """Family and difficulty, such as `AutoencodeMedium`."""

    @property
    @override
    def required_extra(self) -> str:
        return "popgym"

    @property
    @override
    def task_name(self) -> str:
        """Such as `popgym-RepeatPreviousEasy`."""
        return f"popgym-{self.name}"

    @property
    @override
    def max_trial_steps(self) -> int:
        return 1024

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        envs = self.make_vector_env(partial(make_popgym, self.name), num_envs, seed)
        return TrialWrapper(envs, horizon=self.max_trial_steps, attempts=1)


def make_popgym(name: str) -> gymnasium.Env[Any, Any]:
    """Return one environment. Actions that are pairs in POPGym (row and column of a board) become single integers.

    Raises:
        UserError: If the name is unknown or POPGym is not installed.
    """
    if name not in POPGYM_NAMES:
        nearest = difflib.get_close_matches(name, POPGYM_NAMES, n=1, cutoff=0.0)[0]
        raise UserError(f"POPGym has no environment {name!r}: did you mean {nearest!r}?")
    try:
        from popgym import envs
        from popgym.wrappers import DiscreteAction
    except ImportError as error:
        raise UserError(f"environment {name!r} needs the package popgym: pip install 'yamame[popgym]'") from error
    env: gymnasium.Env[Any, Any] = getattr(envs, name)()
    return DiscreteAction(env) if isinstance(env.action_space, spaces.MultiDiscrete) else env
