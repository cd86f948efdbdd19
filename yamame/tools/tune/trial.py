"""A trial: what it trains, how its evaluations reach the study, and what makes trials."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from yamame import recipes
from yamame.errors import UserError
from yamame.recipes import SMALL, Recipe
from yamame.tools.study.execute import Outcome, PlannedRun, execute, train_or_resume
from yamame.tools.tune.space import SearchSpace, describe
from yamame.training.callbacks import Callback, RunProgress

PRUNED = "pruned"
"""End reason of a run that was stopped because earlier trials were better at the same time."""

Report = Callable[[int, float], bool]
"""Records the return of a trial's evaluation, by the number of the evaluation; returns whether to prune the trial."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Settings that the study proposes."""

    number: int
    params: Mapping[str, Any]
    """Flag -> value."""

    @property
    def name(self) -> str:
        """Name of its run directory."""
        return f"trial-{self.number:04}"


@dataclass(frozen=True, kw_only=True)
class TuneConfig:
    """What a study searches, besides its number of trials."""

    recipe: Recipe
    variants: Sequence[str]
    size: str | None
    model: str | None
    flags: Sequence[str]
    """Flags of all trials."""
    space: SearchSpace
    directory: Path
    num_trials: int
    """Number of trials in all, for progress; no part of what is searched."""
    imports: Sequence[str] = ()
    """Modules of `--import`, for commands that are printed; no part of what is searched."""

    def train_command(self, params: Mapping[str, Any]) -> list[str]:
        """Return the arguments of `yamame train` for the settings of a trial."""
        recipe = self.recipe
        named = (
            ("--preset", None if recipe.preset == SMALL else recipe.preset),
            ("--algorithm", recipe.algorithm),
            ("--size", self.size),
            ("--model", self.model),
        )
        options = [word for flag, value in named if value is not None for word in (flag, str(value))]
        variants = [word for variant in self.variants for word in ("--variant", variant)]
        return ["yamame", "train", recipe.name, *options, *variants, *self.flags, *self.trial_flags(params)]

    def trial_flags(self, params: Mapping[str, Any]) -> list[str]:
        """Return the flags of a trial's settings."""
        return [word for flag, value in params.items() for word in (flag, *self.space[flag].words(value))]

    def run_of(self, trial: Trial) -> PlannedRun:
        """Return the run of a trial. Raises `UserError` if its settings do not go together."""
        flags = [*self.flags, *self.trial_flags(trial.params)]
        return PlannedRun(
            recipe=self.recipe.name,
            preset=self.recipe.preset,
            algorithm=self.recipe.algorithm,
            series=trial.name,
            config=recipes.config_from_flags(self.recipe, self.variants, flags, size=self.size, model=self.model),
            directory=self.directory / trial.name,
        )

    def identity(self) -> dict[str, Any]:
        """Return what the trials of a study have in common, as JSON values."""
        return {"command": self.train_command({}), "search": describe(self.space)}


class Pruning(Callback):
    """Reports evaluations, and stops the run when one of the answers says so."""

    def __init__(self, report: Report) -> None:
        self._report = report

    @override
    def on_evaluation(self, run: RunProgress) -> None:
        assert run.evaluation is not None
        number = round(run.env_steps / run.config.eval.interval_env_steps)  # trials may step in other numbers
        if self._report(number, run.evaluation.return_mean):
            run.stop(PRUNED)


def run_trial(config: TuneConfig, trial: Trial, report: Report, *, quiet: bool) -> Outcome:
    """Train or resume the run of a trial, until its end or a signal."""
    try:
        run = config.run_of(trial)
    except UserError as error:
        return Outcome(failed={trial.name: str(error)})
    train = partial(train_or_resume, callbacks=[Pruning(report)])
    return execute([run], quiet=quiet, train=train, number=trial.number + 1, total=config.num_trials)


class TrialExecutor(ABC):
    """Makes trials. Their run directories are in the directory of the search when they have ended."""

    @abstractmethod
    def capacity(self) -> int:
        """Return how many trials it makes at a time; may change."""

    @abstractmethod
    def start(self, trial: Trial, report: Report) -> None:
        """Start a trial, or resume it."""

    @abstractmethod
    def wait(self) -> list[tuple[Trial, Outcome]]:
        """Return trials that have ended, after a moment at the latest."""

    @abstractmethod
    def stop(self) -> None:
        """Request a checkpoint and an end of all trials; may be called repeatedly."""

    @abstractmethod
    def close(self) -> None:
        """Release what it holds, after the last trial."""


class InProcess(TrialExecutor):
    """Makes one trial at a time, in this process, which handles signals itself."""

    def __init__(self, config: TuneConfig, *, quiet: bool) -> None:
        self._config, self._quiet = config, quiet
        self._ended: list[tuple[Trial, Outcome]] = []

    @override
    def capacity(self) -> int:
        return 1

    @override
    def start(self, trial: Trial, report: Report) -> None:
        self._ended.append((trial, run_trial(self._config, trial, report, quiet=self._quiet)))

    @override
    def wait(self) -> list[tuple[Trial, Outcome]]:
        ended, self._ended = self._ended, []
        return ended

    @override
    def stop(self) -> None: ...

    @override
    def close(self) -> None: ...
