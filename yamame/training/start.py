"""`train` and `resume`: a run directory, from its creation to its result."""

import pickle
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from yamame.collect.faults import RESTARTS, print_failed_trials
from yamame.config.named_code import import_name
from yamame.config.serialization import to_json
from yamame.data.sampler import ReplayConfig
from yamame.data.spaces import space_to_json
from yamame.distributed.learners import current_context, launch, should_launch
from yamame.distributed.sharding import resolve_parallelism
from yamame.distributed.signals import StopSignal
from yamame.distributed_context import DistributedContext
from yamame.envs.env_fn import EnvFnConfig, environment_flags
from yamame.envs.working_directory import kept_working_directory
from yamame.errors import UserError, describe_error
from yamame.metrics.progress import ProgressBar
from yamame.metrics.trackers.base import check_trackers
from yamame.run_config import RunConfig, resolve_offline_length
from yamame.runs.checkpoint import load_latest_checkpoint
from yamame.runs.directory import (
    CHECKPOINTS,
    CONFIG,
    METADATA,
    RESULT,
    SPACES,
    create_run_dir,
    lock_run_dir,
    record_failure,
    remove_run_dir,
    write_status,
)
from yamame.runs.durable_files import write_json
from yamame.runs.shared_policy import is_policy_folder
from yamame.training.alarms import named_alarms
from yamame.training.callbacks import Callback, check_callbacks
from yamame.training.evaluate import EVAL_KEYS
from yamame.training.first_update import (
    describe_first_update,
    describe_missing_updates,
    describe_no_updates,
    is_first_update_late,
)
from yamame.training.offline_remarks import offline_remarks
from yamame.training.resumable import write_changes
from yamame.training.run_evaluations import check_evaluation_interval
from yamame.training.run_files import RunMetadata, RunResult, read_config, read_tracking
from yamame.training.tracking import Tracking
from yamame.training.trained_run import actual_env_steps, warn_corrupted
from yamame.training.trainer import Trainer


@named_alarms()
@kept_working_directory()
def train_run(
    config: RunConfig,
    metadata: RunMetadata,
    *,
    run_dir: Path | None,
    quiet: bool,
    callbacks: Sequence[Callback] = (),
    track: Sequence[str] = (),
) -> RunResult:
    """Train a new run until its end or a signal.

    With several learners this starts their processes, to which `callbacks` are pickled; under torchrun it is one of
    them. The main rank calls them, and tracks.

    Raises:
        UserError: If the config cannot run; no run directory is left then.
    """
    check_trackers(track)
    check_callbacks(callbacks)
    config = resolve_parallelism(resolve_offline_length(config))
    check_evaluation_interval(config)
    if config.algorithm.is_on_policy and config.deterministic_actions:  # in evaluations it may be on
        raise UserError("--deterministic-actions is on: an algorithm on policy learns from samples, turn it off")
    if config.algorithm.needs_stored_data and not config.offline.is_offline_only:
        raise UserError(
            "the algorithm learns from stored data alone: pass --offline.data, and no --offline.batch-fraction"
        )
    if config.offline.is_offline_only and (no_updates := describe_no_updates(config)):
        raise UserError(f"{no_updates}: pass a positive number, since stored data alone collects none")
    _ = config.resolved_context_length, to_json(config)  # raise before anything is created
    if should_launch(config):
        _check_pickles(callbacks)
        return launch(_train_new, config, create_run_dir(run_dir, metadata.recipe), metadata, quiet, callbacks, track)
    with current_context(config) as distributed:
        created = create_run_dir(run_dir, metadata.recipe) if distributed.is_main else Path()
        return _train_new(distributed, config, distributed.broadcast_object(created), metadata, quiet, callbacks, track)


@named_alarms()
@kept_working_directory()
def resume_run(
    directory: Path,
    *,
    env_steps: int | None,
    quiet: bool,
    config: RunConfig | None = None,
    callbacks: Sequence[Callback] = (),
    track: Sequence[str] | None = (),
) -> RunResult:
    """Resume training from the latest intact checkpoint. A finished run stays as it is.

    Args:
        directory: Run directory.
        env_steps: New total number of environment steps, to which a run trains even if it had solved its task; None:
            that of the config.
        quiet: Hide progress.
        config: Config of the run; None: read from the directory, which cannot hold every function.
        callbacks: As in `train`.
        track: Trackers in addition to those that the run has; None: this process does not track.

    Raises:
        UserError: If there is no run, it has already made more than `env_steps`, or it is a policy folder.
    """
    if is_policy_folder(directory):
        raise UserError(
            f"{directory} is a policy without its replay, which cannot be resumed: yamame train RECIPE --init-from "
            "starts a run with its weights"
        )
    check_callbacks(callbacks)
    config = config or read_config(directory)
    if track is not None:
        record = read_tracking(directory)
        check_trackers([*track, *(record.trackers if record else ())])
    if env_steps is not None:
        config = replace(config, env_steps=env_steps)
        made = load_latest_checkpoint(directory / CHECKPOINTS).state.get("env_steps")  # refused before anything changes
        if isinstance(made, int) and env_steps <= made - config.num_envs:  # runs end with a whole vector step
            raise UserError(f"cannot resume {directory} for {env_steps} environment steps: it has made {made}")
    check_evaluation_interval(config)
    if should_launch(config):
        _check_pickles(callbacks)
        return launch(_resume, config, directory, env_steps, quiet, callbacks, track)
    with current_context(config) as distributed:
        return _resume(distributed, config, directory, env_steps, quiet, callbacks, track)


