"""Python API: `train`, `resume`, `open`; `load` is in `policy.loaded`, which needs no PyTorch."""

import inspect
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import EllipsisType, ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float64

from yamame.algorithms.base import AlgorithmConfig
from yamame.config.named_code import (
    caller_modules,
    check_modules,
    describe_function,
    import_name,
    modules_of,
    without_environments,
)
from yamame.config.overrides import apply_overrides, closest_field, iter_fields
from yamame.envs.env_fn import EnvFn, EnvFnConfig, env_config
from yamame.envs.gymnasium import GymnasiumConfig, find_env, is_env_id
from yamame.envs.working_directory import kept_working_directory
from yamame.errors import UserError
from yamame.metrics.registry import read_metrics
from yamame.nets.num_threads import kept_num_threads
from yamame.policy.loaded import LoadedPolicy
from yamame.policy.manifest import UNSPECIFIED, NumEnvs, PolicyManifest
from yamame.recipes import (
    SMALL,
    check_preset,
    config_from_overrides,
    load_recipe,
    make_metadata,
    own_recipe,
    with_algorithm,
)
from yamame.run_config import RunConfig
from yamame.runs.checkpoint import list_checkpoints
from yamame.runs.directory import BEST, CHECKPOINTS, LATEST, MILESTONES
from yamame.runs.locate import check_source, locate_run
from yamame.tools.export.policy import export_policy
from yamame.tools.report import write_report_if_finished
from yamame.tools.video import record_video
from yamame.training import start as runs
from yamame.training.callbacks import Callback
from yamame.training.resumable import check_resumable
from yamame.training.run_files import RunResult, read_config, read_result
from yamame.training.trained_run import TrainedRun, load_trained_run, require_same_spaces, with_env


@dataclass(frozen=True)
class Run:
    """A run: what `train`, `resume` and `open` return."""

    directory: Path
    config: RunConfig = field(repr=False)
    """Config of the run, with the functions that the run directory cannot hold."""
    result: RunResult | None
    """The keys of `yamame train --json`; None: the run has not finished."""

    @property
    def checkpoints(self) -> list[Path]:
        """Folders of all checkpoints, latest first, then the best one and the milestones. Values of `checkpoint`."""
        folders = (self.directory / name for name in (CHECKPOINTS, BEST, MILESTONES))
        return [path for folder in folders for path in list_checkpoints(folder)]

    def metrics(self) -> dict[str, Float64[np.ndarray, "rows"]]:
        """Return the logged metrics as columns, a row for each iteration; NaN where a metric was not logged.

        `pandas.DataFrame(run.metrics())` is a table.
        """
        rows = read_metrics(self.directory)
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: np.array([row.get(name, np.nan) for row in rows], np.float64) for name in names}

    def evaluate(
        self,
        trials: int | None = None,
        seed: int | None = None,
        *,
        instruction: str = "",
        checkpoint: str | Path = LATEST,
        env_fn: EnvFn | str | None = None,
    ) -> RunResult:
        """Evaluate a checkpoint without exploration noise.

        Args:
            trials: Number of trials; None: `eval.final_trials`.
            seed: Seed of tasks and actions; None: that of the evaluation after training.
            instruction: Instruction of every trial; "": sampled by the task.
            checkpoint: `latest`, `best` or a path.
            env_fn: Another environment with the same spaces; None: that of the run.

        Returns:
            The keys of `yamame eval --json`.
        """
        run = self._load(checkpoint, env_fn)
        return run.evaluate(trials=trials, seed=seed, instruction=instruction)

    def record_video(
        self,
        path: str | Path,
        trials: int = 1,
        seed: int | None = None,
        *,
        instruction: str = "",
        checkpoint: str | Path = LATEST,
        env_fn: EnvFn | str | None = None,
    ) -> None:
        """Record a video of the deterministic policy.

        Args:
            path: Output file, .gif or .mp4.
            trials: Number of trials.
            seed: As in `evaluate`.
            instruction: As in `evaluate`.
            checkpoint: As in `evaluate`.
            env_fn: As in `evaluate`; makes environments that can be rendered.

        Raises:
            UserError: If the environment cannot render or the file cannot be written.
        """
        run = self._load(checkpoint, env_fn)
        record_video(run, Path(path), instruction=instruction, trials=trials, seed=seed)

    def load(self, num_envs: int | None = None, *, checkpoint: str | Path = LATEST) -> LoadedPolicy:
        """Load the policy of a checkpoint, for `num_envs` environments; None: a single one."""
        return LoadedPolicy.from_run(self._load(checkpoint), num_envs=num_envs)

    def export(
        self,
        path: str | Path,
        num_envs: NumEnvs = 1,
        *,
        checkpoint: str | Path = LATEST,
        license: str = UNSPECIFIED,
    ) -> PolicyManifest:
        """Export one step of the policy as a graph, with a manifest beside it.

        Args:
            path: Output file, .onnx or .pt2.
            num_envs: Number of environments that a step takes; `dynamic`: any.
            checkpoint: `latest`, `best` or a path.
            license: License of the weights, for the manifest.

        Returns:
            The manifest.

        Raises:
            UserError: If a part of the network cannot be exported or the file cannot be written.
        """
        return export_policy(self._load(checkpoint), Path(path), num_envs=num_envs, license=license)

    def resume(
        self,
        env_steps: int | float | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        track: Sequence[str] | None = (),
        quiet: bool | None = None,
        **settings: Any,
    ) -> "Run":
        """Resume training from the latest checkpoint. Arguments are those of `yamame.resume`."""
        config = apply_overrides(self.config, settings)
        check_resumable(self.directory, self.config, config, env_steps=env_steps)
        config = config if env_steps is None else apply_overrides(config, {"env_steps": env_steps})
        result = runs.resume_run(
            self.directory,
            env_steps=None if env_steps is None else config.env_steps,
            quiet=_is_quiet(quiet),
            config=config,
            callbacks=callbacks,
            track=track,
        )
        _finish(result)
        return Run(self.directory, config, result)

    def _load(self, checkpoint: str | Path, env_fn: EnvFn | str | None = None) -> TrainedRun:
        config = self.config if env_fn is None else with_env(self.directory, self.config, env_fn)
        return load_trained_run(self.directory, str(checkpoint), config)


