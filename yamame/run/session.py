"""What is done with runs: begun, gone on with, read, judged."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from yamame.environments.adapters.actions import policy_action_space
from yamame.environments.goal_config import told
from yamame.learning.checkpoint import Checkpoint, load_checkpoint, read_checkpoint, unflatten_tensors
from yamame.model.agent import Agent
from yamame.records.errors import UserError
from yamame.records.spaces import space_from_json
from yamame.run.config import RunConfig
from yamame.run.config_json import from_json, to_json
from yamame.run.course import About, Summary, begin, stepped, take_up, tell_of_damaged
from yamame.run.judge import EVALUATION_SEED, judge_agent
from yamame.run.launch import launch, must_launch, this_rank
from yamame.run.local import misfit
from yamame.run.new_agent import new_agent
from yamame.run.offline import with_length
from yamame.run.run_directory import ABOUT, BEST, CHECKPOINTS, CONFIG, RESULT, SPACES, create, require_run
from yamame.run.shares import spread

NEWEST, BEST_ONE = "newest", "best"
"""What a checkpoint can be called, beside its path."""


def start(config: RunConfig, about: About, *, run_dir: Path | None, quiet: bool) -> Summary:
    """A new run, to its end or until a signal. `UserError` for a config that cannot run; then nothing is left.

    With several learners in so many processes; under torchrun this is one of them.
    """
    config = spread(with_length(config))
    _ = config.context, to_json(config)  # raise for what no run can have, before anything is made
    if must_launch(config):
        directory = create(run_dir, about.recipe)
        return launch(begin, config, directory, about, quiet)
    with this_rank(config) as ranks:
        directory = ranks.from_first(create(run_dir, about.recipe) if ranks.is_first else Path())
        return begin(ranks, config, directory, about, quiet)


def go_on(directory: Path, *, env_steps: int | None, quiet: bool) -> Summary:
    """Continue a run where its newest whole checkpoint stands; `env_steps` gives it another length."""
    config, about = read_config(directory), read_about(directory)
    if env_steps is not None:
        config = replace(config, env_steps=env_steps)
    if must_launch(config):
        return launch(take_up, config, directory, about, quiet)
    with this_rank(config) as ranks:
        return take_up(ranks, config, directory, about, quiet)


def evaluate_run(
    directory: Path,
    *,
    trials: int | None,
    seed: int | None,
    instruction: str = "",
    checkpoint: str = NEWEST,
    config: RunConfig | None = None,
) -> Summary:
    """What `yamame eval --json` prints: a checkpoint judged anew (see `load_agent`).

    `instruction` is what to do in every trial, instead of what the task would draw. `config` is what the run was
    started with, if that is at hand; a file cannot hold every function.
    """
    config = config or read_config(directory)
    config = replace(config, env=told(config.env, instruction))
    seed = EVALUATION_SEED if seed is None else seed
    trials = config.evaluation.final_trials if trials is None else trials
    if trials < 1:
        raise UserError(f"cannot evaluate over {trials} trials: give at least 1")
    if seed < 0:
        raise UserError(f"cannot evaluate with seed {seed}: give at least 0")
    agent, loaded = load_agent(directory, checkpoint)
    judgement = judge_agent(config, agent, trials=trials, seed=seed)
    env_steps = stepped(config, loaded.state["env_steps"])
    counters = {"env_steps": env_steps, "updates": loaded.step, "seed": seed}
    return {**judgement.to_json(), **counters}


def read_config(directory: Path) -> RunConfig:
    """The config of a run; `UserError` where there is no run."""
    with _undamaged(require_run(directory) / CONFIG) as described:
        return from_json(RunConfig, described)


def read_about(directory: Path) -> About:
    """Where the config of a run came from."""
    with _undamaged(require_run(directory) / ABOUT) as about:
        return About(**about)


def read_spaces(directory: Path) -> dict[str, Any]:
    """`observation_space`, `action_space` (the environment's own) and `horizon` of a run's task."""
    with _undamaged(require_run(directory) / SPACES) as described:
        spaces: dict[str, Any] = {key: space_from_json(described[key]) for key in ("observation_space", "action_space")}
        return {**spaces, "horizon": described["horizon"]}


def read_result(directory: Path) -> Summary | None:
    """What `yamame train --json` printed at the end of a run; None where it has not come to its end."""
    if not (require_run(directory) / RESULT).exists():
        return None
    with _undamaged(directory / RESULT) as result:
        return result


def random_return(directory: Path) -> float | None:
    """Mean return of random actions, which a run finds out before it begins; None where no checkpoint tells."""
    try:
        random_actions = load_checkpoint(directory / CHECKPOINTS).state["standing"]["random_actions"]
    except (UserError, KeyError):
        return None
    return random_actions and random_actions["return_mean"]


def load_agent(directory: Path, which: str = NEWEST) -> tuple[Agent, Checkpoint]:
    """The agent of a run's checkpoint, without its environments.

    `which`: the newest whole one, the best by evaluation while training, or the path of one of the run's. Raises
    `UserError` where there is no such one.
    """
    config, of_task = read_config(directory), read_spaces(directory)
    action_space = policy_action_space(of_task["action_space"])
    agent = new_agent(config, of_task["observation_space"], action_space, of_task["horizon"], seed=0)
    checkpoint = _checkpoint(directory, which)
    tell_of_damaged(checkpoint.fallback_from)
    try:
        agent.load_state_dict(unflatten_tensors(checkpoint.tensors, checkpoint.state["learner"])["agent"])
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise misfit(directory) from error
    return agent, checkpoint


def _checkpoint(directory: Path, which: str) -> Checkpoint:
    if which == NEWEST:
        return load_checkpoint(directory / CHECKPOINTS)
    if which != BEST_ONE:
        return read_checkpoint(Path(which))
    if not (directory / BEST).exists():
        raise UserError(f"{directory} has no best checkpoint: it was never evaluated while training")
    return load_checkpoint(directory / BEST)


@contextmanager
def _undamaged(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON object in a file of a run; what goes wrong in reading or using it is a `UserError`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise TypeError("it holds no JSON object")
        yield found
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise UserError(f"{path} cannot be read ({problem}): the run directory is damaged") from problem
