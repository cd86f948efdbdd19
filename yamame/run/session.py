"""A run from its first to its last file: directory, lock, training, final evaluation, report."""

import json
import shutil
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from yamame.learning.checkpoint import Checkpoint, load_checkpoint, unflatten_tensors
from yamame.model.agent import Agent
from yamame.records.errors import UserError
from yamame.records.spaces import space_from_json, space_to_json
from yamame.run.build import new_agent
from yamame.run.config import RunConfig
from yamame.run.config_json import from_json, to_json
from yamame.run.judge import EVALUATION_SEED, evaluate_agent
from yamame.run.local import LocalRun
from yamame.run.progress import Progress
from yamame.run.report import write_report
from yamame.run.run_directory import ABOUT, CHECKPOINTS, CONFIG, SPACES, create, lock, require_run

Summary = dict[str, Any]
"""What `yamame train --json` prints."""


@dataclass(frozen=True, kw_only=True)
class About:
    """Where a run's config came from."""

    recipe: str
    expected: str = ""
    """What the recipe should reach, in words."""


def start(config: RunConfig, about: About, *, run_dir: Path | None, quiet: bool) -> Summary:
    """A new run, to its end or until a signal. `UserError` for a config that cannot run; then nothing is left."""
    _ = config.context
    directory = create(run_dir, about.recipe)
    with lock(directory):
        try:
            run = LocalRun(config, directory)
            _describe(directory, config, about, run)
        except BaseException:
            shutil.rmtree(directory)
            raise
        return _go(run, about, quiet=quiet)


def go_on(directory: Path, *, env_steps: int | None, quiet: bool) -> Summary:
    """Continue a run where its newest whole checkpoint stands; `env_steps` gives it another length."""
    config, about = read_config(directory), read_about(directory)
    if env_steps is not None:
        config = replace(config, env_steps=env_steps)
    with lock(directory):
        run = LocalRun(config, directory, resume=True)
        for damaged in run.fallback_from:
            print(f"checkpoint {damaged} is damaged: going on from an older one", file=sys.stderr)
        (directory / CONFIG).write_text(json.dumps(to_json(config), indent=2) + "\n", encoding="utf-8")
        return _go(run, about, quiet=quiet)


def evaluate_run(directory: Path, *, trials: int | None, seed: int | None) -> Summary:
    """What `yamame eval --json` prints: the newest checkpoint judged anew."""
    config = read_config(directory)
    agent, checkpoint = load_agent(directory)
    seed = EVALUATION_SEED if seed is None else seed
    trials = config.evaluation.final_trials if trials is None else trials
    result = evaluate_agent(config, agent, trials=trials, seed=seed)
    counters = {"env_steps": checkpoint.state["env_steps"], "updates": checkpoint.step, "seed": seed}
    return {**result.to_json(), **counters}


def read_config(directory: Path) -> RunConfig:
    """The config of a run; `UserError` where there is no run."""
    return from_json(RunConfig, _read_json(require_run(directory) / CONFIG))


def read_about(directory: Path) -> About:
    """Where the config of a run came from."""
    return About(**_read_json(directory / ABOUT))


def read_spaces(directory: Path) -> dict[str, Any]:
    """`observation_space`, `action_space` (the environment's own) and `horizon` of a run's task."""
    described = _read_json(require_run(directory) / SPACES)
    return {key: value if key == "horizon" else space_from_json(value) for key, value in described.items()}


def load_agent(directory: Path) -> tuple[Agent, Checkpoint]:
    """The agent of a run's newest whole checkpoint, without its environments."""
    config, of_task = read_config(directory), read_spaces(directory)
    agent = new_agent(config, of_task["observation_space"], of_task["action_space"], of_task["horizon"], seed=0)
    checkpoint = load_checkpoint(directory / CHECKPOINTS)
    agent.load_state_dict(unflatten_tensors(checkpoint.tensors, checkpoint.state["learner"])["agent"])
    return agent, checkpoint


def _go(run: LocalRun, about: About, *, quiet: bool) -> Summary:
    try:
        with Progress(run.config.env_steps, quiet=quiet) as progress:
            signal_name = run.train(progress)
        if signal_name:
            print(f"stopped by {signal_name}; yamame resume {run.directory} goes on", file=sys.stderr)
            return {**_speeds(run), "stopped_by": signal_name}
        evaluation = run.evaluate(trials=run.config.evaluation.final_trials).to_json()
        evaluation |= {"env_steps": run.parts.collector.env_steps, "updates": run.parts.learner.updates}
        evaluation["seed"] = run.config.seed
        summary = {**evaluation, **_speeds(run)}
        write_report(
            run.directory,
            evaluation=evaluation,
            summary=summary,
            random_return=run.standing.random_return,
            expected=about.expected,
        )
        return summary
    finally:
        run.close()


def _speeds(run: LocalRun) -> Summary:
    seconds = run.standing.train_seconds
    return {
        "wall_seconds": run.standing.wall_seconds,
        "train_seconds": seconds,
        "env_steps_per_second": run.parts.collector.env_steps / seconds if seconds else 0.0,
        "updates_per_second": run.parts.learner.updates / seconds if seconds else 0.0,
        "run_dir": str(run.directory),
    }


def _describe(directory: Path, config: RunConfig, about: About, run: LocalRun) -> None:
    """The files that say what a run is; `config.json` last, since it is what makes a folder a run."""
    trials = run.parts.collector.environments
    of_task = {
        "observation_space": space_to_json(trials.observation_space),
        "action_space": space_to_json(trials.native_action_space),
        "horizon": trials.horizon,
    }
    run.save()
    for name, content in ((SPACES, of_task), (ABOUT, asdict(about)), (CONFIG, to_json(config))):
        (directory / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise UserError(f"{path} cannot be read ({problem}): the run directory is damaged") from problem
    if not isinstance(content, dict):
        raise UserError(f"{path} is not what a run writes there: the run directory is damaged")
    return content
