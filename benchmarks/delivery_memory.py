"""Memory of an agent on Package Delivery: its actions at forks and drops that it has met before in the trial.

python benchmarks/delivery_memory.py RUN [--trials 128]

An agent with a perfect memory takes the right way wherever it has turned before, be it the right way or the wrong one,
and never drops again in a way that has failed. The tables have the actions of the policy, and the critics: how often
they rank the right way (the ways of dropping that were not tried) higher, and by how much (the mean over critics, in
standard deviations of the targets), at the acting discount.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from played_trials import open_run, play, report_command

from yamame.algorithms.amago.agent import Agent
from yamame.data.batch import Window, pack
from yamame.data.trajectory import Trajectory
from yamame.envs.package_delivery import DROPS, FIRST_DROP, LEFT, RIGHT, PackageDeliveryConfig
from yamame.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One step at a fork where the agent has turned before."""

    known: str
    """What came of the last turn there."""
    action: int
    right_side: int
    gap: float
    """Q(right side) - Q(the other one), normalised."""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """One drop where some ways have failed and none has succeeded yet."""

    failed: int
    """How many ways have."""
    new: bool
    """Whether it takes another one."""
    gap: float
    """Q(those not tried) - Q(those that failed), means over them, normalised."""


def report(run: Path, count: int) -> None:
    """The tables of `count` trials, on stdout."""
    config, agent, updates = open_run(run)
    if not isinstance(config.env, PackageDeliveryConfig):
        raise UserError(f"{run} is a run of {config.env.task_name}: give one of Package Delivery")
    trials = play(config, agent, count)
    print(f"{updates} updates; {np.mean([trial.reward.sum() for trial in trials]):.2f} deliveries a trial\n")
    by_known: dict[str, list[Visit]] = defaultdict(list)
    by_failed: dict[int, list[Retry]] = defaultdict(list)
    for trial in trials:
        q_NA = action_values(agent, trial)
        for visit in visits(trial, q_NA, last=config.env.road_length - 1):
            by_known[visit.known].append(visit)
        for retry in retries(trial, q_NA):
            by_failed[retry.failed].append(retry)
    print("| turned there before | visits | takes the right way | the wrong one | stays | critics know | by |")
    print("|---|---|---|---|---|---|---|")
    for known, seen in sorted(by_known.items()):
        right = np.mean([visit.action == visit.right_side for visit in seen])
        wrong = np.mean([visit.action == LEFT + RIGHT - visit.right_side for visit in seen])
        gaps = np.array([visit.gap for visit in seen])
        print(
            f"| {known} | {len(seen)} | {right:.2f} | {wrong:.2f} | {1 - right - wrong:.2f} | {np.mean(gaps > 0):.2f} "
            f"| {gaps.mean():.3f} |"
        )
    print("\n| ways of dropping that failed | drops | in another way | random | critics prefer another | by |")
    print("|---|---|---|---|---|---|")
    for failed, drops in sorted(by_failed.items()):
        new, gaps = np.mean([drop.new for drop in drops]), np.array([drop.gap for drop in drops])
        print(
            f"| {failed} | {len(drops)} | {new:.2f} | {1 - failed / DROPS:.2f} | {np.mean(gaps > 0):.2f} "
            f"| {gaps.mean():.3f} |"
        )


@torch.no_grad()
def action_values(agent: Agent, trial: Trajectory) -> Float32[np.ndarray, "N A"]:
    """Of all actions at all steps: the mean over critics, normalised."""
    batch = pack([Window(trajectory=trial, start=0, length=len(trial))])
    state_ND = agent.encode(agent.features(batch), batch)
    raw_NKGA = agent.critic(state_ND).squeeze(-1)
    assert raw_NKGA.ndim == 4
    q_NA: Float32[np.ndarray, "N A"] = (raw_NKGA[:, :, -1].mean(dim=1) * agent.value_code.scale_G[-1]).numpy()
    return q_NA


def visits(trial: Trajectory, q_NA: Float32[np.ndarray, "N A"], *, last: int) -> Iterator[Visit]:
    """All visits of a trial to forks where it has turned before; but at the `last` position both ways lead to 0."""
    observation = np.asarray(trial.observation["observation"])
    right_sides: dict[int, int] = {}
    outcomes: dict[int, str] = {}
    for step, action in enumerate(trial.action.tolist()):
        position, at_fork = int(observation[step, 0]), observation[step, 2] == 1
        if not at_fork or position == last:
            continue
        if position in right_sides:
            side = right_sides[position]
            gap = float(q_NA[step, side] - q_NA[step, LEFT + RIGHT - side])
            yield Visit(known=outcomes[position], action=action, right_side=side, gap=gap)
        if action in (LEFT, RIGHT):
            passed = int(observation[step + 1, 0]) != 0
            right_sides[position] = action if passed else LEFT + RIGHT - action
            outcomes[position] = "the right way" if passed else "the wrong way"


def retries(trial: Trajectory, q_NA: Float32[np.ndarray, "N A"]) -> Iterator[Retry]:
    """All drops of a trial before the first that succeeds, but those before the first that fails."""
    observation = np.asarray(trial.observation["observation"])
    ways, failed = range(FIRST_DROP, FIRST_DROP + DROPS), set[int]()
    for step, action in enumerate(trial.action.tolist()):
        position, packages, at_fork = observation[step]
        if action not in ways or at_fork or not position or len(failed) == DROPS:
            continue
        if failed:
            of_failed = q_NA[step, sorted(failed)].mean()
            gap = float(q_NA[step, [way for way in ways if way not in failed]].mean() - of_failed)
            yield Retry(failed=len(failed), new=action not in failed, gap=gap)
        if observation[step + 1, 1] < packages:
            return
        failed.add(action)


if __name__ == "__main__":
    sys.exit(report_command(report, about=__doc__, trials=128))
