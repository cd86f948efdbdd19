"""Exploration noise on top of the policy's actions: schedules over a trial and over training, and what applies them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped

from yamame.data.actions import PolicyActionSpace, num_choices, sample_uniform_actions
from yamame.errors import check_range


@dataclass(frozen=True, kw_only=True)
class ExplorationConfig(ABC):
    """How much noise, as a pure function of where a trial and the training stand."""

    @abstractmethod
    def epsilon(
        self,
        time_E: Int64[np.ndarray, "E"],
        horizon: int,
        env_steps: int,
        noise_scale_E: Float64[np.ndarray, "E"],
    ) -> Float64[np.ndarray, "E"]:
        """Noise level at step `time_E` of trials of at most `horizon` transitions, after `env_steps` steps in all.

        `noise_scale_E` is what `sample_noise_scale` gave each trial. For discrete actions the level is a probability, of
        each component by itself where there are several.
        """

    def sample_noise_scale(self, rng: np.random.Generator, count: int) -> Float64[np.ndarray, "{count}"]:
        """A multiplier for each of `count` trials that begin; stored with the trajectory."""
        return np.ones(count)


@dataclass(frozen=True, kw_only=True)
class NoExploration(ExplorationConfig):
    """The policy's own actions, unchanged."""

    def epsilon(
        self,
        time_E: Int64[np.ndarray, "E"],
        horizon: int,
        env_steps: int,
        noise_scale_E: Float64[np.ndarray, "E"],
    ) -> Float64[np.ndarray, "E"]:
        """Zero."""
        return np.zeros(len(time_E))

    def sample_noise_scale(self, rng: np.random.Generator, count: int) -> Float64[np.ndarray, "{count}"]:
        """Zero."""
        return np.zeros(count)


@dataclass(frozen=True, kw_only=True)
class EpsilonGreedy(ExplorationConfig):
    """One level for all steps of a trial, falling linearly over training (what the authors' later code defaults to)."""

    anneal_env_steps: int = 1_000_000
    """Environment steps, summed over all environments, until `final` is reached."""
    initial_eps: float = 1.0
    """Noise when training begins."""
    final_eps: float = 0.05
    """Noise from `anneal_env_steps` on."""

    def __post_init__(self) -> None:
        check_range(self, "anneal_env_steps", ge=1)
        check_range(self, "initial_eps", "final_eps", ge=0)

    def epsilon(
        self,
        time_E: Int64[np.ndarray, "E"],
        horizon: int,
        env_steps: int,
        noise_scale_E: Float64[np.ndarray, "E"],
    ) -> Float64[np.ndarray, "E"]:
        """`max(initial - (initial - final) g / N, final)` for g environment steps of N."""
        return noise_scale_E * _anneal(self.initial_eps, self.final_eps, env_steps / self.anneal_env_steps)


@dataclass(frozen=True, kw_only=True)
class BilevelEpsilonGreedy(ExplorationConfig):
    """The paper's schedule: noise falls within a trial and over training, each trial scaled by its own u ~ U(0, 1).

    Paper: Appendix, Table 4. Differs from the authors' first code, whose level at the end of a trial had the wrong
    constants: see `match_official_code`.
    """

    anneal_env_steps: int = 1_000_000
    """Environment steps, summed over all environments, of the decay. The paper counts per actor: 1,000,000 x actors."""
    trial_start_initial_eps: float = 1.0
    """Noise at the start of a trial when training begins."""
    trial_start_final_eps: float = 0.05
    """Noise at the start of a trial from `anneal_env_steps` on."""
    trial_end_initial_eps: float = 0.8
    """Noise at the end of a trial when training begins."""
    trial_end_final_eps: float = 0.01
    """Noise at the end of a trial from `anneal_env_steps` on."""
    randomize_noise_scale: bool = True
    """Scale the noise of every trial by a number drawn from U(0, 1); off: by 1."""
    match_official_code: bool = False
    """Repeat the authors' slip: the level at a trial's end falls from `trial_start_final_eps`, with the slope of the start's."""

    def __post_init__(self) -> None:
        check_range(self, "anneal_env_steps", ge=1)
        check_range(
            self,
            "trial_start_initial_eps",
            "trial_start_final_eps",
            "trial_end_initial_eps",
            "trial_end_final_eps",
            ge=0,
        )

    def epsilon(
        self,
        time_E: Int64[np.ndarray, "E"],
        horizon: int,
        env_steps: int,
        noise_scale_E: Float64[np.ndarray, "E"],
    ) -> Float64[np.ndarray, "E"]:
        """`u (start - (start - end) t / horizon)`, where `start` and `end` fall linearly over training."""
        progress = env_steps / self.anneal_env_steps
        start = _anneal(self.trial_start_initial_eps, self.trial_start_final_eps, progress)
        if self.match_official_code:
            end = max(
                self.trial_start_final_eps - (self.trial_start_initial_eps - self.trial_start_final_eps) * progress,
                self.trial_end_final_eps,
            )
        else:
            end = _anneal(self.trial_end_initial_eps, self.trial_end_final_eps, progress)
        return noise_scale_E * (start - (start - end) / horizon * time_E)

    def sample_noise_scale(self, rng: np.random.Generator, count: int) -> Float64[np.ndarray, "{count}"]:
        """u ~ U(0, 1), or 1 without `randomize`."""
        return rng.random(count) if self.randomize_noise_scale else np.ones(count)


