"""Benchmarks: studies whose panels are environments of one recipe; the published numbers of POPGym."""

from pathlib import Path

import pytest

import yamame.studies
from yamame.envs.popgym import POPGYM_NAMES
from yamame.recipes import recipe_names
from yamame.studies import find_benchmark, load_study, study_names
from yamame.studies.base import Bounds
from yamame.studies.popgym import FIG3, GRU, RANDOM, published_means
from yamame.tools.study.sweep_runs import sweep_study

PANELS = {panel.title: panel for panel in FIG3.panels}
GRU_STANDARDIZED = {"AutoencodeEasy": 0.1395, "RepeatPreviousMedium": 0.1179, "RepeatPreviousHard": 0.0418}
"""The GRU's standardized scores in figure 3, where the published bounds are exact."""


def bounds(name: str) -> Bounds:
    """Return the scale of an environment."""
    found = PANELS[name].bounds
    assert found is not None
    return found


def test_every_benchmark_has_environments_of_one_recipe() -> None:
    benchmarks = [study for name in study_names() if (study := load_study(name)).benchmark]
    assert benchmarks == [FIG3] == [find_benchmark("popgym")]
    for study in benchmarks:
        (recipe,) = {arm.recipe for arm in study.arms}
        assert recipe in recipe_names()
        assert all(arm.flags == ("--env.name", panel.title) for panel in study.panels for arm in panel.arms)


def test_a_new_file_is_a_new_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "roads.py").write_text(
        "from yamame.studies.base import Arm, Panel, Study\n"
        "MINE = Study(name='figure-9', title='Figure 9', benchmark='roads', variants=('no-relabeling',),\n"
        "    panels=(Panel(title='short', arms=(Arm(label='a', recipe='package-delivery'),)),))\n"
    )
    monkeypatch.setattr(yamame.studies, "__path__", [*yamame.studies.__path__, str(tmp_path)])
    assert sweep_study("roads").variants == ("no-relabeling",)


def test_difficulties_split_the_environments() -> None:
    levels = [panel.difficulty for panel in FIG3.panels]
    assert [levels.count(level) for level in ("easy", "medium", "hard")] == [13, 13, 13]
    assert PANELS["RepeatFirstEasy"].difficulty == "easy"


def test_standardized_by_hand() -> None:
    scale = Bounds(lower=-0.4, upper=0.85)
    assert scale.standardized(-0.4) == 0.0 and scale.standardized(0.85) == 1.0
    assert scale.standardized(0.6) == pytest.approx(0.8)  # 1.0 / 1.25
    assert scale.standardized(1.1) == pytest.approx(1.2)
    assert Bounds(lower=-0.4, upper=None).standardized(0.3) is None


def test_bounds_are_the_worst_baseline_and_the_best_method() -> None:
    exact, best_of_all, unknown = map(bounds, ("AutoencodeEasy", "HigherLowerEasy", "MineSweeperEasy"))
    assert exact.is_exact and (exact.lower, exact.upper) == (-0.489, 0.98)
    assert not best_of_all.is_exact
    assert (best_of_all.lower, best_of_all.upper) == (-0.0093, 0.529)  # random actions and the best baseline
    assert unknown.upper is None and unknown.lower == PANELS["MineSweeperEasy"].published(RANDOM)


@pytest.mark.parametrize(("name", "standardized"), GRU_STANDARDIZED.items())
def test_the_scores_of_the_gru_are_those_of_the_figure(name: str, standardized: float) -> None:
    gru = PANELS[name].published(GRU)
    assert bounds(name).is_exact and gru is not None
    assert bounds(name).standardized(gru) == pytest.approx(standardized, abs=1e-3)


def test_the_published_numbers_cover_all_environments() -> None:
    assert tuple(PANELS) == POPGYM_NAMES and len(POPGYM_NAMES) == 39
    random = {name: panel.published(RANDOM) for name, panel in PANELS.items()}
    assert all(value is not None and -1.0 <= value <= 0.3 for value in random.values())
    worst = [(bounds(name).lower, random[name]) for name in PANELS if bounds(name).lower != random[name]]
    assert len(worst) == 7 and max(abs(known - (value or 0.0)) for known, value in worst) < 0.03
    assert PANELS["MultiarmedBanditHard"].published(GRU) == 0.516  # the median of figure 3
    means = published_means()
    assert float(means["unstandardized"]["AMAGO"]) == pytest.approx(0.629, abs=5e-4)
    assert means["standardized"]["AMAGO"] == "0.9545..0.9575"
    # 24 of the 39 have a published GRU score; the mean over all leaves 3.25 for the other 15
    grus = [gru for panel in PANELS.values() if (gru := panel.published(GRU)) is not None]
    assert len(grus) == 24
    assert 39 * float(means["unstandardized"]["OnPolicyGRU"]) - sum(grus) == pytest.approx(3.25, abs=0.03)
