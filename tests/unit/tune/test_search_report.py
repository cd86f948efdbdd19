"""Report of a search: what counts as the best trial, and files that cannot be written."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from yamame.errors import UserError
from yamame.recipes import load_recipe

pytest.importorskip("optuna")
import optuna

from yamame.tools.tune import report, study
from yamame.tools.tune.space import Range
from yamame.tools.tune.trial import TuneConfig

RATE = "--learner.learning-rate"


@pytest.fixture
def config(tmp_path: Path) -> TuneConfig:
    return TuneConfig(
        recipe=load_recipe("passive-tmaze"),
        variants=(),
        size=None,
        model=None,
        flags=(),
        space={RATE: Range(low=0.0, high=1.0, is_int=False, log=False)},
        directory=tmp_path,
        num_trials=3,
    )


@pytest.fixture
def searched() -> "optuna.Study":
    """Trials of returns 1 and 2, and one that was pruned at 9."""
    made = optuna.create_study(direction="maximize")
    for value, state in ((1.0, "COMPLETE"), (9.0, "PRUNED"), (2.0, "COMPLETE")):
        distribution = optuna.distributions.FloatDistribution(0.0, 1.0)
        made.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState[state],
                value=value,
                params={RATE: 0.5},
                distributions={RATE: distribution},
                intermediate_values={0: value},
            )
        )
    return made


@pytest.mark.parametrize(("size", "words"), [(None, []), ("small", ["--size", "small"]), ("base", ["--size", "base"])])
def test_the_best_command_has_the_size_of_the_search(
    config: TuneConfig, searched: "optuna.Study", size: str | None, words: list[str]
) -> None:
    sized = replace(config, size=size)
    command = report.write_search_report(searched, sized)[0]["best"]["command"]
    assert shlex.split(command) == ["yamame", "train", "passive-tmaze", *words, RATE, "0.5"]
    assert (sized.identity() == config.identity()) == (size is None)


def test_the_best_command_imports_what_the_search_did(config: TuneConfig, searched: "optuna.Study") -> None:
    importing = replace(config, imports=("my_envs", "my_tasks"))
    results, text = report.write_search_report(searched, importing)
    assert results["best"]["command"].endswith("0.5 --import my_envs --import my_tasks")
    assert results["best"]["command"] in text and importing.identity() == config.identity()


def test_a_pruned_trial_is_never_the_best(config: TuneConfig, searched: "optuna.Study") -> None:
    results, text = report.write_search_report(searched, config)
    assert results["best"]["trial"] == 2
    assert "A pruned trial was stopped" in text
    complete = optuna.create_study(direction="maximize")
    complete.add_trial(searched.trials[0])
    assert "pruned" not in report.write_search_report(complete, config)[1]
    rows = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")][2:]
    assert rows == ["2", "0", "1"]
    best = report.plot_search(searched.get_trials(), config).axes[0].lines
    (so_far,) = [line for line in best if line.get_label() == "best so far"]
    assert list(so_far.get_xdata()) == [0, 2] and list(so_far.get_ydata()) == [1.0, 2.0]


def test_a_report_that_cannot_be_written(config: TuneConfig, searched: "optuna.Study") -> None:
    (config.directory / ".partial-results.json").mkdir()
    with pytest.raises(UserError, match=r"cannot write to .*results.json"):
        report.write_search_report(searched, config)


@pytest.mark.parametrize("name", [study.LOCK, study.JOURNAL])
def test_a_study_that_cannot_be_written(name: str, config: TuneConfig) -> None:
    (config.directory / name).mkdir()
    with pytest.raises(UserError, match="cannot write to"), study.open_study(config, prunes=False):
        pytest.fail("it opened")


def test_a_study_of_another_process_is_named(config: TuneConfig) -> None:
    with (
        FileLock(config.directory / study.LOCK),
        pytest.raises(UserError, match="another process searches"),
        study.open_study(config, prunes=False),
    ):
        pytest.fail("it opened")


def test_errors_of_trials_are_no_errors_of_the_study(config: TuneConfig) -> None:
    with pytest.raises(ConnectionError, match="of Ray"), study.open_study(config, prunes=False):
        raise ConnectionError("of Ray")
