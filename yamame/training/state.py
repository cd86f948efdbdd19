"""State of a run in its checkpoints: counters, progress of the iteration, and all components."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from yamame.config.differences import fields_at_default, flatten_config
from yamame.data.relabeling import GoalStatistics
from yamame.data.store import ReplayStore
from yamame.distributed_context import DistributedContext
from yamame.errors import UserError
from yamame.metrics.registry import ENV_STEPS_PER_SECOND, UPDATES_PER_SECOND
from yamame.nets.ops import load_generator_state
from yamame.nets.torch_defaults import with_torch_defaults
from yamame.run_config import EvalConfig, RunConfig
from yamame.runs.checkpoint import (
    Checkpoint,
    flatten_tensors,
    load_checkpoint_at,
    load_latest_checkpoint,
    unflatten_tensors,
)
from yamame.runs.directory import CHECKPOINTS, CONFIG
from yamame.runs.locate import locate_run
from yamame.training.components import TrainingComponents
from yamame.types import State

_SOLVED = "solved: two evaluations of at least "
"""Start of the `end_reason` of a run that `eval.stop_return` ended."""


@dataclass
class TrainState:
    """Counters of a run that belong to no component, as JSON values."""

    train_seconds: float = 0.0
    """Seconds of collecting and updating, in all processes of the run."""
    wall_seconds: float = 0.0
    """Total seconds, including evaluations and checkpoints."""
    restarts: int = 0
    """Number of earlier processes of the run."""
    random_baseline: dict[str, Any] | None = None
    """Evaluation of uniformly random actions, as `EvalResult.to_json` returns it."""
    next_eval_step: int = 0
    """Environment steps at which the next evaluation is due."""
    consecutive_solved: int = 0
    """Consecutive evaluations that reached `eval.stop_return`."""
    end_reason: str = ""
    """Why the run ended before all environment steps were made; "": it has not."""
    best_eval_return: float | None = None
    """Highest mean return of an evaluation."""
    has_action_masks: bool = False
    """Whether a batch had action masks, without which the policy must not act."""
    next_milestone_step: int = 0
    """Environment steps at which the next milestone checkpoint is due."""
    mode_is_better: bool = False
    """Whether the mode of the trained policy earned more than samples (`eval.choose_policy`)."""
    policy_index: int = -1
    """Index of the trained policy that earned most (`eval.choose_policy`); -1: the one that acted in training."""

    def acting_as_in_training(self) -> "TrainState":
        """Return the state with a policy that acts as in training: `eval.choose_policy` has chosen nothing."""
        return replace(self, mode_is_better=False, policy_index=-1)

    def trained_config(self, config: RunConfig) -> RunConfig:
        """Return the config of a run with the way in which its trained policy acts."""
        if not config.eval.choose_policy:
            return config
        return replace(
            config,
            algorithm=config.algorithm.with_policy(self.policy_index),
            deterministic_actions=config.deterministic_actions or self.mode_is_better,
        )

    def resumed_with(self, config: RunConfig, *, saved: Mapping[str, Any]) -> "TrainState":
        """Return the state that holds for a config; `saved`: the flattened config of the checkpoint.

        What was solved with another `eval.stop_return` does not count.
        """
        if saved.get("eval.stop_return") == config.eval.stop_return:
            return self
        return replace(self, consecutive_solved=0, end_reason="" if is_solved(self.end_reason) else self.end_reason)

    def with_intervals_of(self, config: RunConfig, *, env_steps: int) -> "TrainState":
        """Return the state with evaluation and milestone due at most an interval of the config after `env_steps`."""

        def limited(step: int, interval: int) -> int:
            return min(step, env_steps + interval) if interval else step

        return replace(
            self,
            next_eval_step=limited(self.next_eval_step, config.eval.interval_env_steps),
            next_milestone_step=limited(self.next_milestone_step, config.checkpoint.milestone_interval_env_steps),
        )

    def record_evaluation(self, return_mean: float, config: EvalConfig, *, env_steps: int) -> bool:
        """Update the counters after an evaluation; return whether its mean return is the highest so far."""
        self.next_eval_step = env_steps + config.interval_env_steps
        solved = config.stop_return is not None and return_mean >= config.stop_return
        self.consecutive_solved = self.consecutive_solved + 1 if solved else 0
        if self.consecutive_solved >= 2:
            self.end_reason = f"{_SOLVED}{config.stop_return:g}"
        improved = self.best_eval_return is None or return_mean > self.best_eval_return
        self.best_eval_return = return_mean if improved else self.best_eval_return
        return improved


def is_solved(end_reason: str | None) -> bool:
    """Return whether a run with this `end_reason` in its result was ended by `eval.stop_return`."""
    return (end_reason or "").startswith(_SOLVED)


@dataclass
class IterationState:
    """Progress of an iteration."""

    phase: Literal["start", "collect", "update", "done"] = "start"
    vector_steps_left: int = 0
    """Vector steps still to collect."""
    update_metrics: dict[str, list[Tensor]] = field(default_factory=dict)
    """Metrics of the updates so far, by key."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Everything else to log."""

    def add_speeds(self, seconds: float, env_steps: int, updates: int) -> None:
        """Add the means of the update metrics, and the speed of steps and updates that took `seconds`."""
        self.metrics |= {
            **{key: float(torch.stack(values).mean()) for key, values in self.update_metrics.items()},
            ENV_STEPS_PER_SECOND: env_steps / seconds,
            UPDATES_PER_SECOND: updates / seconds,
        }

    def state_dict(self) -> State:
        """Return the state with stacked metrics."""
        stacked = {key: torch.stack(values).cpu() for key, values in self.update_metrics.items()}
        return {**vars(self), "metrics": dict(self.metrics), "update_metrics": stacked}

    @classmethod
    def from_state_dict(cls, state: State, device: torch.device) -> "IterationState":
        """Return the state that `state_dict` was called on, with metrics on the device of the updates to come."""
        update_metrics = {key: list(values.to(device)) for key, values in state["update_metrics"].items()}
        return cls(**{**state, "update_metrics": update_metrics})


