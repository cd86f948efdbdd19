"""Experiments: found by walking their folder; the published numbers of POPGym."""

from pathlib import Path

import pytest

import yamame.experiments.benchmarks
from yamame.envs.popgym import POPGYM_NAMES
from yamame.experiments.benchmarks import Reference, benchmark_names, load_benchmark
from yamame.experiments.benchmarks.popgym import published_means, references
from yamame.recipes import recipe_names
from yamame.tools.sweep.runs import find_benchmark

GRU_STANDARDIZED = {"AutoencodeEasy": 0.1395, "RepeatPreviousMedium": 0.1179, "RepeatPreviousHard": 0.0418}
"""The GRU's standardized scores in figure 3, where the published bounds are exact."""


def test_every_benchmark_has_a_recipe_and_references_for_its_environments() -> None:
    for name in benchmark_names():
        benchmark = load_benchmark(name)
        assert benchmark.recipe in recipe_names()
        for of_level in benchmark.difficulties.values():
            assert set(of_level) <= set(benchmark.env_names)
        if benchmark.scores:
            assert set(benchmark.scores.references) == set(benchmark.env_names)


def test_a_new_file_is_a_new_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "figure_9.py").write_text(
        "from yamame.experiments.benchmarks import Benchmark\n"
        "BENCHMARK = Benchmark(recipe='package-delivery', title='Figure 9', variants=('no-relabeling',))\n"
    )
    monkeypatch.setattr(
        yamame.experiments.benchmarks, "__path__", [*yamame.experiments.benchmarks.__path__, str(tmp_path)]
    )
    assert benchmark_names() == ("figure-9", "popgym")
    assert find_benchmark("figure-9").variants == ("no-relabeling",)


def test_difficulties_split_the_environments() -> None:
    benchmark = load_benchmark("popgym")
    assert [len(names) for names in benchmark.difficulties.values()] == [13, 13, 13]
    assert "RepeatFirstEasy" in benchmark.difficulties["easy"]


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