def train(
    task: str | EnvFn,
    *,
    horizon: int | None = None,
    attempts: int | EllipsisType | None = ...,
    run_dir: str | Path | None = None,
    algorithm: str | Mapping[str, Any] | AlgorithmConfig | None = None,
    preset: str = SMALL,
    size: str | None = None,
    model: str | None = None,
    variants: Sequence[str] = (),
    eval_env_fn: EnvFn | None = None,
    init_from: Run | str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    track: Sequence[str] = (),
    quiet: bool | None = None,
    modules: Sequence[str | ModuleType] = (),
    **settings: Any,
) -> Run:
    """Train on a recipe or on your own environment.

    Args:
        task: Name of a recipe, id of a registered Gymnasium environment, or a function without arguments that returns a
            new `gymnasium.Env` or `VectorEnv`, or the name of one, `module:function`. With a function at the top of a
            module the run can be evaluated and resumed from elsewhere: `yamame eval RUN --env module:function`.
        horizon: Maximum number of steps of a trial, over all its attempts, or `env.horizon` of a recipe; None: that of
            the recipe, or the time limit of the environment, its wrappers' included (1,000 steps if it has none),
            times `attempts`.
        attempts: Number of episodes on one task that make a trial, `env.attempts` of a recipe; None: as many as fit
            into the horizon. The default is that of the recipe, and 1 for other tasks.
        run_dir: Run directory; None: `runs/RECIPE-TIME`.
        algorithm: Learning algorithm: the name of a folder in yamame/algorithms/, whose settings replace those of the
            recipe, a config, or fields of the algorithm that the recipe has; None: that of the recipe.
        preset: `small`, for a CPU, or `paper`: the settings of the paper, for your own environment those of POPGym.
        size: Network size: tiny, small, base or large; None: that of the recipe.
        model: Trajectory encoder: the name of a file in yamame/nets/sequence/; None: that of the recipe.
        variants: Names of ablations to apply.
        eval_env_fn: Makes environments of the test tasks, on which results are measured; for tasks of functions. None:
            those of the training tasks.
        init_from: Run, source as in `open`, or checkpoint whose weights the run starts with; spaces and networks must
            be the same. `learner={"frozen": ("timestep_encoder", "trajectory_encoder")}` keeps encoders as they are.
        callbacks: Called at the start, after each iteration and evaluation, and at the end.
        track: Experiment trackers to send metrics to: `wandb`, `trackio`, `mlflow`.
        quiet: Hide progress; None: unless stderr is a terminal.
        modules: Modules to import, whose environments and classes the settings may name, as in `open`.
        settings: Fields of the config, which take precedence: by name (`env_steps=…, seed=…`), as nested dicts
            (`env={"size": 5}`) or dotted (`**{"learner.learning_rate": 3e-4}`).

    Raises:
        UserError: If the config cannot run.
        KeyboardInterrupt: After Ctrl-C, once a checkpoint is saved. SIGTERM ends the process likewise, unless a handler
            of the caller returns: then the result has the key `stopped_by` and no evaluation.
    """
    check_preset(preset)
    if init_from:
        settings["init_from"] = str(locate_run(check_source(init_from)).resolve())
    with caller_modules([*check_modules(modules), *modules_of(task, eval_env_fn)]):
        if isinstance(task, str) and not (is_env_id(task) or ":" in task):
            if eval_env_fn is not None:
                raise UserError("recipes have test tasks of their own: leave eval_env_fn out")
            recipe = load_recipe(task, preset)
            of_task = {} if horizon is None else {"env.horizon": horizon}
            settings = of_task | ({} if attempts is ... else {"env.attempts": attempts}) | settings
        else:
            count = 1 if attempts is ... else attempts
            recipe = own_recipe(_own_env_config(task, eval_env_fn, horizon=horizon, attempts=count), preset)
        if isinstance(algorithm, str):
            recipe = with_algorithm(recipe, algorithm)
        elif algorithm is not None:
            settings = {"algorithm": algorithm} | settings
        _check_names(settings, recipe.make_config(recipe.env))
        config = config_from_overrides(recipe, variants, settings, size=size, model=model)
        metadata = make_metadata(recipe, config)
        directory = Path(check_source(run_dir)) if run_dir else None
        result = runs.train_run(
            config, metadata, run_dir=directory, quiet=_is_quiet(quiet), callbacks=callbacks, track=track
        )
        _finish(result)
        return Run(Path(result["run_dir"]), config, result)


