"""What the finished runs of a suite reached, beside what was published."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yamame.envs.popgym import POPGYM_NAMES, PopgymConfig
from yamame.metrics import EVAL_RETURN, read_metrics
from yamame.run_dir import CONFIG
from yamame.runs import read_config, read_result
from yamame.tools.suite.reference import Reference, references
from yamame.tools.suite.scores import Aggregate, aggregate


@dataclass(frozen=True, kw_only=True)
class EnvironmentResult:
    """One environment, all its finished seeds."""

    name: str
    mmer: dict[int, float]
    """Seed -> maximum over training of the mean return of an evaluation (the paper's and POPGym's figure)."""
    env_steps: int
    """Of the longest run."""

    @property
    def reference(self) -> Reference:
        """What others reached."""
        return references()[self.name]

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return sum(self.mmer.values()) / len(self.mmer)

    @property
    def standardized(self) -> float | None:
        """Of the mean; see `Reference.standardized`."""
        return self.reference.standardized(self.mean)

    def to_json(self) -> dict[str, Any]:
        """A row of the results."""
        reference = self.reference
        return {
            "environment": self.name,
            "seeds": sorted(self.mmer),
            "env_steps": self.env_steps,
            "mmer": [self.mmer[seed] for seed in sorted(self.mmer)],
            "mmer_mean": self.mean,
            "standardized": self.standardized,
            "standardized_is_exact": reference.is_exact,
            "paper": reference.paper,
            "best_baseline": reference.best_baseline,
            "gru": reference.gru,
            "random": reference.random,
        }


@dataclass(frozen=True, kw_only=True)
class SuiteResults:
    """All environments with a finished run, in the order of the benchmark."""

    environments: Sequence[EnvironmentResult]
    unfinished: int
    """Runs that have begun and not ended."""

    @property
    def raw(self) -> Aggregate | None:
        """Over the MMER of all runs."""
        return aggregate([list(each.mmer.values()) for each in self.environments])

    @property
    def standardized(self) -> Aggregate | None:
        """Over their standardized scores, where there are some."""
        scores = (
            [each.reference.standardized(mmer) for mmer in each.mmer.values()]
            for each in self.environments
            if each.standardized is not None
        )
        return aggregate([[score for score in of_seeds if score is not None] for of_seeds in scores])

    def to_json(self) -> dict[str, Any]:
        """The results as `yamame suite --json` prints them."""
        return {
            "environments": [each.to_json() for each in self.environments],
            "num_unfinished": self.unfinished,
            "raw": self.raw.to_json() if self.raw else None,
            "standardized": self.standardized.to_json() if self.standardized else None,
        }


def collect_results(directory: Path) -> SuiteResults:
    """Read all runs in a suite's folder; a folder that is not there has none."""
    found: dict[str, dict[int, float]] = {name: {} for name in POPGYM_NAMES}
    longest = dict.fromkeys(POPGYM_NAMES, 0)
    unfinished = 0
    for run in sorted(path.parent for path in directory.glob(f"*/{CONFIG}")):
        config, result = read_config(run), read_result(run)
        if not isinstance(config.env, PopgymConfig):
            continue
        if result is None:
            unfinished += 1
            continue
        name = config.env.name
        found[name][config.seed] = mmer_of(run, result["return_mean"])
        longest[name] = max(longest[name], result["env_steps"])
    environments = [
        EnvironmentResult(name=name, mmer=mmer, env_steps=longest[name]) for name, mmer in found.items() if mmer
    ]
    return SuiteResults(environments=environments, unfinished=unfinished)


def mmer_of(run: Path, final_return: float) -> float:
    """The maximum over training of the mean evaluation return, the final evaluation included."""
    during = [line[EVAL_RETURN] for line in read_metrics(run) if line.get(EVAL_RETURN) is not None]
    return max([*during, final_return])