@dataclass(frozen=True, kw_only=True)
class TMazeEpsilonGreedy(ExplorationConfig):
    """The T-Maze schedule: annealed noise at the cue and at the junction, next to none in the corridor between them.

    Differs from the authors' code, in which the annealed part stayed at u * 1.0 for ever; this is what was intended.
    Theirs ends with three steps of annealed noise.
    """

    anneal_env_steps: int = 100_000
    """Environment steps, summed over all environments, until `final` is reached."""
    initial_eps: float = 1.0
    """Noise at the first and the last steps of a trial when training begins."""
    final_eps: float = 0.01
    """Noise there from `anneal_env_steps` on."""
    corridor_random_moves: float = 0.5
    """Noise between them: about how many moves of a whole trial are random."""
    num_junction_steps: int = 3
    """Steps at the end of a trial that have the annealed noise."""

    def __post_init__(self) -> None:
        check_range(self, "anneal_env_steps", "num_junction_steps", ge=1)
        check_range(self, "initial_eps", "final_eps", "corridor_random_moves", ge=0)

    def epsilon(
        self,
        time_E: Int64[np.ndarray, "E"],
        horizon: int,
        env_steps: int,
        noise_scale_E: Float64[np.ndarray, "E"],
    ) -> Float64[np.ndarray, "E"]:
        """`corridor_random_moves / horizon` where 0 < t < horizon - num_junction_steps, else the annealed level."""
        annealed = _anneal(self.initial_eps, self.final_eps, env_steps / self.anneal_env_steps)
        in_corridor_E = (time_E > 0) & (time_E < horizon - self.num_junction_steps)
        return noise_scale_E * np.where(in_corridor_E, self.corridor_random_moves / horizon, annealed)


class Explorer:
    """Adds the noise of a schedule to the actions of E environments; each trial keeps the multiplier it drew.

    Actions of a Box lie in [-1, 1], whatever its bounds. `rng` stays the caller's: its state and `noise_scale_E` are
    all there is to save.
    """

    def __init__(
        self,
        config: ExplorationConfig,
        action_space: PolicyActionSpace,
        num_envs: int,
        rng: np.random.Generator,
    ) -> None:
        self.config = config
        self._sizes = num_choices(action_space)
        self.noise_scale_E = np.zeros(num_envs)
        """Multiplier of the trial that each environment is in."""
        self._rng = rng

    def add_noise(
        self,
        action: Shaped[np.ndarray, "E ..."],
        time: Int64[np.ndarray, "E"],
        horizon: int,
        env_steps: int,
        mask: Bool[np.ndarray, "E A"] | None = None,
    ) -> Shaped[np.ndarray, "E ..."]:
        """The actions to execute: int64 `[E]` or `[E, C]` (zero-based) or float32 `[E, A]` in [-1, 1].

        Discrete: with probability epsilon a uniform one of the allowed actions instead; every component of several
        by itself, so that what the policy chose in the others still counts. Box: `clip(a + epsilon * normal, -1, 1)`.
        Rows where `time` is 0 begin a trial and draw a new multiplier first.
        """
        begins_E = time == 0
        if begins_E.any():
            self.noise_scale_E[begins_E] = self.config.sample_noise_scale(self._rng, int(np.count_nonzero(begins_E)))
        epsilon_E = self.config.epsilon(time, horizon, env_steps, self.noise_scale_E)
        if self._sizes:
            return self._replace_some(action.astype(np.int64, copy=False), epsilon_E, mask)
        return self._shake(action.astype(np.float32, copy=False), epsilon_E)

    def _replace_some(
        self,
        action: Int64[np.ndarray, "E ..."],
        epsilon_E: Float64[np.ndarray, "E"],
        mask_EA: Bool[np.ndarray, "E A"] | None,
    ) -> Int64[np.ndarray, "E ..."]:
        if not epsilon_E.any():
            return action
        action_EC = action.reshape(len(action), -1)
        chance_EC, choice_EC = self._rng.random((2, *action_EC.shape))
        uniform_EC = sample_uniform_actions(choice_EC, self._sizes, mask_EA)
        return np.where(chance_EC < epsilon_E[:, None], uniform_EC, action_EC).reshape(action.shape)

    def _shake(
        self, action_EA: Shaped[np.ndarray, "E A"], epsilon_E: Float64[np.ndarray, "E"]
    ) -> Shaped[np.ndarray, "E A"]:
        if not epsilon_E.any():
            return action_EA
        noise_EA = self._rng.standard_normal(action_EA.shape, dtype=np.float32)
        return np.clip(action_EA + epsilon_E.astype(np.float32)[:, None] * noise_EA, -1.0, 1.0)


def _anneal(initial: float, final: float, progress: float) -> float:
    return initial + (final - initial) * min(progress, 1.0)