def _check_names(settings: Mapping[str, Any], config: RunConfig) -> None:
    """Raise `UserError` for a keyword that is neither a field of the config nor an argument, with the nearest one."""
    sections = {field.path.partition(".")[0] for field in iter_fields(config)} | {"algorithm"}
    for name in settings:
        if name.replace("-", "_").partition(".")[0] not in sections:
            nearest = closest_field(name, config, *inspect.signature(train).parameters)
            hint = f"did you mean {nearest!r}?" if nearest else "yamame train RECIPE --help-all lists all fields"
            raise UserError(f"no field {name!r}: {hint}")


def _is_quiet(quiet: bool | None) -> bool:
    return not sys.stderr.isatty() if quiet is None else quiet


def _finish(result: RunResult) -> None:
    """Write the report; deliver a signal that stopped the run again, to whom it was sent."""
    write_report_if_finished(result)
    if not result.get("stopped_by"):
        return
    number = signal.Signals[result["stopped_by"]]
    if number is signal.SIGINT and signal.getsignal(number) is signal.SIG_IGN:  # a background process of a shell
        raise KeyboardInterrupt
    signal.raise_signal(number)


@kept_num_threads()
@kept_working_directory()
def _own_env_config(
    task: EnvFn | str, eval_env_fn: EnvFn | None, *, horizon: int | None, attempts: int | None
) -> EnvFnConfig | GymnasiumConfig:
    """Return the config of a function's or registered environment; print what cannot be done with it later."""
    env = env_config(find_env(task) if isinstance(task, str) else task, horizon=horizon, attempts=attempts)
    if eval_env_fn is not None:
        if not isinstance(env, EnvFnConfig):
            raise UserError("eval_env_fn is for tasks of functions: pass a function that makes the environment, too")
        env = replace(env, eval_env_fn=eval_env_fn)
        with closing(env.build(env.required_num_envs or 1, seed=0)) as envs:
            spec = env.task_spec(envs)
        require_same_spaces(spec, env.eval_config())
    functions = [env.env_fn, env.eval_env_fn] if isinstance(env, EnvFnConfig) else []
    for function in (function for function in functions if function and not import_name(function)):
        print(
            f"{describe_function(function)} cannot be imported by name, so that yamame eval, resume, play and view "
            "cannot make the environment of this run: pass a function at the top of a module, or env_fn= and "
            "eval_env_fn= to yamame.open and yamame.resume",
            file=sys.stderr,
        )
    return env


