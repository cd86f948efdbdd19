"""Experiments: found by walking their folder; the published numbers of POPGym."""

from pathlib import Path

import pytest

import yamame.experiments
from yamame.envs.popgym import POPGYM_NAMES
from yamame.experiments import Reference, experiment_names, load_experiment
from yamame.experiments.popgym import published_means, references
from yamame.recipes import recipe_names
from yamame.tools.sweep.runs import find_experiment

GRU_STANDARDIZED = {"AutoencodeEasy": 0.1395, "RepeatPreviousMedium": 0.1179, "RepeatPreviousHard": 0.0418}
"""The GRU's standardized scores in figure 3, where the published bounds are exact."""


def test_every_experiment_has_a_recipe_and_references_for_its_environments() -> None:
    for name in experiment_names():
        experiment = load_experiment(name)
        assert experiment.recipe in recipe_names()
        for of_level in experiment.difficulties.values():
            assert set(of_level) <= set(experiment.env_names)
        if experiment.scores:
            assert set(experiment.scores.references) == set(experiment.env_names)


def test_a_new_file_is_a_new_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "figure_9.py").write_text(
        "from yamame.experiments import Experiment\n"
        "EXPERIMENT = Experiment(recipe='package-delivery', title='Figure 9', variants=('no-relabeling',))\n"
    )
    monkeypatch.setattr(yamame.experiments, "__path__", [*yamame.experiments.__path__, str(tmp_path)])
    assert experiment_names() == ("figure-9", "popgym")
    assert find_experiment("figure-9").variants == ("no-relabeling",)


def test_difficulties_split_the_environments() -> None:
    experiment = load_experiment("popgym")
    assert [len(names) for names in experiment.difficulties.values()] == [13, 13, 13]
    assert "RepeatFirstEasy" in experiment.difficulties["easy"]


def test_standardized_by_hand() -> None:
    reference = Reference(published={}, lower=-0.4, upper=0.85)
    assert reference.standardized(-0.4) == 0.0 and reference.standardized(0.85) == 1.0
    assert reference.standardized(0.6) == pytest.approx(0.8)  # 1.0 / 1.25
    assert reference.standardized(1.1) == pytest.approx(1.2)
    assert Reference(published={}, lower=-0.4, upper=None).standardized(0.3) is None


def test_bounds_are_the_worst_baseline_and_the_best_method() -> None:
    exact, best_of_all, unknown = (
        references()[name] for name in ("AutoencodeEasy", "HigherLowerEasy", "MineSweeperEasy")
    )
    assert exact.is_exact and (exact.lower, exact.upper) == (-0.489, 0.98)
    assert not best_of_all.is_exact
    assert (best_of_all.lower, best_of_all.upper) == (-0.0093, 0.529)  # random actions and the best baseline
    assert unknown.upper is None and unknown.lower == unknown.published["random"]


@pytest.mark.parametrize(("name", "standardized"), GRU_STANDARDIZED.items())
def test_the_scores_of_the_gru_are_those_of_the_figure(name: str, standardized: float) -> None:
    reference = references()[name]
    gru = reference.published["gru"]
    assert reference.is_exact and gru is not None
    assert reference.standardized(gru) == pytest.approx(standardized, abs=1e-3)


def test_the_published_numbers_cover_all_environments() -> None:
    found = references()
    assert set(found) == set(POPGYM_NAMES) and len(POPGYM_NAMES) == 39
    random = {name: each.published["random"] for name, each in found.items()}
    assert all(value is not None and -1.0 <= value <= 0.3 for value in random.values())
    worst = [(each.lower, random[name]) for name, each in found.items() if each.lower != random[name]]
    assert len(worst) == 7 and max(abs(known - (value or 0.0)) for known, value in worst) < 0.03
    assert found["MultiarmedBanditHard"].published["gru"] == 0.516  # the median of figure 3
    means = published_means()
    assert float(means["unstandardized"]["AMAGO"]) == pytest.approx(0.629, abs=5e-4)
    assert means["standardized"]["AMAGO"] == "0.9545..0.9575"
    # 24 of the 39 have a published GRU score; the mean over all leaves 3.25 for the other 15
    grus = [gru for each in found.values() if (gru := each.published["gru"]) is not None]
    assert len(grus) == 24
    assert 39 * float(means["unstandardized"]["OnPolicyGRU"]) - sum(grus) == pytest.approx(3.25, abs=0.03)
