"""A run from its first to its last file: directory, lock, training, final evaluation, report."""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from yamame.environments.adapters.actions import policy_action_space
from yamame.environments.goal_config import told
from yamame.learning.checkpoint import Checkpoint, load_checkpoint, read_checkpoint, unflatten_tensors
from yamame.model.agent import Agent
from yamame.records.errors import UserError, explained
from yamame.records.spaces import space_from_json, space_to_json
from yamame.run.build import new_agent
from yamame.run.config import RunConfig
from yamame.run.config_json import from_json, to_json
from yamame.run.ending import note_ending, telling_of_failure
from yamame.run.judge import EVALUATION_SEED, judge_agent
from yamame.run.local import LocalRun, misfit
from yamame.run.offline import with_length
from yamame.run.progress import Progress
from yamame.run.report import write_report
from yamame.run.run_directory import ABOUT, BEST, CHECKPOINTS, CONFIG, RESULT, SPACES, create, lock, require_run
from yamame.run.shares import spread
from yamame.run.signals import StopSignal

Summary = dict[str, Any]
"""What `yamame train --json` prints."""

NEWEST, BEST_ONE = "newest", "best"
"""What a checkpoint can be called, beside its path."""

NOT_EVALUATED: Summary = {
    "return_mean": None,
    "return_ci95": None,
    "return_per_attempt": None,
    "return_per_attempt_ci95": None,
    "success_rate": None,
    "success_per_attempt": None,
    "success_per_attempt_ci95": None,
    "trials": 0,
    "training_tasks": None,
}
"""The results of a run that was stopped before its end."""


@dataclass(frozen=True, kw_only=True)
class About:
    """Where a run's config came from."""

    recipe: str
    expected: str = ""
    """What the recipe should reach, in words."""
    command: str = ""
    """The words that made it; empty where Python did, or a command for many runs."""
    changed: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Path of a setting -> the recipe's default and the run's, as JSON has them, where they differ."""


def start(config: RunConfig, about: About, *, run_dir: Path | None, quiet: bool) -> Summary:
    """A new run, to its end or until a signal. `UserError` for a config that cannot run; then nothing is left."""
    config = spread(with_length(config))
    _ = config.context, to_json(config)  # raise for what no run can have, before anything is made
    directory = create(run_dir, about.recipe)
    with lock(directory), telling_of_failure(directory):
        try:
            run = LocalRun(config, directory)
            _describe(directory, config, about, run)
        except BaseException:
            shutil.rmtree(directory)
            raise
        try:
            return _go(run, about, quiet=quiet)
        except UserError:
            if run.parts.collector.env_steps == 0:
                shutil.rmtree(directory)
            raise


def go_on(directory: Path, *, env_steps: int | None, quiet: bool) -> Summary:
    """Continue a run where its newest whole checkpoint stands; `env_steps` gives it another length."""
    config, about = read_config(directory), read_about(directory)
    if env_steps is not None:
        config = replace(config, env_steps=env_steps)
    with lock(directory), telling_of_failure(directory):
        run = LocalRun(config, directory, resume=True)
        _tell_of_damaged(run.fallback_from)
        for sentence in run.not_restored:
            print(sentence, file=sys.stderr)
        if not run.finished:
            (directory / RESULT).unlink(missing_ok=True)
        _write_json(directory / CONFIG, to_json(config))
        return _go(run, about, quiet=quiet)


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
    env_steps = _stepped(config, loaded.state["env_steps"])
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
    _tell_of_damaged(checkpoint.fallback_from)
    try:
        agent.load_state_dict(unflatten_tensors(checkpoint.tensors, checkpoint.state["learner"])["agent"])
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise misfit(directory) from error
    return agent, checkpoint


def _tell_of_damaged(checkpoints: Sequence[str]) -> None:
    for damaged in checkpoints:
        print(f"checkpoint {damaged} is damaged: taking an older one", file=sys.stderr)


def _checkpoint(directory: Path, which: str) -> Checkpoint:
    if which == NEWEST:
        return load_checkpoint(directory / CHECKPOINTS)
    if which != BEST_ONE:
        return read_checkpoint(Path(which))
    if not (directory / BEST).exists():
        raise UserError(f"{directory} has no best checkpoint: it was never evaluated while training")
    return load_checkpoint(directory / BEST)


def _go(run: LocalRun, about: About, *, quiet: bool) -> Summary:
    try:
        unit = "steps of the clock" if run.config.offline.alone else "env steps"
        with Progress(run.config.env_steps, unit=unit, quiet=quiet) as progress:
            stopped_by = run.train(progress)
        evaluation: Summary | None = None
        if not stopped_by:
            with StopSignal() as stop, stop.cutting_short():
                evaluation = run.judge(trials=run.config.evaluation.final_trials).to_json()
            stopped_by = stop.requested
        counters = {
            "env_steps": _stepped(run.config, run.parts.collector.env_steps),
            "updates": run.parts.learner.updates,
            "seed": run.config.seed,
        }
        if evaluation is None:
            note_ending(run.directory, "stopped", stopped_by)
            print(f"stopped by {stopped_by}; yamame resume {run.directory} goes on", file=sys.stderr)
            return {**NOT_EVALUATED, **counters, **_speeds(run), "stopped_by": stopped_by}
        summary = {**evaluation, **counters, **_speeds(run)}
        _write_json(run.directory / RESULT, summary)
        _report(run, {**evaluation, **counters}, summary, about)
        return summary
    except UserError as error:
        if run.parts.collector.env_steps == 0:
            raise
        raise UserError(f"{error} (yamame resume {run.directory} goes on from the last checkpoint)") from error
    finally:
        run.close()


def _report(run: LocalRun, evaluation: Summary, summary: Summary, about: About) -> None:
    """Write the reports; what goes wrong in that takes nothing from a run that has come to its end."""
    try:
        write_report(
            run.directory,
            evaluation=evaluation,
            summary=summary,
            random_actions=run.standing.random_actions,
            expected=about.expected,
        )
    except Exception as problem:  # a full disk, or whatever drawing may raise
        told = " ".join(f"{type(problem).__name__}: {problem}".split())
        print(f"the report is not written ({told}); yamame resume {run.directory} tries again", file=sys.stderr)


def _stepped(config: RunConfig, env_steps: int) -> int:
    """Environment steps that were made; the clock of a run on data alone counts none."""
    return 0 if config.offline.alone else env_steps


def _speeds(run: LocalRun) -> Summary:
    seconds = run.standing.train_seconds
    env_steps = _stepped(run.config, run.parts.collector.env_steps)
    return {
        "wall_seconds": run.standing.wall_seconds,
        "train_seconds": seconds,
        "env_steps_per_second": env_steps / seconds if seconds else 0.0,
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
        _write_json(directory / name, content)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all, whenever the process is killed."""
    aside = path.with_suffix(".partial")
    with explained(path):
        aside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        aside.replace(path)


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