def _check_pickles(callbacks: Sequence[Callback]) -> None:
    """Raise `UserError` for callbacks that cannot be sent to learner processes."""
    try:
        pickle.dumps(callbacks)
    except Exception as error:  # an object can raise anything
        raise UserError(
            f"callbacks cannot be pickled ({describe_error(error)}): several learners are processes, so define their "
            "classes at the top of a module and keep open files and the like out of them"
        ) from error


def _train_new(
    distributed: DistributedContext,
    config: RunConfig,
    directory: Path,
    metadata: RunMetadata,
    quiet: bool,
    callbacks: Sequence[Callback],
    track: Sequence[str],
) -> RunResult:
    shown, directory = directory, directory.absolute()  # environments may change the working directory
    offline = offline_remarks(config.offline.data, config.env) if distributed.is_main else []
    leaves_nothing = has_begun = False
    try:
        with _locked(directory, distributed):
            trainer: Trainer | None = None
            try:
                trainer = Trainer(config, directory, distributed=distributed, callbacks=callbacks)
                if distributed.is_main:
                    task = config.env.task_spec(trainer.experience.environments)
                    remarks = [
                        *config.algorithm.remarks(task, offline_only=config.offline.is_offline_only),
                        *([] if config.init_from else config.algorithm.random_weights_remarks()),
                        *offline,
                        *unused_field_remarks(config),
                        *config.algorithm.memory_remarks(task, context_length=config.resolved_context_length),
                    ]
                    for remark in remarks:
                        print(remark, file=sys.stderr)
                _write_run_files(trainer, metadata)
                has_begun = True
                return _train_and_evaluate(trainer, shown, quiet=quiet, track=track)
            except BaseException as error:
                cannot_run = isinstance(error, UserError) and not (trainer and trainer.env_steps)
                leaves_nothing = distributed.is_main and (cannot_run or not has_begun)
                if trainer:
                    trainer.close()
                raise
    finally:
        if leaves_nothing:
            remove_run_dir(directory)


def _resume(
    distributed: DistributedContext,
    config: RunConfig,
    directory: Path,
    env_steps: int | None,
    quiet: bool,
    callbacks: Sequence[Callback],
    track: Sequence[str] | None,
) -> RunResult:
    shown, directory = directory, directory.absolute()
    with _locked(directory, distributed):
        trainer = Trainer(config, directory, resume=True, distributed=distributed, callbacks=callbacks)
        try:
            trains_past_end = env_steps is not None and env_steps > trainer.env_steps
            if trains_past_end:
                trainer.train_past_end()
            finished = trainer.is_finished()
            if distributed.is_main:
                warn_corrupted(trainer.skipped_corrupted)
                for warning in trainer.resume_warnings:
                    print(warning, file=sys.stderr)
                if not finished:
                    (directory / RESULT).unlink(missing_ok=True)
                    write_changes(directory, trainer.saved_config, trainer.config)
                    write_json(directory / CONFIG, to_json(trainer.config))
            if trains_past_end:  # a kill before the next checkpoint does not end the run again
                trainer.save_checkpoint()
            return _train_and_evaluate(trainer, shown, quiet=quiet, track=track)
        except BaseException:
            trainer.close()
            raise