def collect_state(
    components: TrainingComponents, distributed: DistributedContext, rank_state: Mapping[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return tensors and JSON for `save_checkpoint`, on the main rank those of all ranks. All must call this together.

    Args:
        components: Components of this rank.
        distributed: This process among the learners.
        rank_state: Further state of this rank.
    """
    tensors, algorithm = flatten_tensors(components.algorithm.state_dict())
    state = {
        **rank_state,
        "experience": components.experience.state_dict(),
        "sampler": components.replay.sampler.state_dict(),
        "statistics": components.statistics.state_dict(),
        "num_appended": components.replay.store.total_appended,
        "skipped_ids": [list(each) for each in components.replay.sampler.skipped_ids],
        "stored_ids": ids_to_ranges(components.replay.store.ids()),
        **({} if distributed.is_main else {"learner_rng": components.algorithm.generator.get_state()}),
    }
    main_rank, *other_ranks = distributed.gather_object(state)
    ranks = {"run": main_rank, **({"other_ranks": other_ranks} if other_ranks else {})}
    rank_tensors, rank_json = flatten_tensors(ranks)
    return tensors | rank_tensors, {"algorithm": algorithm, "rank_state": rank_json}


def restore_state(
    checkpoint: Checkpoint, components: TrainingComponents, distributed: DistributedContext
) -> tuple[Mapping[str, Any], list[str]]:
    """Restore all components. All ranks must call this together.

    Returns:
        State of this rank, and a warning for each thing that could not be restored.

    Raises:
        RuntimeError: If the weights do not match the network.
        UserError: If the checkpoint was saved by another number of learners.
    """
    saved = _all_ranks(checkpoint)
    ranks = [saved["run"], *saved.get("other_ranks", [])]
    if len(ranks) != distributed.world_size:
        raise UserError(
            f"{checkpoint.path} was saved by {len(ranks)} learners, not {distributed.world_size}: "
            f"pass --num-learners {len(ranks)}, since each continues with its own replay"
        )
    state: Mapping[str, Any] = ranks[distributed.rank]
    store = components.replay.store
    components.algorithm.load_state_dict(unflatten_tensors(checkpoint.tensors, checkpoint.state["algorithm"]))
    if "learner_rng" in state:
        load_generator_state(components.algorithm.generator, state["learner_rng"])
    warnings = _check_store(store, state)
    store.rollback(state["num_appended"] - 1)
    components.statistics.load_state_dict(state["statistics"])
    components.replay.sampler.load_state_dict(state["sampler"])
    skipped = [(first, count) for first, count in state.get("skipped_ids", [])]  # none in earlier checkpoints
    if lost := store.total_appended - state["num_appended"]:
        skipped.append((state["num_appended"], lost))
    components.replay.sampler.skipped_ids = skipped
    if not components.experience.load_state_dict(state["experience"]):
        warnings.append("environment state cannot be restored; starting new trials")
    return state, warnings


def needed_ids(checkpoint: Checkpoint, rank: int) -> list[int]:
    """Return the ids of the trajectories that a rank of a checkpoint needs. Raises `UserError` if it is malformed."""
    try:
        saved = _all_ranks(checkpoint)
        return ids_from_ranges([saved["run"], *saved.get("other_ranks", [])][rank]["stored_ids"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise UserError(f"{checkpoint.path} does not name the trajectories of learner {rank}") from error


def _check_store(store: ReplayStore, state: Mapping[str, Any]) -> list[str]:
    """Return warnings of known losses since a checkpoint. Raises `UserError` if other trajectories are missing."""
    needed = ids_from_ranges(state["stored_ids"])
    missing, gone = store.missing(needed)
    if missing:
        raise UserError(
            f"{store.directory} lacks {len(missing)} of the {len(needed)} trajectories of the checkpoint: "
            f"yamame data repair {store.directory} accepts the loss"
        )
    causes = "corrupted, evicted or lost in a repair"
    return [f"{len(gone)} of the {len(needed)} trajectories of the checkpoint are gone ({causes})"] if gone else []


_MAX_IDS = 1 << 28


def ids_to_ranges(ids: Iterable[int]) -> list[list[int]]:
    """Return ids as JSON: [first, last] of each run of successive ones."""
    ranges: list[list[int]] = []
    for record_id in sorted(ids):
        if ranges and ranges[-1][1] == record_id - 1:
            ranges[-1][1] = record_id
        else:
            ranges.append([record_id, record_id])
    return ranges


def ids_from_ranges(ranges: Collection[Sequence[int]]) -> list[int]:
    """Return the ids of `ids_to_ranges`. Raises `ValueError` for more than a store can hold."""
    if sum(last + 1 - first for first, last in ranges) > _MAX_IDS:
        raise ValueError(f"more than {_MAX_IDS} ids")
    return [record_id for first, last in ranges for record_id in range(first, last + 1)]


def load_goal_statistics(checkpoint: Checkpoint) -> GoalStatistics:
    """Return the goal frequencies of the relabeling."""
    return GoalStatistics.from_json(_all_ranks(checkpoint)["run"]["sampler"]["goals"])


def checkpoint_mismatch_error(directory: Path) -> UserError:
    """Return the error for a config that does not match the checkpoint of its run."""
    return UserError(
        f"{directory / CONFIG} does not match the checkpoint (was it edited?): restore the original file; a run that "
        f"an earlier version trained with other networks requires that version"
    )


def _all_ranks(checkpoint: Checkpoint) -> Mapping[str, Any]:
    saved: Mapping[str, Any] = unflatten_tensors(checkpoint.tensors, checkpoint.state["rank_state"])
    return saved


def changed_fields(saved: Mapping[str, Any], config: RunConfig) -> str:
    """Return the fields in which a config differs from a flattened one, with both values.

    `env_steps` may, and a field that the flattened one lacks, since it is of an older version, may have its default.
    """
    current = flatten_config(config)
    may_differ = {"env_steps"} | (fields_at_default(config) - saved.keys())
    changed = [path for path in {**saved, **current} if saved.get(path) != current.get(path)]
    changed = [path for path in changed if path not in may_differ]
    return ", ".join(f"{path} {json.dumps(saved.get(path))} -> {json.dumps(current.get(path))}" for path in changed)


@with_torch_defaults
def load_initial_weights(model: nn.Module, source: str) -> None:
    """Load the networks of another run or policy, as in `locate_run`, or of the checkpoint at a path."""
    path = locate_run(source)
    if not path.exists():
        raise UserError(f"{source} does not exist: pass a run, or a checkpoint of one, as init_from")
    is_run = (path / CHECKPOINTS).exists()
    checkpoint = load_latest_checkpoint(path / CHECKPOINTS) if is_run else load_checkpoint_at(path)
    if checkpoint.has_acting_weights_only:
        raise UserError(f"{source} has the acting weights only, without critics: a run cannot start with them")
    try:
        model.load_state_dict(unflatten_tensors(checkpoint.tensors, checkpoint.state["algorithm"])["model"])
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        *_, problem = str(error).strip().splitlines()
        raise UserError(
            f"the weights of {source} do not fit this run: use the same observation and action spaces and the same "
            f"networks ({problem.strip()})"
        ) from error


def restore_train_state(checkpoint: Checkpoint, directory: Path) -> TrainState:
    """Return the counters of a checkpoint. Raises `UserError` if they are not those of this version."""
    try:
        return TrainState(**checkpoint.state["train_state"])
    except (KeyError, TypeError) as error:
        raise checkpoint_mismatch_error(directory) from error
