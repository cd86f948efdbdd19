"""Learning histories for algorithm distillation: long trials in which someone becomes better from attempt to attempt.

A history is an ordinary trajectory, and many of them are an ordinary replay store, which `--offline.data` reads.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, Shaped
from typing_extensions import override

from yamame.collect.collector import Collector, Policy
from yamame.collect.exploration import BilevelEpsilonGreedy, Explorer
from yamame.config.differences import first_difference
from yamame.config.flags import parse_flags
from yamame.config.named_code import without_environments
from yamame.config.serialization import to_json
from yamame.data.step import PolicyInput
from yamame.data.store import ReplayStore
from yamame.data.trajectory import Trajectory
from yamame.data.verify import StoreReader, ValidRecord, require_store
from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig, SupportsSolution
from yamame.errors import UserError, check_range
from yamame.recipes import Recipe
from yamame.runs.directory import REPLAY, TASK, replay_dirs, resolve_run_dir
from yamame.runs.durable_files import write_json
from yamame.training.run_files import read_config

_NUM_ENVS = 64
"""Tasks that are played together."""
_PER_TRANSACTION = 64
_NO_LIMIT = 1 << 62


@dataclass(frozen=True, kw_only=True)
class ScriptedLearner:
    """Who acts in histories without learning: the solution of the task, with noise that falls over the history.

    A step is random with a probability that falls linearly with time. Source: Zisman et al. 2023 (arXiv 2312.12275).
    Differs from Laskin et al. 2022, whose histories are those of agents that learn.
    """

    initial_eps: float = 1.0
    """Probability of a random action at the first step of a history."""
    final_eps: float = 0.0
    """Probability of a random action at the last step."""
    keep_every: int = 1
    """Of k episodes, keep the first: the learner makes k times as many steps as a history has."""

    def __post_init__(self) -> None:
        check_range(self, "initial_eps", "final_eps", ge=0, le=1)
        check_range(self, "keep_every", ge=1)


def scripted_histories(env: EnvConfig, learner: ScriptedLearner, *, count: int, seed: int) -> Iterator[Trajectory]:
    """Yield `count` histories of a scripted learner, each in a task of its own. All randomness follows from `seed`.

    A history has as many steps as a trial of `env`; with `keep_every` at most as many.

    Raises:
        UserError: If no script solves the task, `count` is below 1 or `seed` below 0.
    """
    if count < 1:
        raise UserError(f"the number of histories is {count}: give at least 1")
    if seed < 0:
        raise UserError(f"the seed is {seed}: give 0 or more")
    if not isinstance(env, SupportsSolution):
        raise UserError(f"no script solves {env.task_name}: pass runs whose trials make the histories, with --from")
    horizon = env.max_trial_steps
    environment_seed, noise_seed = np.random.SeedSequence(seed).generate_state(2)
    longer: Any = replace(env, horizon=horizon * learner.keep_every)  # type: ignore[call-arg]  # a task with attempts
    envs = longer.build(min(count, _NUM_ENVS), int(environment_seed))
    noise = BilevelEpsilonGreedy(
        trial_start_initial_eps=learner.initial_eps,
        trial_start_final_eps=learner.initial_eps,
        trial_end_initial_eps=learner.final_eps,
        trial_end_final_eps=learner.final_eps,
        randomize_noise_scale=False,
    )
    explorer = Explorer(noise, envs.action_space, envs.num_envs, np.random.default_rng(int(noise_seed)))
    collector = Collector(envs, env.task_name, explorer)
    solver = _Solver(longer, envs)
    try:
        trials = chain.from_iterable(
            iter(lambda: [each for _, each in collector.step(solver, deterministic=True)], None)
        )
        for trial in islice(trials, count):
            yield skip_episodes(trial, learner.keep_every, horizon=horizon)
    finally:
        collector.close()


class _Solver(Policy):
    """The solution of a task as a policy."""

    version = 0

    def __init__(self, env: SupportsSolution, envs: TrialVectorEnv) -> None:
        self._env, self._envs = env, envs

    @override
    def act(self, step: PolicyInput, *, deterministic: bool) -> Shaped[np.ndarray, "E ..."]:
        return self._env.solve(self._envs)


def joined_history(trials: Iterable[Trajectory], *, keep_every: int, horizon: int) -> Trajectory:
    """Return the trials of a learner of one task, in their order, as the attempts of one history.

    Args:
        trials: At least one, with the same leaves and the same kind of action, without goals.
        keep_every: Of k episodes, keep the first.
        horizon: Maximum number of steps of a trial of the task that is evaluated.
    """
    parts = [each.decompressed() for each in trials]
    first, last = parts[0], parts[-1]
    success = [each.success for each in parts if each.success is not None]
    extras = {name for name in first.extras if all(name in each.extras for each in parts)}

    def whole(arrays: Sequence[Shaped[np.ndarray, "_ ..."]]) -> Shaped[np.ndarray, "rows ..."]:
        """Concatenate, of every trial but the last without what it ended with."""
        return np.concatenate([*(array[:-1] for array in arrays[:-1]), arrays[-1]])

    terminated, truncated = (np.zeros(sum(map(len, parts)), np.bool_) for _ in range(2))
    terminated[-1], truncated[-1] = last.terminated[-1], last.truncated[-1]
    history = replace(
        first,
        reward=np.concatenate([each.reward for each in parts]),
        action=np.concatenate([each.action for each in parts]),
        terminated=terminated,
        truncated=truncated,
        episode_start=whole([each.episode_start for each in parts]),
        observation={name: whole([each.observation[name] for each in parts]) for name in first.observation},
        success=np.concatenate(success) if len(success) == len(parts) else None,
        extras={name: np.concatenate([each.extras[name] for each in parts]) for name in extras},
    )
    return skip_episodes(history, keep_every, horizon=horizon, max_steps=len(history))


def skip_episodes(history: Trajectory, keep_every: int, *, horizon: int, max_steps: int | None = None) -> Trajectory:
    """Return the first of every `keep_every` episodes, of at most `max_steps` steps in all.

    Args:
        history: A trial without goals.
        keep_every: k; 1: all.
        horizon: That of the result.
        max_steps: None: `horizon`.
    """
    history = history.decompressed()
    episode_T = np.cumsum(history.episode_start[:-1]) - 1
    kept = np.flatnonzero(episode_T % keep_every == 0)[: horizon if max_steps is None else max_steps]
    tokens = np.append(kept, kept[-1] + 1)
    episode_start = history.episode_start[tokens]
    episode_start[-1] = False  # as at the end of other trials
    truncated = history.truncated[kept]
    truncated[-1] |= not history.terminated[kept[-1]]

    def of_transitions(array: Shaped[np.ndarray, "T ..."]) -> Shaped[np.ndarray, "kept ..."]:
        return array[kept]

    return replace(
        history,
        reward=of_transitions(history.reward),
        action=of_transitions(history.action),
        terminated=of_transitions(history.terminated),
        truncated=truncated,
        episode_start=episode_start,
        observation={name: leaf[tokens] for name, leaf in history.observation.items()},
        success=None if history.success is None else of_transitions(history.success),
        extras={name: of_transitions(extra) for name, extra in history.extras.items()},
        horizon=horizon,
    )


def task_of_runs(runs: Sequence[Path], *, recipe: Recipe | None, flags: Sequence[str]) -> tuple[EnvConfig, list[str]]:
    """Return the task of the first run, and the names of its fields in which others differ, such as `room_seed`.

    Args:
        runs: At least one run directory.
        recipe: Recipe of a task of their class; None: any task.
        flags: Flags of the task, to which all runs must conform.

    Raises:
        UserError: If a path is no run, or a run has another task or another value than a flag.
    """
    with without_environments():
        configs = {run: read_config(run) for run in runs}
        envs = [config.env for config in configs.values()]
        expected = envs[0] if recipe is None else recipe.env
        for run, config in configs.items():
            if type(config.env) is not type(expected):
                raise UserError(f"{run} is a run of {config.env.task_name}, not of {expected.task_name}: leave it out")
            given = parse_flags(config, flags, "yamame data histories")
            if difference := first_difference(config, given):
                raise UserError(f"{run} has {difference}: histories have the task of their runs, leave out the flag")
    first, *others = map(to_json, envs)
    return envs[0], [name for name, value in first.items() if any(other.get(name) != value for other in others)]


def run_histories(runs: Sequence[Path], *, keep_every: int) -> Iterator[Trajectory]:
    """Yield a history for each replay store of runs, of its own trials, in which an agent learned one task.

    Raises:
        UserError: If a path is no run and no store, lacks trials that were evicted, or holds none or such with
            instructions.
    """
    for run in runs:
        directory = resolve_run_dir(run)
        for store in replay_dirs(directory) or [require_store(directory / REPLAY)]:
            reader = StoreReader(store, None)
            records = [each for each in reader.records() if isinstance(each, ValidRecord)]
            trials = [each.trajectory for each in records if each.tag is None]  # others are imported
            if reader.deleted_before:
                raise UserError(
                    f"the first trials of {run}, in which it learned, were evicted: train with a larger "
                    "replay.capacity_trajectories"
                )
            if not trials:
                raise UserError(f"{run} holds no trials to make a history of")
            if any(trial.goals is not None for trial in trials):
                raise UserError(f"{run} has trials with instructions, of which no histories are made")
            yield joined_history(trials, keep_every=keep_every, horizon=trials[0].horizon)


def write_histories(
    directory: Path, histories: Iterable[Trajectory], env: EnvConfig, *, differing: Collection[str] = ()
) -> Int64[np.ndarray, "histories"]:
    """Write histories to a new replay store and return their lengths.

    Args:
        directory: Of the store.
        histories: All of them.
        env: Their task, which is stored beside them.
        differing: Names of the fields of `env` that are not the same in all histories, and are not stored.

    Raises:
        UserError: If the directory is not empty, or cannot be written.
    """
    if directory.is_file() or (directory.is_dir() and any(directory.iterdir())):
        raise UserError(f"{directory} already exists: choose another directory")
    remaining, lengths = iter(histories), []
    some = list(islice(remaining, _PER_TRANSACTION))
    with ReplayStore(directory, capacity_trajectories=_NO_LIMIT, cache_bytes=0) as store:
        while some:
            store.extend(some)
            lengths += [len(each) for each in some]
            some = list(islice(remaining, _PER_TRANSACTION))
        store.mark_checkpoint()
    write_json(directory / TASK, {name: value for name, value in to_json(env).items() if name not in differing})
    return np.array(lengths)
