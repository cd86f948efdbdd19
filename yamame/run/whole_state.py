"""Everything that the rest of a run depends on, into a checkpoint and back."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from yamame.learning.checkpoint import Checkpoint, flatten_tensors, unflatten_tensors
from yamame.ops.generator import load_generator_state
from yamame.ops.ranks import DistributedContext
from yamame.records.errors import UserError
from yamame.replay.goal_statistics import GoalStatistics
from yamame.run.build import TrainingComponents
from yamame.run.metrics import MetricLogger
from yamame.run.round import TrainingIteration
from yamame.run.standing import TrainState

_NO_FAULTS = {"counts": {}, "excess": 0, "has_worked": True}


def collect_state(
    parts: TrainingComponents, round_: TrainingIteration, standing: TrainState, metrics: MetricLogger | None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and JSON for `save_checkpoint`: on the first rank those of all. All ranks call this together."""
    tensors, learner = flatten_tensors(parts.learner.state_dict())
    of_run, *of_others = round_.ranks.gather_object(_of_rank(parts, round_, metrics))
    others, rest = flatten_tensors({"run": of_run, **({"other_ranks": of_others} if of_others else {})})
    state = {
        "learner": learner,
        "train_state": asdict(standing),
        "env_steps": round_.env_steps,
        "rank_state": rest,
    }
    return tensors | others, state


def _of_rank(parts: TrainingComponents, round_: TrainingIteration, metrics: MetricLogger | None) -> dict[str, Any]:
    """What is not the same on all ranks."""
    of_rank = {
        "iteration": round_.state_dict(),
        "collector": parts.collector.state_dict(),
        "policy": parts.policy.state_dict(),
        "exploration_rng": parts.rng.bit_generator.state,
        "sampler": parts.sampler.state_dict(),
        "statistics": parts.statistics.state_dict(),
        "num_appended": parts.store.total_appended,
        "metrics_bytes": metrics.num_bytes if metrics else None,
    }
    return of_rank if round_.ranks.is_main else of_rank | {"learner_rng": parts.learner.generator.get_state()}


def restore_state(checkpoint: Checkpoint, parts: TrainingComponents, round_: TrainingIteration, metrics: MetricLogger | None) -> list[str]:
    """Put everything back; what could not be, each in a sentence. All ranks call this together.

    Raises `RuntimeError` where the network does not take the weights, `UserError` for a checkpoint of other ranks.
    """
    state = _state_of(round_.ranks, checkpoint)
    parts.learner.load_state_dict(unflatten_tensors(checkpoint.tensors, checkpoint.state["learner"]))
    if "learner_rng" in state:
        load_generator_state(parts.learner.generator, state["learner_rng"])
    lost = state["num_appended"] - parts.store.total_appended
    parts.store.rollback(state["num_appended"] - 1)
    parts.statistics.load_state_dict(state["statistics"])
    parts.sampler.load_state_dict(state["sampler"])
    parts.rng.bit_generator.state = state["exploration_rng"]
    trials_go_on = parts.collector.load_state_dict(state["collector"])
    parts.policy.load_state_dict(state["policy"])
    round_.load_state_dict(state["iteration"])
    if metrics:
        metrics.truncate(state["metrics_bytes"])
    notes = [] if trials_go_on else ["these environments cannot be put back where they stood: new trials begin"]
    if lost > 0:
        notes.append(f"{parts.store.directory} has lost {lost} trajectories or more since the checkpoint")
    return notes


def load_goal_statistics(checkpoint: Checkpoint) -> GoalStatistics:
    """What relabeling knew of goals; nothing where the checkpoint is from before there were any."""
    sampler = _rest_of(checkpoint)["run"]["sampler"]
    return GoalStatistics.from_json(sampler["goals"]) if "goals" in sampler else GoalStatistics()


def _state_of(ranks: DistributedContext, checkpoint: Checkpoint) -> Mapping[str, Any]:
    rest = _rest_of(checkpoint)
    of_ranks = [rest["run"], *rest.get("other_ranks", [])]
    if len(of_ranks) != ranks.world_size:
        raise UserError(
            f"{checkpoint.path} is of a run with {len(of_ranks)} learners, not {ranks.world_size}: give as many, since each "
            "goes on with what it has experienced"
        )
    of_rank: Mapping[str, Any] = of_ranks[ranks.rank]
    return of_rank


def _rest_of(checkpoint: Checkpoint) -> Mapping[str, Any]:
    """Everything but the learner's, of the first rank and of others.

    Also from before trials in flight were kept as well (2026-11-21).
    """
    state = checkpoint.state
    if "rank_state" in state:
        rest: Mapping[str, Any] = unflatten_tensors(checkpoint.tensors, state["rank_state"])
        return rest
    run = {
        "iteration": {"phase": "start", "vector_steps_left": 0, "update_metrics": {}, "metrics": {}},
        "collector": {"env_steps": state["env_steps"], "faults": _NO_FAULTS, "active_trials": None},
        "policy": {"memory": None, "generator": checkpoint.tensors["acting_generator"]},
        "metrics_bytes": None,
        **{key: state[key] for key in ("exploration_rng", "sampler", "statistics", "num_appended")},
    }
    return {"run": run}
