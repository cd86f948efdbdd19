"""`Decision`: what all ranks do next. The main rank makes it once per iteration from the reports of all ranks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from yamame.collect.statistics import TrialSummary
from yamame.run_config import RunConfig


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """State of one rank when its trajectories are stored."""

    env_steps: int
    """Environment steps of this rank whose trajectories are stored."""
    vector_steps_left: int
    """Vector steps of the iteration that a signal has prevented."""
    can_update: bool
    """Whether there are trajectories to sample from."""
    needs_checkpoint: bool
    """Whether trajectories are deleted that the latest checkpoint needs."""
    signal: str
    """Name of the signal that was received; "": none."""
    updates_due: int | None = None
    """Number of updates that the algorithm makes now; None: as many as `updates_per_env_step` allows."""
    can_pause: bool = True
    """Whether the environments can be closed without losing a part of a trial."""
    trials: Sequence[TrialSummary] = ()
    """Trials that completed since the last report."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Metrics that are summed over ranks."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What all ranks do until the next decision."""

    env_steps: int
    """Environment steps of all ranks whose trajectories are stored."""
    num_updates: int
    """Number of updates of the run after this iteration."""
    vector_steps: int
    """Vector steps of the next iteration; 0: all environment steps are made."""
    is_collected: bool
    """Whether all ranks have made the vector steps of this iteration."""
    evaluate: bool
    """Whether an evaluation follows the updates of this iteration."""
    save: bool
    """Whether a checkpoint follows them."""
    until_trial_end: bool = False
    """Whether the next iteration ends at the end of a trial, since an evaluation is due that closes the environment."""
    signal: str
    """Name of the signal that stops the run; "": it continues."""
    counts: Mapping[str, float] = field(default_factory=dict)
    """Sums of the counts of all ranks."""


def decide(
    reports: Sequence[RankReport],
    config: RunConfig,
    *,
    num_updates: int,
    next_eval_step: int,
    must_save: bool,
) -> Decision:
    """Return what the ranks do next.

    Args:
        reports: Of all ranks, the main rank first.
        config: Of the whole run.
        num_updates: Number of updates so far.
        next_eval_step: Environment steps at which an evaluation is due.
        must_save: Whether the last checkpoint is too old.
    """
    env_steps = sum(report.env_steps for report in reports)
    can_update = all(report.can_update for report in reports)
    updates = reports[0].updates_due
    if updates is None:
        updates = config.updates_due(env_steps=env_steps, updates=num_updates) if can_update else 0
    missing = min(config.resolved_env_steps_per_iteration, config.env_steps - env_steps)
    vector_steps = max(0, -(-missing // config.num_envs))
    is_due = bool(config.eval.interval_env_steps) and env_steps >= next_eval_step
    single = config.closes_training_envs and config.num_envs == 1
    interrupts = single and not all(report.can_pause for report in reports)
    return Decision(
        env_steps=env_steps,
        num_updates=num_updates + updates,
        vector_steps=vector_steps,
        is_collected=not any(report.vector_steps_left for report in reports),
        evaluate=is_due and not (interrupts and vector_steps),
        until_trial_end=is_due and interrupts,
        save=must_save or any(report.needs_checkpoint for report in reports),
        signal=next((report.signal for report in reports if report.signal), ""),
        counts=_sum(report.counts for report in reports),
    )


def _sum(counts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of each key; a rank may lack keys."""
    sums: dict[str, float] = {}
    for of_rank in counts:
        sums |= {key: sums.get(key, 0.0) + value for key, value in of_rank.items()}
    return sums