def resume(
    run: Run | str | Path,
    *,
    env_steps: int | float | None = None,
    env_fn: EnvFn | str | None = None,
    eval_env_fn: EnvFn | None = None,
    callbacks: Sequence[Callback] = (),
    track: Sequence[str] | None = (),
    quiet: bool | None = None,
    modules: Sequence[str | ModuleType] = (),
    **settings: Any,
) -> Run:
    """Resume training from the latest checkpoint. A finished run stays as it is, unless it gets more steps.

    Args:
        run: Run, or its directory.
        env_steps: New total number of environment steps, to which a run trains even if it had solved its task; None:
            that of the config.
        env_fn: As in `open`.
        eval_env_fn: The function that makes the test tasks; None: those of the run.
        callbacks: As in `train`.
        track: Experiment trackers in addition to those that the run has; None: send nothing to trackers.
        quiet: As in `train`.
        modules: As in `open`.
        settings: Fields of the config with other values from now on, as in `train`: those that
            `yamame resume --help` lists may change.

    Raises:
        UserError: If there is no run, it has already made more than `env_steps`, its environment cannot be made, or a
            setting cannot change.
    """
    if not isinstance(run, Run) or env_fn is not None or eval_env_fn is not None:
        run = _open(run, env_fn, eval_env_fn, modules, keeps_test_tasks=True)
    return run.resume(env_steps, callbacks=callbacks, track=track, quiet=quiet, **settings)


def open(
    run: Run | str | Path,
    *,
    env_fn: EnvFn | str | None = None,
    eval_env_fn: EnvFn | None = None,
    modules: Sequence[str | ModuleType] = (),
) -> Run:
    """Open a run or policy: to read its metrics, evaluate, resume, record or load its policy.

    Args:
        run: Run or its directory, `zoo:NAME`, or `hf://user/repo[@revision]`, which is downloaded from Hugging Face.
        env_fn: The function that makes the run's environment, if it was trained with one, or another environment with
            the same spaces: a function, its name `module:function`, or a Gymnasium id. What is passed is what is
            evaluated. None: as the run directory says, which names functions but does not contain them.
        eval_env_fn: The function that makes the test tasks; None: `env_fn` makes them, too, if it is given.
        modules: Modules whose classes and functions the config may name, such as `["my_tasks"]` or `[__name__]`.
            Classes of this package, modules of what is passed and modules that `yamame trust` lists are found anyway;
            no other module is imported.

    Raises:
        UserError: If there is no run, or a file of a policy is corrupted.
    """
    return _open(run, env_fn, eval_env_fn, modules, keeps_test_tasks=False)


def _open(
    run: Run | str | Path,
    env_fn: EnvFn | str | None,
    eval_env_fn: EnvFn | None,
    modules: Sequence[str | ModuleType],
    *,
    keeps_test_tasks: bool,
) -> Run:
    directory = locate_run(run)
    with caller_modules([*check_modules(modules), *modules_of(env_fn, eval_env_fn)]):
        if env_fn is None and eval_env_fn is None:
            config = read_config(directory)
        else:
            with without_environments():
                config = read_config(directory)
            config = with_env(directory, config, env_fn, eval_env_fn, keeps_test_tasks=keeps_test_tasks)
        return Run(directory, config, read_result(directory))
