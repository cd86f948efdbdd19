"""When the first update of a run comes, and what to change if that is late or never."""

from yamame.run_config import RunConfig

_LATE = 0.5
"""Fraction of the run after which a first update is late."""


def describe_no_updates(config: RunConfig) -> str:
    """Return in one line that the settings of a run let it make no update at all; "" if they do not."""
    if config.makes_updates:
        return ""
    return "updates_per_env_step is 0: the run collects trials and makes no update, so that its policy stays as it is"


def describe_first_update(config: RunConfig) -> str:
    """Return in one line when the first update of a run that is to make updates comes."""
    env_steps = config.first_update_env_steps
    if not is_first_update_late(config):
        return f"first update after at most {env_steps:,} of {config.env_steps:,} environment steps"
    return f"{_when(env_steps, config)}: {_remedy(config)}"


def is_first_update_late(config: RunConfig) -> bool:
    """Return whether a run that is to make updates may make its first one late, or none."""
    env_steps = config.first_update_env_steps
    return config.makes_updates and (env_steps is None or env_steps > _LATE * config.env_steps)


def describe_missing_updates(config: RunConfig, *, trials: int, end_reason: str) -> str:
    """Return in one line why a run has ended without any update.

    Args:
        config: Config of the run.
        trials: Number of trials that were completed.
        end_reason: Why the run ended before all its environment steps; "": it did not.
    """
    start = "the run made no update: its policy is as untrained as at the start"
    if end_reason:
        return f"{start} ({end_reason})"
    if trials or config.updates_due(env_steps=config.env_steps, updates=0) < 1:
        return f"{start}; {_when(config.first_update_env_steps, config)}: {_remedy(config)}"
    return f"{start}; no trial was completed in {config.env_steps:,} environment steps: {_remedy(config)}"


def _when(env_steps: int | None, config: RunConfig) -> str:
    if not _waits_for_trials(config):
        condition = ""
    elif config.num_envs == 1:
        condition = f"if trials take all {config.env.max_trial_steps:,} steps, "
    else:
        condition = f"if trials take all {config.env.max_trial_steps:,} steps in {config.num_envs} environments, "
    if env_steps is None:
        return f"{condition}no update is made in {config.env_steps:,} environment steps"
    return f"{condition}the first update comes after {env_steps:,} of {config.env_steps:,} environment steps"


def _remedy(config: RunConfig) -> str:
    """Return the settings that let updates begin early in the run."""
    quarter = config.env_steps // 4
    shorter = f"env_steps_per_iteration={max(1, config.env_steps // 20)}"
    if not _waits_for_trials(config):
        if config.algorithm.is_on_policy or config.env_steps_of_updates(1) <= quarter:
            return f"pass {shorter}, or more env_steps"
        starts = f"learning_starts below {config.learning_starts:,}, " if config.learning_starts else ""
        return f"pass {starts}a larger updates_per_env_step or more env_steps"
    trials, settings = config.first_trials_env_steps(config.num_envs), []
    num_envs = max(1, quarter // config.env.max_trial_steps)
    if config.env.required_num_envs is None and (of_others := config.first_trials_env_steps(num_envs)) < trials:
        trials = of_others
        settings.append(f"num_envs={num_envs}")
    if trials > _LATE * config.env_steps:
        settings.append(f"env_steps={4 * trials}")
    return f"pass {' and '.join(settings) or shorter}, or a smaller horizon if trials are shorter"


def _waits_for_trials(config: RunConfig) -> bool:
    """Return whether the first update comes when the first trials end, rather than by the settings of updates."""
    trials = config.first_trials_env_steps(config.num_envs)
    first_due = config.env_steps_of_updates(1) if config.updates_per_env_step else config.learning_starts + 1
    others = max(first_due, config.resolved_env_steps_per_iteration)
    return not config.offline.is_offline_only and trials >= others
