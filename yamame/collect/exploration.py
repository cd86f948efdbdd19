"""Exploration noise: schedules over a trial and over training, and its application to actions."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped

from yamame.data.actions import PolicyActionSpace, action_shape, is_allowed, num_choices, sample_uniform_actions
from yamame.errors import check_range
from yamame.types import State

MAX_REPEAT = 1_000_000
"""Longest repeat, so that horizons that stand for no limit take no memory."""
_MAX_SCALED_HORIZON = 1_000
"""Horizon above which `log_noise_scale` makes no smaller multipliers, so that there is noise without a limit, too."""
_NONE = -1
"""No step."""


@dataclass(frozen=True, kw_only=True)
class ExplorationConfig(ABC):
    """Schedule of the noise level, a pure function of the progress of trial and training."""

    repeat_exponent: float = 0.0
    """Random actions (of a Box: the noise) are repeated for n steps, n <= horizon, with a probability proportional to
    n^-repeat_exponent: Dabney et al. 2021 use 2. The noise level remains the fraction of random steps: of an action of
    several components, those at which any component is random or the action is a repeat. 0: no repeats (paper). n is at
    most 1,000,000."""
    random_env_steps: int = 0
    """Trials that start within this many environment steps of the run have noise level 1 until they end: discrete
    actions are all random, those of a Box have noise of standard deviation 1. 0: none (paper)."""
    random_end_prob: float = 0.0
    """Probability that a trial with discrete actions has noise in its last n steps alone, where all actions are random.
    n is log-uniform between 1 and the horizon, so that what a policy reaches late is explored from there. 0 (paper)."""

    def __post_init__(self) -> None:
        check_range(self, "repeat_exponent", "random_env_steps", ge=0)
        check_range(self, "random_end_prob", ge=0, le=1)

    @abstractmethod
    def epsilon(
        self, time_E: Int64[np.ndarray, "E"], horizon: int, env_steps: int, noise_scale_E: Float64[np.ndarray, "E"]
    ) -> Float64[np.ndarray, "E"]:
        """Return the noise level of E environments.

        For discrete actions it is the probability of a random action, independent for each component.

        Args:
            time_E: Step of the trial.
            horizon: Maximum number of transitions of a trial.
            env_steps: Environment steps of the run so far.
            noise_scale_E: Of each trial, from `sample_noise_scale`.
        """

    def sample_noise_scale(
        self, rng: np.random.Generator, count: int, horizon: int | None = None
    ) -> Float64[np.ndarray, "{count}"]:
        """Return a multiplier for each of `count` new trials; stored with the trajectory.

        `horizon` is that of trials with discrete actions; None: the actions are a Box.
        """
        return np.ones(count)


@dataclass(frozen=True, kw_only=True)
class NoExploration(ExplorationConfig):
    """No noise but in trials that start within `random_env_steps`."""

    def epsilon(
        self, time_E: Int64[np.ndarray, "E"], horizon: int, env_steps: int, noise_scale_E: Float64[np.ndarray, "E"]
    ) -> Float64[np.ndarray, "E"]:
        """Return zeros."""
        return np.zeros(len(time_E))

    def sample_noise_scale(
        self, rng: np.random.Generator, count: int, horizon: int | None = None
    ) -> Float64[np.ndarray, "{count}"]:
        """Return zeros."""
        return np.zeros(count)


@dataclass(frozen=True, kw_only=True)
class EpsilonGreedy(ExplorationConfig):
    """The same level at all steps of a trial, annealed linearly over training (default of the authors' later code)."""

    anneal_env_steps: int = 1_000_000
    """Environment steps, summed over all environments, until `final_eps` is reached."""
    initial_eps: float = 1.0
    """Noise level at the start of training."""
    final_eps: float = 0.05
    """Noise level from `anneal_env_steps` on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "anneal_env_steps", ge=1)
        check_range(self, "initial_eps", "final_eps", ge=0)

    def epsilon(
        self, time_E: Int64[np.ndarray, "E"], horizon: int, env_steps: int, noise_scale_E: Float64[np.ndarray, "E"]
    ) -> Float64[np.ndarray, "E"]:
        """Return `noise_scale * (initial_eps + (final_eps - initial_eps) * min(env_steps / anneal_env_steps, 1))`."""
        return noise_scale_E * _anneal(self.initial_eps, self.final_eps, env_steps / self.anneal_env_steps)


@dataclass(frozen=True, kw_only=True)
class BilevelEpsilonGreedy(ExplorationConfig):
    """The paper's schedule: annealed within a trial and over training, and scaled by u ~ U(0, 1) for each trial.

    Paper: appendix, table 4. Differs from the authors' first code, which anneals the level at the end of a trial with
    the wrong constants: see `match_official_code`.
    """

    anneal_env_steps: int = 1_000_000
    """Environment steps, summed over all environments, until the final levels are reached (paper: 10^6 per actor)."""
    trial_start_initial_eps: float = 1.0
    """Noise level at the start of a trial at the start of training."""
    trial_start_final_eps: float = 0.05
    """Noise level at the start of a trial from `anneal_env_steps` on."""
    trial_end_initial_eps: float = 0.8
    """Noise level at the end of a trial at the start of training."""
    trial_end_final_eps: float = 0.01
    """Noise level at the end of a trial from `anneal_env_steps` on."""
    randomize_noise_scale: bool = True
    """Scale the noise of each trial by a sample u from U(0, 1); off: by 1."""
    log_noise_scale: bool = False
    """Scale that of discrete actions by horizon^-u, the horizon being at most 1,000: as many trials have one random
    step in a hundred as one in ten, so that some reach what a single mistake prevents. Off: by u (paper)."""
    match_official_code: bool = False
    """Reproduce a bug of the authors' code: the level at the end of a trial starts from `trial_start_final_eps` and
    falls with the slope of the level at the start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "anneal_env_steps", ge=1)
        check_range(self, "trial_start_initial_eps", "trial_start_final_eps", ge=0)
        check_range(self, "trial_end_initial_eps", "trial_end_final_eps", ge=0)

    def epsilon(
        self, time_E: Int64[np.ndarray, "E"], horizon: int, env_steps: int, noise_scale_E: Float64[np.ndarray, "E"]
    ) -> Float64[np.ndarray, "E"]:
        """Return `u (start - (start - end) t / horizon)` with `start` and `end` annealed linearly over training."""
        progress = env_steps / self.anneal_env_steps
        start = _anneal(self.trial_start_initial_eps, self.trial_start_final_eps, progress)
        if self.match_official_code:
            slope = self.trial_start_initial_eps - self.trial_start_final_eps
            end = max(self.trial_start_final_eps - slope * progress, self.trial_end_final_eps)
        else:
            end = _anneal(self.trial_end_initial_eps, self.trial_end_final_eps, progress)
        return noise_scale_E * (start - (start - end) / horizon * time_E)

    def sample_noise_scale(
        self, rng: np.random.Generator, count: int, horizon: int | None = None
    ) -> Float64[np.ndarray, "{count}"]:
        """Return u ~ U(0, 1) or, with `log_noise_scale`, horizon^-u; 1 without `randomize_noise_scale`."""
        if not self.randomize_noise_scale:
            return np.ones(count)
        u = rng.random(count)
        return u if horizon is None or not self.log_noise_scale else float(min(horizon, _MAX_SCALED_HORIZON)) ** -u


