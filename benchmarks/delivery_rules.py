"""Returns of rules on Package Delivery, with random turns and with memory.

python benchmarks/delivery_rules.py [--min-destination 1] [--trials 2000] [--seed 0]

All but the random one walk straight on, deliver where they should, and never drop again in a way that has failed. One
turns at random at every fork; the other takes the right way wherever it has turned before.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Float32, Int64, Shaped

from yamame.data.goals import INSTRUCTION_KEY
from yamame.envs.package_delivery import DROPS, FIRST_DROP, FORWARD, LEFT, NO_PACKAGE, RIGHT, PackageDeliveryConfig
from yamame.errors import UserError

AT_ONCE = 1000
"""Trials played together."""


class Rule(Protocol):
    """Chooses actions for E trials, from the first step on."""

    def act(self, seen: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> Int64[np.ndarray, "E"]: ...


class AtRandom:
    """Every action is as likely as any other."""

    def __init__(self, num_envs: int, rng: np.random.Generator) -> None:
        self._num_envs, self._rng = num_envs, rng

    def act(self, seen: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> Int64[np.ndarray, "E"]:
        return self._rng.integers(NO_PACKAGE + 1, size=self._num_envs)


class Courier:
    """Straight on, with an eye for what became of its drops, and of its turns if it `remembers_forks`."""

    def __init__(self, num_envs: int, rng: np.random.Generator, road_length: int, *, remembers_forks: bool) -> None:
        self._rows, self._rng, self._remembers_forks = np.arange(num_envs), rng, remembers_forks
        self._right_side = np.full((num_envs, road_length), -1)
        """LEFT or RIGHT where it is known, -1 elsewhere."""
        self._may_drop = np.ones((num_envs, DROPS), np.bool_)
        """The ways that may be the valid one."""
        self._before: Float32[np.ndarray, "E 3"] | None = None
        self._action = np.full(num_envs, NO_PACKAGE)

    def act(self, seen: Mapping[str, Shaped[np.ndarray, "E ..."]]) -> Int64[np.ndarray, "E"]:
        now: Float32[np.ndarray, "E 3"] = seen["observation"]
        if self._before is not None:
            self._learn(self._before, now)
        position, at_fork = now[:, 0].astype(int), now[:, 2] == 1
        known = self._right_side[self._rows, position]
        guess = self._rng.integers(LEFT, RIGHT + 1, len(now))
        turn = np.where((known >= 0) & self._remembers_forks, known, guess)
        here = (seen[INSTRUCTION_KEY][:, :, 0] == now[:, :1]).any(axis=1)
        drop = FIRST_DROP + self._may_drop.argmax(axis=1)
        self._before, self._action = now.copy(), np.where(at_fork, turn, np.where(here, drop, FORWARD))
        return self._action

    def _learn(self, before: Float32[np.ndarray, "E 3"], now: Float32[np.ndarray, "E 3"]) -> None:
        """From what the last action led to. At the last position of the road both ways lead to 0: either will do."""
        position, passed = before[:, 0].astype(int), now[:, 0] == before[:, 0] + 1
        turned = np.flatnonzero((self._action == LEFT) | (self._action == RIGHT))
        taken = self._action[turned]
        self._right_side[turned, position[turned]] = np.where(passed[turned], taken, LEFT + RIGHT - taken)
        failed = np.flatnonzero(
            (self._action >= FIRST_DROP) & (self._action < NO_PACKAGE) & (now[:, 1] == before[:, 1])
        )
        self._may_drop[failed, self._action[failed] - FIRST_DROP] = False


@dataclass(frozen=True, kw_only=True)
class Played:
    """One trial."""

    earned: float
    requested: int
    """Sub-goals of its instruction."""


def play(config: PackageDeliveryConfig, rule: Rule, count: int, seed: int) -> Iterator[Played]:
    """The first trial of `count` environments."""
    earned, ended = np.zeros(count), np.zeros(count, np.bool_)
    with closing(config.build(count, seed)) as trials:
        seen = trials.reset()
        requested = (seen[INSTRUCTION_KEY][:, :, 0] >= 0).sum(axis=1)
        for _ in range(config.horizon):
            step = trials.step(rule.act(seen))
            earned += np.where(ended, 0.0, step.reward)
            ended |= step.terminated | step.truncated
            seen = step.observation
    assert ended.all()
    return (Played(earned=float(one), requested=int(most)) for one, most in zip(earned, requested, strict=True))


def row(name: str, played: list[Played]) -> str:
    """Of the table."""
    earned = np.mean([trial.earned for trial in played])
    most = np.mean([trial.requested for trial in played])
    paid = sum(trial.earned > 0 for trial in played)
    completed = np.mean([trial.earned == trial.requested for trial in played])
    return f"| {name} | {earned:.3f} | {most:.3f} | {paid} of {len(played)} | {100 * completed:.1f} |"


def report(config: PackageDeliveryConfig, count: int, seed: int) -> None:
    """The table of `count` trials of each rule, on stdout."""
    road = config.road_length
    rules: dict[str, Callable[[int, np.random.Generator], Rule]] = {
        "at random": AtRandom,
        "turns at random": lambda num_envs, rng: Courier(num_envs, rng, road, remembers_forks=False),
        "remembers forks": lambda num_envs, rng: Courier(num_envs, rng, road, remembers_forks=True),
    }
    print("| rule | deliveries | most possible | trials paid | instructions completed, % |")
    print("|---|---|---|---|---|")
    for name, rule in rules.items():
        rng, played = np.random.default_rng(seed), list[Played]()
        while len(played) < count:
            num_envs = min(AT_ONCE, count - len(played))
            played += play(config, rule(num_envs, rng), num_envs, seed + len(played))
        print(row(name, played), flush=True)


def main() -> int:
    """The exit code: 2 for a setting that is refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--min-destination", type=int, default=PackageDeliveryConfig.min_destination)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        if options.trials < 1:
            raise UserError("--trials must be at least 1")
        report(PackageDeliveryConfig(min_destination=options.min_destination), options.trials, options.seed)
    except UserError as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
