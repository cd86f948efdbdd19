"""Bernoulli bandits: find out which arm pays while pulling arms (Wang et al. 2016, Duan et al. 2016)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, Int64, UInt8
from typing_extensions import override

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.rendering import AGENT, FLOOR, GOAL, WALL, GridCanvas
from yamame.envs.vector.gymnasium_adapter import GymnasiumVectorAdapter
from yamame.envs.vector.numpy_env import NumpyVectorEnv, SingleEnvAdapter, StepResult, parse_reset_options
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError, check_range

_MIN_ARMS = 2
_BAR_CELLS = 10
"""Height in cells of the bar of an arm that always pays."""


class BanditVectorEnv(NumpyVectorEnv):
    """E bandits of `arms` arms. An action pulls an arm.

    Arm a pays a reward of 1 with probability `pay_probabilities[a]`, else 0. The probabilities are uniform in [0, 1]
    and independent; with `dependent` there are two arms, which pay with p and 1 - p, so that a pull of one tells as
    much about the other. An episode has `pulls` pulls. The observation `[E, 1]` is always 0: all that is known are the
    previous action and its reward, which are inputs of the agent.

    Reset by `options["reset_mask"]`, with the same probabilities where `options["new_task"]` is False. `info` is
    empty: no episode is a success or a failure. The arguments are fields of `BanditConfig`.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        arms: int = 2,
        pulls: int = 100,
        dependent: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if pulls < 1:
            raise UserError(f"pulls is {pulls}: give at least 1")
        _check_arms(arms, dependent)
        super().__init__(num_envs, spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(arms), render_mode)
        self.arms, self.pulls, self.dependent = arms, pulls, dependent
        self.pay_probabilities = np.full((num_envs, arms), -1.0)
        """Probability `[E, arms]` that a pull pays; -1 before the first reset."""
        self._time = np.zeros(num_envs, np.int64)
        self._last_arm = np.full(num_envs, -1, np.int64)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, "E 1"], dict[str, Any]]:
        super().reset(seed=seed)
        rows, new_task = parse_reset_options(options, self.pay_probabilities[:, 0] >= 0)
        sampled = self.np_random.random((int(new_task.sum()), self.arms))
        if self.dependent:
            sampled[:, 1] = 1.0 - sampled[:, 0]
        self.pay_probabilities[new_task] = sampled
        self._time[rows], self._last_arm[rows] = 0, -1
        return self._observe(), {}

    @override
    def step(self, actions: Int64[np.ndarray, "E"]) -> StepResult[Float32[np.ndarray, "E 1"]]:
        """Pull one arm of every bandit. At the end both flags are set."""
        probability = self.pay_probabilities[np.arange(self.num_envs), actions]
        reward = (self.np_random.random(self.num_envs) < probability).astype(np.float64)
        self._time += 1
        self._last_arm = np.array(actions, np.int64)
        ended = self._time >= self.pulls
        return self._observe(), reward, ended, ended.copy(), {}

    @override
    def render_single(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """Return a frame: a green bar for each arm, as high as it is likely to pay, and a red disc below the arm of the
        last pull, or at the left before the first one."""
        canvas = GridCanvas(2 * self.arms + 1, _BAR_CELLS + 3, WALL)
        for arm, probability in enumerate(self.pay_probabilities[index]):
            for y in range(_BAR_CELLS):
                canvas.fill(2 * arm + 1, y + 2, GOAL if y < round(probability * _BAR_CELLS) else FLOOR)
        canvas.disc(max(0, 2 * int(self._last_arm[index]) + 1), 1, AGENT, fraction=0.9)
        return canvas.image

    def _observe(self) -> Float32[np.ndarray, "E 1"]:
        return np.zeros((self.num_envs, 1), np.float32)


class BanditEnv(SingleEnvAdapter):
    """One bandit of `BanditVectorEnv`, whose arguments it takes."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(BanditVectorEnv(1, **kwargs))


@dataclass(frozen=True, kw_only=True)
class BanditConfig(EnvConfig):
    """Find out which arm pays, and pull it: exploration and exploitation in their smallest form."""

    arms: int = 2
    """Number of arms."""
    pulls: int = 100
    """Number of pulls of a trial."""
    dependent: bool = True
    """Two arms that pay with p and 1 - p, instead of arms with independent probabilities."""

    def __post_init__(self) -> None:
        check_range(self, "pulls", ge=1)
        _check_arms(self.arms, self.dependent)

    @property
    @override
    def max_trial_steps(self) -> int:
        return self.pulls

    @property
    @override
    def task_name(self) -> str:
        """Such as `dependent-bandit-2x100` or `bandit-5x100`: arms x pulls."""
        return f"{'dependent-' if self.dependent else ''}bandit-{self.arms}x{self.pulls}"

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        bandits = BanditVectorEnv(num_envs, arms=self.arms, pulls=self.pulls, dependent=self.dependent)
        return TrialWrapper(GymnasiumVectorAdapter(bandits, seed), horizon=self.pulls, attempts=1)


def _check_arms(arms: int, dependent: bool) -> None:
    if arms < _MIN_ARMS:
        raise UserError(f"arms is {arms}: give at least {_MIN_ARMS}")
    if dependent and arms != _MIN_ARMS:
        raise UserError(f"arms is {arms}, and dependent arms are two: give dependent=False (--env.no-dependent)")