@dataclass(frozen=True, kw_only=True)
class TMazeEpsilonGreedy(ExplorationConfig):
    """T-Maze schedule: annealed noise at the cue and at the junction, little noise in the corridor between them.

    Differs from the authors' code, where the annealed level stays at u * 1.0 because of a bug.
    """

    anneal_env_steps: int = 100_000
    """Environment steps, summed over all environments, until `final_eps` is reached."""
    initial_eps: float = 1.0
    """Noise level at the first and the last steps of a trial at the start of training."""
    final_eps: float = 0.01
    """Noise level at these steps from `anneal_env_steps` on."""
    corridor_random_moves: float = 0.5
    """Expected number of random moves in the corridor during a trial."""
    num_junction_steps: int = 3
    """Number of steps at the end of a trial with the annealed level."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "anneal_env_steps", "num_junction_steps", ge=1)
        check_range(self, "initial_eps", "final_eps", "corridor_random_moves", ge=0)

    def epsilon(
        self, time_E: Int64[np.ndarray, "E"], horizon: int, env_steps: int, noise_scale_E: Float64[np.ndarray, "E"]
    ) -> Float64[np.ndarray, "E"]:
        """Return `corridor_random_moves / horizon` if 0 < t < horizon - num_junction_steps, else the annealed level."""
        annealed = _anneal(self.initial_eps, self.final_eps, env_steps / self.anneal_env_steps)
        in_corridor_E = (time_E > 0) & (time_E < horizon - self.num_junction_steps)
        return noise_scale_E * np.where(in_corridor_E, self.corridor_random_moves / horizon, annealed)


class Explorer:
    """Adds the noise of a schedule to the actions of E environments. `rng` belongs to the caller."""

    def __init__(
        self, config: ExplorationConfig, action_space: PolicyActionSpace, num_envs: int, rng: np.random.Generator
    ) -> None:
        self.config = config
        self._sizes = num_choices(action_space)
        self.noise_scale_E = np.zeros(num_envs)
        """Multiplier of the current trial of each environment."""
        self.random_E = np.zeros(num_envs, np.bool_)
        """Whether the current trial has noise level 1: it started within `random_env_steps`."""
        self.first_random_step_E = np.full(num_envs, _NONE)
        """Step of the current trial from which on all actions are random; -1: the noise is that of the schedule."""
        self.epsilon_E = np.zeros(num_envs)
        """Noise level of the last actions; of discrete ones, the probability of a new random action."""
        self.repeated_E = np.zeros(num_envs, np.bool_)
        """Whether the last action repeated a random one, whatever the policy chose."""
        self._repeats_left_E = np.zeros(num_envs, np.int64)
        self._repeated = np.zeros((num_envs, *action_shape(action_space)), np.int64 if self._sizes else np.float32)
        """What is repeated: actions, of a Box standard normal noise."""
        self._rng = rng

    def add_noise(
        self,
        action: Shaped[np.ndarray, "E ..."],
        time: Int64[np.ndarray, "E"],
        horizon: int,
        env_steps: int,
        mask: Bool[np.ndarray, "E A"] | None = None,
        explores_E: Bool[np.ndarray, "E"] | None = None,
    ) -> Shaped[np.ndarray, "E ..."]:
        """Return the actions to execute: int64 `[E]` or `[E, C]` (zero-based), or float32 `[E, A]` in [-1, 1].

        Discrete: with probability epsilon, replaced by a uniform sample of the allowed actions, independently for each
        component. Box: `clip(a + epsilon * normal, -1, 1)`. Environments at `time` 0 sample a new multiplier first.
        Repeats end with the trial, and where the mask forbids the action. Where `explores_E`, actions stay as they are,
        except in the trials of `random_env_steps`.
        """
        starts_E = time == 0
        if starts_E.any():
            self._start(starts_E, horizon, env_steps)
        epsilon_E = self.config.epsilon(time, horizon, env_steps, self.noise_scale_E)
        if self.config.random_end_prob:
            at_end_E = (time >= self.first_random_step_E).astype(np.float64)
            epsilon_E = np.where(self.first_random_step_E == _NONE, epsilon_E, at_end_E)
        if explores_E is not None:
            epsilon_E = np.where(explores_E, 0.0, epsilon_E)
            self._repeats_left_E[explores_E & ~self.random_E] = 0
        epsilon_E = np.where(self.random_E, 1.0, epsilon_E)
        self.epsilon_E = epsilon_E = np.minimum(epsilon_E, 1.0) if self._sizes else epsilon_E
        self.repeated_E = self._repeats_left_E > 0
        action = action.astype(np.int64 if self._sizes else np.float32, copy=False)
        if not epsilon_E.any() and not self.repeated_E.any():
            return action
        if not self._sizes:
            noise_EA = self._rng.standard_normal(action.shape, dtype=np.float32)
            noise_EA = self._repeat(noise_EA, np.ones(len(action), np.bool_), horizon)
            return np.clip(action + epsilon_E.astype(np.float32)[:, None] * noise_EA, -1.0, 1.0)
        if self.config.repeat_exponent:
            mean = float(_repeat_lengths(self.config.repeat_exponent, horizon)[1])
            epsilon_E = epsilon_E / (epsilon_E + mean * (1.0 - epsilon_E))
            if len(self._sizes) > 1:  # a repeat of the whole action starts where any component is random
                epsilon_E = 1.0 - (1.0 - epsilon_E) ** (1.0 / len(self._sizes))
            self.epsilon_E = epsilon_E
        action_EC = action.reshape(len(action), -1)
        replace_EC, choice_EC = self._rng.random((2, *action_EC.shape))
        replaced_EC = replace_EC < epsilon_E[:, None]
        noisy_EC = np.where(replaced_EC, sample_uniform_actions(choice_EC, self._sizes, mask), action_EC)
        if mask is not None:
            self.repeated_E &= is_allowed(self._repeated.reshape(noisy_EC.shape), self._sizes, mask)
        return self._repeat(noisy_EC.reshape(action.shape), replaced_EC.any(1), horizon)

    def _start(self, starts_E: Bool[np.ndarray, "E"], horizon: int, env_steps: int) -> None:
        """Sample the noise of new trials."""
        count = int(np.count_nonzero(starts_E))
        of_discrete = horizon if self._sizes else None
        self.noise_scale_E[starts_E] = self.config.sample_noise_scale(self._rng, count, of_discrete)
        self.random_E[starts_E] = env_steps < self.config.random_env_steps
        self._repeats_left_E[starts_E] = 0
        if self.config.random_end_prob and self._sizes:
            is_chosen, u = self._rng.random(count) < self.config.random_end_prob, self._rng.random(count)
            last_steps = np.floor((horizon + 1.0) ** u).astype(np.int64)
            self.first_random_step_E[starts_E] = np.where(is_chosen, horizon - last_steps, _NONE)
        self.noise_scale_E[self.random_E | (self.first_random_step_E != _NONE)] = 1.0

    def _repeat(
        self, sampled: Shaped[np.ndarray, "E ..."], is_random_E: Bool[np.ndarray, "E"], horizon: int
    ) -> Shaped[np.ndarray, "E ..."]:
        """Return the samples, with repeated ones in their place; sample for how long the random ones are repeated."""
        if not self.config.repeat_exponent:
            return sampled
        repeated_E = self.repeated_E
        sampled[repeated_E] = self._repeated[repeated_E]
        cumulative, _ = _repeat_lengths(self.config.repeat_exponent, horizon)
        # the first of `length` steps is this one
        length_E = np.searchsorted(cumulative, self._rng.random(len(sampled)), side="right") + 1
        new_E = np.where(is_random_E, length_E - 1, 0)
        self._repeats_left_E = np.where(repeated_E, self._repeats_left_E - 1, new_E)
        self._repeated = sampled.copy()
        return sampled

    def state_dict(self) -> State:
        """Return the multipliers and what is being repeated; the random state belongs to the caller."""
        return {
            "noise_scale": self.noise_scale_E.copy(),
            "random": self.random_E.copy(),
            "first_random_step": self.first_random_step_E.copy(),
            "repeats_left": self._repeats_left_E.copy(),
            "repeated": self._repeated.copy(),
        }

    def load_state_dict(self, state: State) -> None:
        """Restore the result of `state_dict`."""
        self.noise_scale_E[:] = state["noise_scale"]
        self.random_E[:] = state["random"]
        self.first_random_step_E[:] = state.get("first_random_step", _NONE)  # not in checkpoints of earlier versions
        self._repeats_left_E[:] = state["repeats_left"]
        self._repeated[:] = state["repeated"]


@cache
def _repeat_lengths(exponent: float, horizon: int) -> tuple[Float64[np.ndarray, "H"], np.float64]:
    """Return the cumulative probabilities of the lengths 1 to H, and the mean length."""
    length_H = np.arange(1, min(horizon, MAX_REPEAT) + 1)
    probability_H = length_H**-exponent / (length_H**-exponent).sum()
    cumulative_H = probability_H.cumsum()
    cumulative_H[-1] = 1.0
    return cumulative_H, probability_H @ length_H


def _anneal(initial: float, final: float, progress: float) -> float:
    return initial + (final - initial) * min(progress, 1.0)
