"""Which metrics are drawn where, and what each of them means."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from yamame.run.metrics import METRIC_DESCRIPTIONS


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One drawing: a metric of every run, or a family of metrics of one run in shades."""

    title: str
    keys: list[str]
    """Several: a family, such as the attempts of a trial, in its order."""
    about: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Panels under one heading."""

    title: str
    panels: list[Panel]


_SINGLE = {
    "Learning": {
        "rollout/return_mean": ("Return while training", ""),
        "eval/return_mean": ("Return of evaluations", ""),
        "rollout/success_rate": ("Success while training", ""),
        "eval/success_rate": ("Success of evaluations", ""),
        "eval_train_tasks/return_mean": ("Return on the training tasks", ""),
        "eval_train_tasks/success_rate": ("Success on the training tasks", ""),
    },
    "Losses": {
        "loss/td": ("TD loss", "squared error of the critics, in units of scaled reward"),
        "loss/policy_gradient": ("Policy loss", "minus the critics' value of the policy's actions, normalised"),
        "loss/filtered_bc": ("Imitation loss", "minus the log-probability of actions that turned out better"),
        "loss/world_model": ("World-model loss", "squared error of how the observation will change; 1: knows nothing"),
        "critic/td_error_abs": ("TD error", "mean distance of the critics from their targets at the acting discount"),
    },
    "Values": {
        "critic/td_target_mean": ("Q at the acting discount", "mean TD target, in units of reward"),
        "critic/popart_std": ("PopArt scale", "sigma of the acting discount, in units of reward"),
        "critic/q_normalized": ("Q, normalised", "mean of the critics on PopArt's scale, at the acting discount"),
        "critic/q_ensemble_std": ("Critic ensemble std", "standard deviation over the critics, normalised"),
    },
    "Policy and optimizer": {
        "actor/entropy": ("Entropy", "of the policy at the acting discount, in nats"),
        "actor/filtered_bc_fraction": ("Filtered BC fraction", "of tokens whose action was better than the policy's"),
        "optim/grad_norm": ("Gradient norm", "before clipping"),
        "optim/nonfinite_updates": ("Skipped updates", "so far, because a loss or gradient was not finite"),
    },
    "Speed": {
        "time/env_steps_per_second": ("Environment steps per second", ""),
        "time/updates_per_second": ("Updates per second", ""),
        "time/collect_seconds": ("Collecting, seconds a round", ""),
        "time/update_seconds": ("Updating, seconds a round", ""),
        "time/learner_wait_fraction": ("Waiting for batches", "share of the time spent updating"),
    },
    "Replay": {
        "replay/trajectories": ("Trajectories stored", ""),
        "replay/median_age_updates": ("Age of the stored", "updates since the median stored trajectory was collected"),
        "replay/num_corrupted": ("Damaged records", "found and set aside so far"),
        "rollout/num_trials": ("Trials finished", "so far"),
        "rollout/trial_length_mean": ("Length of trials", "mean of the last 100 training trials, in steps"),
    },
    "Relabeling": {
        "relabel/relabeled_fraction": ("Relabelled share", "of the drawn trajectories that had an instruction"),
        "relabel/inserted_goals_mean": ("Goals inserted", "mean number for each drawn trajectory"),
        "relabel/num_unique_goals": ("Known goals", "different ones that were ever achieved"),
        "relabel/most_common_goal_fraction": ("Share of the commonest goal", "of all that were achieved"),
        "relabel/rarest_goal_fraction": ("Share of the rarest goal", "of all that were achieved"),
    },
    "Faults": {
        "faults/restarts": ("Env restarts", "so far"),
    },
}
_FAMILIES = {
    "Learning": [
        ("Return of each attempt", re.compile(r"rollout/return_mean_attempt_(\d+)"), "means of the last 100 training trials")
    ],
    "Values": [
        (
            "Q by discount",
            re.compile(r"critic/td_target_mean_gamma_(\d+(?:\.\d+)?)"),
            "PopArt's running mean of the TD targets of every discount, in units of reward",
        ),
        (
            "PopArt scale by discount",
            re.compile(r"critic/popart_std_gamma_(\d+(?:\.\d+)?)"),
            "its running standard deviation of the TD targets of every discount, in units of reward",
        ),
    ],
}
_FAULT = re.compile(r"faults/(.+)")
_ENDS_OF_INTERVAL = re.compile(r".+_ci95_(low|high)")


def sections(keys: Iterable[str]) -> list[Section]:
    """Every metric in its section, in the order of `_SINGLE`; those that have none in the last one."""
    left = [key for key in dict.fromkeys(keys) if not _ENDS_OF_INTERVAL.fullmatch(key)]
    found: list[Section] = []
    for title, singles in _SINGLE.items():
        panels = [
            Panel(title=name, keys=[key], about=about or METRIC_DESCRIPTIONS.get(key, ""))
            for key, (name, about) in singles.items()
            if key in left
        ]
        panels += _families(title, left)
        if title == "Faults":
            kinds = [key for key in left if key not in singles and _FAULT.fullmatch(key)]
            panels += [Panel(title=key.partition("/")[2].capitalize(), keys=[key], about="so far") for key in kinds]
        shown = {key for panel in panels for key in panel.keys}
        left = [key for key in left if key not in shown]
        found += [Section(title=title, panels=panels)] if panels else []
    others = [Panel(title=key, keys=[key], about=METRIC_DESCRIPTIONS.get(key, "")) for key in left]
    return found + ([Section(title="Other", panels=others)] if others else [])


def ci_keys(key: str) -> tuple[str, str] | None:
    """The metrics that are the ends of a mean's 95 % interval, where a run may have logged them."""
    stem = key.removesuffix("_mean")
    return None if stem == key else (f"{stem}_ci95_low", f"{stem}_ci95_high")


def _families(section: str, keys: Sequence[str]) -> list[Panel]:
    panels = []
    for title, pattern, about in _FAMILIES.get(section, ()):
        numbered = [
            (float(match[1]), key) for key in keys if (match := pattern.fullmatch(key)) and _is_number(match[1])
        ]
        if numbered:
            panels.append(Panel(title=title, keys=[key for _, key in sorted(numbered)], about=about))
    return panels


def _is_number(text: str) -> bool:
    return text.count(".") <= 1 and any(char.isdigit() for char in text)
