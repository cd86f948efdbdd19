"""Checks that compare trials of the same actions: later ones, those of other seeds, those beside a second copy."""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise

import numpy as np
from jaxtyping import Shaped
from typing_extensions import override

from yamame.collect.collector import Collector, Policy
from yamame.collect.exploration import Explorer, NoExploration
from yamame.collect.faults import FaultToleranceConfig
from yamame.data.actions import ACTION_MASK_KEY, PolicyActionSpace, action_shape, num_choices, sample_uniform_actions
from yamame.data.step import PolicyInput
from yamame.data.trajectory import Trajectory
from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.gymnasium import GymnasiumConfig
from yamame.envs.vector.faults import ENV_ERRORS
from yamame.errors import describe_error

OwnEnvConfig = EnvFnConfig | GymnasiumConfig
MAX_STEPS = 32
"""Trials are cut here, except those of vector environments, which may not allow it."""
_TRIALS, _MAX_TRIALS, _OTHER_SEEDS = 4, 24, 8


class RepeatedActions(Policy):
    """Random actions that are the same in every trial and every environment: they depend on the seed and the step."""

    version = 0

    def __init__(self, action_space: PolicyActionSpace, seed: int) -> None:
        self._shape, self._sizes, self._seed = action_shape(action_space), num_choices(action_space), seed

    @override
    def act(self, step: PolicyInput, *, deterministic: bool) -> Shaped[np.ndarray, "E ..."]:
        rngs = [np.random.default_rng((self._seed, time)) for time in step.time.tolist()]
        if not self._sizes:
            return np.stack([rng.uniform(-1.0, 1.0, self._shape).astype(np.float32) for rng in rngs])
        uniform_EC = np.stack([rng.random(len(self._sizes)) for rng in rngs])
        actions = sample_uniform_actions(uniform_EC, self._sizes, step.observation.get(ACTION_MASK_KEY))
        return actions.reshape(len(rngs), *self._shape)


class RepeatedTrials:
    """Trials of repeated actions; keeps those of the first environment. Raises `UserError` at the first fault.

    Args:
        config: Makes the environments.
        seed: Seed of the environments.
        action_seed: Seed of the actions, which are the same ones in every trial.
    """

    def __init__(self, config: OwnEnvConfig, seed: int, *, action_seed: int = 0) -> None:
        self.trials: list[Trajectory] = []
        envs = config.build(config.required_num_envs or 1, seed)
        explorer = Explorer(NoExploration(), envs.action_space, envs.num_envs, np.random.default_rng(0))
        self._collector = Collector(envs, "", explorer, FaultToleranceConfig(max_restarts=0))
        self._policy = RepeatedActions(envs.action_space, action_seed)

    def step(self) -> None:
        """Make one step."""
        completed = self._collector.step(self._policy, deterministic=False)
        self.trials += [trial for env, trial in completed if env == 0]

    def play(self, num_trials: int) -> list[Trajectory]:
        """Play until there are at least `num_trials` trials; return them."""
        while len(self.trials) < num_trials:
            self.step()
        return self.trials[:num_trials]

    def close(self) -> None:
        """Close the environments."""
        self._collector.close()


def episode_findings(config: OwnEnvConfig, seed: int, *, is_reproducible: bool) -> list[str]:
    """Return what is wrong with the episodes of an environment, one sentence each.

    Args:
        config: Makes the environments.
        seed: Seed of the first trial.
        is_reproducible: Whether the same seed and actions give the same trials; without that, copies are not compared.
    """
    short = config if getattr(config, "vector_size", None) else replace(config, horizon=min(config.horizon, MAX_STEPS))
    with closing(RepeatedTrials(short, seed)) as player:
        alone = player.play(_TRIALS)
        while len(player.trials) < _MAX_TRIALS and _are_all_equal(player.trials[1:]):
            player.play(len(player.trials) + 1)
        repeats = _are_all_equal(player.trials[1:])
    findings: list[str] = []
    if repeats:
        if _differ_by_seed(short, seed, alone[0]):
            findings.append(
                "all episodes after the first are one and the same, though seeds give different ones: sample from "
                "self.np_random, which super().reset(seed=seed) seeds only if there is a seed"
            )
    elif is_reproducible and are_equal(alone, _first_trials(short, seed + 1, _TRIALS)):
        findings.append(
            "every seed gives the same sequence of episodes, so that all copies of the environment play the same ones: "
            "sample from self.np_random, which super().reset(seed=seed) seeds"
        )
    return findings + (_side_by_side(short, seed, alone) if is_reproducible else [])


def _differ_by_seed(config: OwnEnvConfig, seed: int, first: Trajectory) -> bool:
    """Return whether at least two of the first trials of several seeds differ from the most frequent one."""
    firsts = [first]
    for other in range(1, _OTHER_SEEDS + 1):
        firsts += _first_trials(config, seed + other, 1)
        frequencies = [sum(are_equal([one], [another]) for another in firsts) for one in firsts]
        if len(firsts) - max(frequencies) > 1:
            return True
    return False


def _first_trials(config: OwnEnvConfig, seed: int, count: int) -> list[Trajectory]:
    with closing(RepeatedTrials(config, seed)) as player:
        return player.play(count)


def _side_by_side(config: OwnEnvConfig, seed: int, alone: Sequence[Trajectory]) -> list[str]:
    """Return a finding if another copy of the environment that is stepped in turn changes the trials."""
    with ExitStack() as stack:
        player = stack.enter_context(closing(RepeatedTrials(config, seed)))
        try:
            other = stack.enter_context(closing(RepeatedTrials(config, seed + 1, action_seed=1)))
            while len(player.trials) < len(alone):
                player.step()
                other.step()
        except ENV_ERRORS as error:
            reason = describe_error(error.__cause__ or error)
            return [
                f"a second copy of the environment beside the first one fails ({reason}): "
                "pass num_envs=1 if only one can exist"
            ]
        if are_equal(alone, player.trials[: len(alone)]):
            return []
    return [
        "two copies of the environment side by side give other trials than one alone: keep all state in the object "
        "(none in variables of the class or module, in a shared object, or in random numbers of all Python)"
    ]


def are_equal(ones: Sequence[Trajectory], others: Sequence[Trajectory], *, first_only: bool = False) -> bool:
    """Return whether trials have the same rewards and the same observations, or the same first observations."""

    def observations(trial: Trajectory) -> list[np.ndarray]:
        return [leaf[:1] if first_only else leaf for leaf in read_leaves(trial)]

    return all(
        np.array_equal(one.reward, other.reward) and all(map(np.array_equal, observations(one), observations(other)))
        for one, other in zip(ones, others, strict=True)
    )


def read_leaves(trial: Trajectory) -> list[np.ndarray]:
    """Return all leaves of the observations of a trial."""
    names: Iterable[str] = (*trial.observation, *trial.lazy_observation)
    return [trial.read_observation(name, 0, len(trial) + 1) for name in names]


def _are_all_equal(trials: Sequence[Trajectory]) -> bool:
    return all(are_equal([one], [other]) for one, other in pairwise(trials))
