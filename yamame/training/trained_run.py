"""`TrainedRun`: a trained policy and its run, as evaluations, recordings, exports and shared policies use it."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from torch import nn

from yamame.algorithms.base import build_model, model_device
from yamame.collect.experience import TrainedPolicy
from yamame.data.schema import TaskSpec
from yamame.data.spaces import describe_space
from yamame.envs.config import EnvConfig, apply_instruction
from yamame.envs.env_fn import EnvFn, EnvFnConfig, env_config
from yamame.envs.gymnasium import find_env
from yamame.envs.working_directory import kept_working_directory
from yamame.errors import UserError
from yamame.nets.torch_defaults import with_torch_defaults
from yamame.run_config import RunConfig
from yamame.runs.checkpoint import Checkpoint, load_checkpoint_at, load_latest_checkpoint, unflatten_tensors
from yamame.runs.directory import BEST, BEST_CHECKPOINT, CHECKPOINTS, LATEST
from yamame.training.evaluate import EVALUATION_SEED, check_seed, check_trials, evaluate_model
from yamame.training.run_files import RunResult, read_config, read_task_spec
from yamame.training.state import TrainState, checkpoint_mismatch_error, restore_train_state


@dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """The policy of one checkpoint, and what acting with it depends on. Made by `load_trained_run`."""

    directory: Path
    """Run directory or policy folder."""
    config: RunConfig
    """Config of the run; its algorithm and `deterministic_actions` are those with which the trained policy acts."""
    task: TaskSpec
    model: nn.Module
    """The networks, on the CPU. Those that the checkpoint of a policy folder lacks are as initialized."""
    checkpoint: Checkpoint
    train_state: TrainState

    def policy(self, *, num_envs: int, seed: int) -> TrainedPolicy:
        """Return the policy with empty memory; `seed` is that of its samples."""
        generator = torch.Generator(model_device(self.model)).manual_seed(seed)
        return self.config.algorithm.build_policy(self.model, num_envs=num_envs, generator=generator)

    def evaluate(self, *, trials: int | None, seed: int | None, instruction: str = "", quiet: bool = True) -> RunResult:
        """Evaluate the policy without exploration noise.

        Args:
            trials: Number of trials; None: `eval.final_trials`.
            seed: Seed of tasks and actions; None: that of the evaluation after training.
            instruction: Instruction of every trial; empty: sampled by the task.
            quiet: Hide progress.

        Returns:
            The keys of `yamame eval --json`.

        Raises:
            UserError: If the environment cannot be made or does not take the instruction.
        """
        config = replace(self.config, env=apply_instruction(self.config.env, instruction))
        seed = EVALUATION_SEED if seed is None else seed
        trials = config.eval.final_trials if trials is None else trials
        check_trials(trials)
        check_seed(seed)
        report = evaluate_model(config, self.model, trials=trials, seed=seed, quiet=quiet)
        return {
            **report.to_json(),
            "deterministic_actions": config.deterministic_actions,
            "policy_index": self.train_state.policy_index,
            "env_steps": actual_env_steps(config, self.checkpoint.state["env_steps"]),
            "updates": self.checkpoint.step,
            "seed": seed,
        }


@with_torch_defaults
def load_trained_run(directory: Path, checkpoint: str = LATEST, config: RunConfig | None = None) -> TrainedRun:
    """Load a checkpoint of a run, without environments.

    Args:
        directory: Run directory or policy folder.
        checkpoint: `latest`, `best` or the path of a checkpoint.
        config: Config of the run, with functions that the directory cannot hold or with another environment
            (`with_env`); None: read from the directory.

    Raises:
        UserError: If there is no such checkpoint or it does not match the config.
    """
    config = config or read_config(directory)
    task = read_task_spec(directory, config)
    model = build_model(config.algorithm, task, context_length=config.resolved_context_length, seed=0)
    loaded = _load_checkpoint(directory, checkpoint)
    warn_corrupted(loaded.skipped_corrupted)
    try:
        weights = unflatten_tensors(loaded.tensors, loaded.state["algorithm"])["model"]
        if loaded.has_acting_weights_only:
            not_acting = model.state_dict().keys() - config.algorithm.acting_state(model).keys()
            missing, unexpected = model.load_state_dict(weights, strict=False)
            if unexpected or not set(missing) <= not_acting:
                raise KeyError("the weights are not those that act")
        else:
            model.load_state_dict(weights)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        raise checkpoint_mismatch_error(directory) from error
    train_state = restore_train_state(loaded, directory)
    return TrainedRun(
        directory=directory,
        config=train_state.trained_config(config),
        task=task,
        model=model,
        checkpoint=loaded,
        train_state=train_state,
    )


def with_env(
    directory: Path,
    config: RunConfig,
    env: EnvFn | str | None,
    eval_env_fn: EnvFn | None = None,
    *,
    keeps_test_tasks: bool = False,
) -> RunConfig:
    """Return the config of a run with another environment and all other settings of its task.

    Args:
        directory: Run directory.
        config: Config of the run.
        env: Function that makes the environment, its name `module:function`, or a Gymnasium id. It makes the test
            tasks, too: what the caller passes is what is evaluated. None: the function of the run.
        eval_env_fn: Makes the environments of the test tasks instead.
        keeps_test_tasks: Without `eval_env_fn`, the function of the run still makes the test tasks, for a run that is
            resumed.

    Raises:
        UserError: If the spaces are not those of the run, or there is nothing for `eval_env_fn` to go with.
    """
    if env is None:
        if not isinstance(config.env, EnvFnConfig):
            raise UserError("eval_env_fn is for runs on a function's environment: pass env_fn, too")
        env = config.env.env_fn
    env = find_env(env) if isinstance(env, str) else env
    made = env_config(env, horizon=config.env.max_trial_steps, attempts=getattr(config.env, "attempts", 1))
    own = {"env_fn", "eval_env_fn", "id", "vector_size", "horizon", "attempts"}
    settings = {field.name for field in fields(made)} & {field.name for field in fields(config.env)} - own
    made = replace(made, **{name: getattr(config.env, name) for name in settings})
    if keeps_test_tasks and eval_env_fn is None:
        eval_env_fn = getattr(config.env, "eval_env_fn", None)
    if isinstance(made, EnvFnConfig):
        made = replace(made, eval_env_fn=eval_env_fn)
    elif eval_env_fn is not None:
        raise UserError("test tasks of their own go with a function that makes the environment, not a Gymnasium id")
    for each in (made, made.eval_config()):
        require_same_spaces(read_task_spec(directory, config), each)
    return replace(config, env=made)


@kept_working_directory()
def require_same_spaces(task: TaskSpec, env: EnvConfig) -> None:
    """Raise `UserError` if an environment of the config has other spaces than the task."""
    with closing(env.build(env.required_num_envs or 1, seed=0)) as envs:
        found = env.task_spec(envs)
    for name, space, expected in (
        ("observation", found.observation_space, task.observation_space),
        ("action", found.action_space, task.action_space),
    ):
        if space != expected:
            raise UserError(
                f"the environment's {name} space is {describe_space(space)}, expected that of the run: "
                f"{describe_space(expected)}"
            )


def actual_env_steps(config: RunConfig, env_steps: int) -> int:
    """Return the environment steps made; a purely offline run counts steps but makes none."""
    return 0 if config.offline.is_offline_only else env_steps


def warn_corrupted(checkpoints: Sequence[str]) -> None:
    """Print a line for each corrupted checkpoint that was skipped."""
    for corrupted in checkpoints:
        print(f"checkpoint {corrupted} is corrupted; using an older one", file=sys.stderr)


def _load_checkpoint(directory: Path, which: str) -> Checkpoint:
    if which == LATEST:
        return load_latest_checkpoint(directory / CHECKPOINTS)
    if which != BEST_CHECKPOINT:
        return load_checkpoint_at(Path(which))
    if not (directory / BEST).exists():
        raise UserError(f"{directory} has no best checkpoint: it was never evaluated during training")
    return load_latest_checkpoint(directory / BEST)