def _train_and_evaluate(trainer: Trainer, shown: Path, *, quiet: bool, track: Sequence[str] | None) -> RunResult:
    """Train, evaluate, write the result. The trainer is closed at the end; if this raises, the caller closes it.

    `shown`: the run directory as the caller named it.
    """
    config, distributed = trainer.config, trainer.distributed
    tracking = Tracking(trainer.directory)
    try:
        if trainer.logger and track is not None:
            tracking.start(config, track, trainer.logger)
        quiet = quiet or not distributed.is_main
        if not quiet:
            print(f"{config.env.task_name}: {trainer.algorithm.compute}", file=sys.stderr)
            if trainer.state.random_baseline is None:
                print(f"evaluating random actions over {config.eval.final_trials} trials", file=sys.stderr)
        collects = config.makes_updates and not config.offline.is_offline_only
        announces = collects and (is_first_update_late(config) or not quiet)
        if distributed.is_main and (no_updates := describe_no_updates(config)):
            print(no_updates, file=sys.stderr)
        if distributed.is_main and announces and not trainer.algorithm.num_updates:
            print(describe_first_update(config), file=sys.stderr)
        unit = "simulated env steps" if config.offline.is_offline_only else "env steps"
        may_end_early = config.eval.stop_return is not None
        with ProgressBar(config.env_steps, unit=unit, may_end_early=may_end_early, quiet=quiet) as progress:
            stopped_by = trainer.train(progress)
        evaluation: RunResult | None = None
        if not stopped_by:
            if not quiet:
                print(f"evaluating over {config.eval.final_trials} trials", file=sys.stderr)
            with StopSignal() as stop:
                report = trainer.evaluations.evaluate(trainer.state, stop, trials=config.eval.final_trials)
                stop.sync(distributed)  # a signal to all ranks must find all inside
            evaluation = report.to_json() if report else None
            stopped_by = stop.requested
        result = _write_result(trainer, shown, evaluation, stopped_by) if distributed.is_main else {}
        result = distributed.broadcast_object(result)
    except BaseException as error:
        tracking.finish("failed")
        if isinstance(error, UserError) and trainer.env_steps:
            raise UserError(
                f"{error} ({_how_to_resume(trainer.config, shown)} continues from the last checkpoint)"
            ) from error
        raise
    trainer.shutdown()
    tracking.finish("stopped" if stopped_by else "finished", None if stopped_by else result)
    return result


def _write_result(trainer: Trainer, shown: Path, evaluation: RunResult | None, stopped_by: str) -> RunResult:
    """Write `result.json` of a finished run, or the status of a stopped one; return the result."""
    state, env_steps = trainer.state, actual_env_steps(trainer.config, trainer.env_steps)
    updates, seconds = trainer.algorithm.num_updates, trainer.state.train_seconds
    counters: RunResult = {
        "env_steps": env_steps,
        "updates": updates,
        "seed": trainer.config.seed,
        "deterministic_actions": state.trained_config(trainer.config).deterministic_actions,
        "policy_index": state.policy_index,
        "wall_seconds": state.wall_seconds,
        "train_seconds": seconds,
        "env_steps_per_second": env_steps / seconds if seconds else 0.0,
        "updates_per_second": updates / seconds if seconds else 0.0,
        "random_baseline": state.random_baseline,
        "run_dir": str(shown),
    }
    if evaluation is None:
        write_status(trainer.directory, "stopped", stopped_by)
        print(f"stopped by {stopped_by}; {_how_to_resume(trainer.config, shown)} continues", file=sys.stderr)
        no_evaluation = {**dict.fromkeys(EVAL_KEYS), "trials": 0, "train_tasks": None, "end_reason": None}
        return {**no_evaluation, **counters, "stopped_by": stopped_by}
    made = "updates" if trainer.config.offline.is_offline_only else "environment steps"
    result = {**evaluation, **counters, "end_reason": state.end_reason or f"all {made} made"}
    write_json(trainer.directory / RESULT, result)
    trials = trainer.components.statistics.trials
    print_failed_trials("the run", failed=trainer.experience.counts().get(RESTARTS, 0.0), completed=trials)
    if not updates and trainer.config.makes_updates:
        print(describe_missing_updates(trainer.config, trials=trials, end_reason=state.end_reason), file=sys.stderr)
    return result


def _how_to_resume(config: RunConfig, directory: Path) -> str:
    """Return the command that resumes a run. It names the modules of the environment and of the test tasks."""
    env = config.env
    if isinstance(env, EnvFnConfig) and import_name(env.env_fn) is None:
        return f"yamame.resume({str(directory)!r}, env_fn=...)"
    return f"yamame resume {shlex.quote(str(directory))}{environment_flags(env)}"


def _write_run_files(trainer: Trainer, metadata: RunMetadata) -> None:
    """Write the first checkpoint and the files that describe the run, last `config.json`, which marks the directory."""
    envs = trainer.experience.environments
    task = {
        "observation_space": space_to_json(envs.observation_space),
        "action_space": space_to_json(envs.env_action_space),
        "horizon": envs.horizon,
    }
    trainer.save_checkpoint()
    if trainer.distributed.is_main:
        for name, content in ((SPACES, task), (METADATA, asdict(metadata)), (CONFIG, to_json(trainer.config))):
            write_json(trainer.directory / name, content)


@contextmanager
def _locked(directory: Path, distributed: DistributedContext) -> Iterator[None]:
    """Hold the lock of the run directory and record failures, on the main rank."""
    if not distributed.is_main:
        yield
        return
    with lock_run_dir(directory), record_failure(directory):
        yield


def unused_field_remarks(config: RunConfig) -> list[str]:
    """Return a line for each setting of `compute` and `replay` that the algorithm does not use."""
    default = ReplayConfig()
    unused = ["compute.compile"] if config.compute.compile == "on" and not config.algorithm.compiles else []
    for name in config.algorithm.unused_replay_fields:
        if getattr(config.replay, name) != getattr(default, name):
            unused.append(f"replay.{name}")
    return [f"{path} has no effect with this algorithm" for path in unused]
