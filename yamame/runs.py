"""What is done with runs: begun, gone on with, read, judged."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from yamame.algorithms.amago.agent import Agent
from yamame.build_agent import build_agent
from yamame.checkpoint import Checkpoint, load_checkpoint_at, load_latest_checkpoint, unflatten_tensors
from yamame.config import RunConfig
from yamame.config_io import from_json, to_json
from yamame.data.actions import policy_action_space
from yamame.data.offline import resolve_offline_length
from yamame.data.spaces import space_from_json
from yamame.distributed.learners import current_context, launch, should_launch
from yamame.distributed.sharding import resolve_parallelism
from yamame.envs.wrappers.instruction import apply_instruction
from yamame.errors import UserError
from yamame.evaluate import EVALUATION_SEED, evaluate_agent
from yamame.run_dir import BEST, CHECKPOINTS, CONFIG, METADATA, RESULT, SPACES, create_run_dir, resolve_run_dir
from yamame.train import checkpoint_mismatch_error
from yamame.train_run import RunMetadata, RunResult, actual_env_steps, resume_training, start_training, warn_corrupted

LATEST, BEST_ONE = "latest", "best"
"""What a checkpoint can be called, beside its path."""


def start(config: RunConfig, about: RunMetadata, *, run_dir: Path | None, quiet: bool) -> RunResult:
    """A new run, to its end or until a signal. `UserError` for a config that cannot run; then nothing is left.

    With several learners in so many processes; under torchrun this is one of them.
    """
    config = resolve_parallelism(resolve_offline_length(config))
    _ = config.resolved_context_length, to_json(config)  # raise for what no run can have, before anything is made
    if should_launch(config):
        directory = create_run_dir(run_dir, about.recipe)
        return launch(start_training, config, directory, about, quiet)
    with current_context(config) as ranks:
        directory = ranks.broadcast_object(create_run_dir(run_dir, about.recipe) if ranks.is_main else Path())
        return start_training(ranks, config, directory, about, quiet)


def go_on(directory: Path, *, env_steps: int | None, quiet: bool) -> RunResult:
    """Continue a run where its newest whole checkpoint stands; `env_steps` gives it another length."""
    config, about = read_config(directory), read_metadata(directory)
    if env_steps is not None:
        config = replace(config, env_steps=env_steps)
    if should_launch(config):
        return launch(resume_training, config, directory, about, quiet)
    with current_context(config) as ranks:
        return resume_training(ranks, config, directory, about, quiet)


def evaluate_run(
    directory: Path,
    *,
    trials: int | None,
    seed: int | None,
    instruction: str = "",
    checkpoint: str = LATEST,
    config: RunConfig | None = None,
) -> RunResult:
    """What `yamame eval --json` prints: a checkpoint judged anew (see `load_agent`).

    `instruction` is what to do in every trial, instead of what the task would draw. `config` is what the run was
    started with, if that is at hand; a file cannot hold every function.
    """
    config = config or read_config(directory)
    config = replace(config, env=apply_instruction(config.env, instruction))
    seed = EVALUATION_SEED if seed is None else seed
    trials = config.eval.final_trials if trials is None else trials
    if trials < 1:
        raise UserError(f"cannot evaluate over {trials} trials: give at least 1")
    if seed < 0:
        raise UserError(f"cannot evaluate with seed {seed}: give at least 0")
    agent, loaded = load_agent(directory, checkpoint)
    judgement = evaluate_agent(config, agent, trials=trials, seed=seed)
    env_steps = actual_env_steps(config, loaded.state["env_steps"])
    counters = {"env_steps": env_steps, "updates": loaded.step, "seed": seed}
    return {**judgement.to_json(), **counters}


def read_config(directory: Path) -> RunConfig:
    """The config of a run; `UserError` where there is no run."""
    with _undamaged(resolve_run_dir(directory) / CONFIG) as described:
        return from_json(RunConfig, described)


def read_metadata(directory: Path) -> RunMetadata:
    """Where the config of a run came from."""
    with _undamaged(resolve_run_dir(directory) / METADATA) as about:
        return RunMetadata(**about)


def read_spaces(directory: Path) -> dict[str, Any]:
    """`observation_space`, `action_space` (the environment's own) and `horizon` of a run's task."""
    with _undamaged(resolve_run_dir(directory) / SPACES) as described:
        spaces: dict[str, Any] = {key: space_from_json(described[key]) for key in ("observation_space", "action_space")}
        return {**spaces, "horizon": described["horizon"]}


def read_result(directory: Path) -> RunResult | None:
    """What `yamame train --json` printed at the end of a run; None where it has not come to its end."""
    if not (resolve_run_dir(directory) / RESULT).exists():
        return None
    with _undamaged(directory / RESULT) as result:
        return result


def random_baseline_return(directory: Path) -> float | None:
    """Mean return of random actions, which a run finds out before it begins; None where no checkpoint tells."""
    try:
        random_actions = load_latest_checkpoint(directory / CHECKPOINTS).state["train_state"]["random_baseline"]
    except (UserError, KeyError):
        return None
    return random_actions and random_actions["return_mean"]


def load_agent(directory: Path, which: str = LATEST) -> tuple[Agent, Checkpoint]:
    """The agent of a run's checkpoint, without its environments.

    `which`: the newest whole one, the best by evaluation while training, or the path of one of the run's. Raises
    `UserError` where there is no such one.
    """
    config, of_task = read_config(directory), read_spaces(directory)
    action_space = policy_action_space(of_task["action_space"])
    agent = build_agent(config, of_task["observation_space"], action_space, of_task["horizon"], seed=0)
    checkpoint = _checkpoint(directory, which)
    warn_corrupted(checkpoint.skipped_corrupted)
    try:
        agent.load_state_dict(unflatten_tensors(checkpoint.tensors, checkpoint.state["learner"])["agent"])
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise checkpoint_mismatch_error(directory) from error
    return agent, checkpoint


def _checkpoint(directory: Path, which: str) -> Checkpoint:
    if which == LATEST:
        return load_latest_checkpoint(directory / CHECKPOINTS)
    if which != BEST_ONE:
        return load_checkpoint_at(Path(which))
    if not (directory / BEST).exists():
        raise UserError(f"{directory} has no best checkpoint: it was never evaluated while training")
    return load_latest_checkpoint(directory / BEST)


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
