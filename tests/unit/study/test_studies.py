"""Experiments of the paper: found by their files, complete, and consistent with the recipes."""

import subprocess
import sys
from pathlib import Path

import pytest

import yamame.studies
from yamame.errors import UserError
from yamame.recipes import PAPER, SMALL, config_from_flags, load_recipe
from yamame.recipes.settings.presets import VARIANTS
from yamame.studies import load_study, study_names
from yamame.studies.base import Study
from yamame.studies.memory_and_meta_rl import figure_5_curve
from yamame.tools.figure import figure_names
from yamame.tools.study.plan import plan

ALL = (3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 18, 19, 20, 22, 24, 25, 26, 27, 28, 29)


def test_every_figure_and_table_is_listed_in_order() -> None:
    assert study_names() == (*(f"fig{number}" for number in ALL), "table1", "table2")


@pytest.mark.parametrize("name", study_names())
def test_every_experiment_has_arms_that_its_recipes_can_run(name: str) -> None:
    experiment = load_study(name)
    assert experiment.title
    assert experiment.source
    assert experiment.panels or experiment.analyses
    titles = [*(panel.title for panel in experiment.panels), *(each.title for each in experiment.analyses)]
    assert len(set(titles)) == len(titles)
    for panel in experiment.panels:
        labels = [arm.label for arm in panel.arms]
        assert len(set(labels)) == len(labels)
    assert {each.figure for each in experiment.analyses} <= set(figure_names())
    for arm in experiment.arms:
        assert set(arm.variants) <= set(VARIANTS)


@pytest.mark.parametrize("name", study_names())
def test_with_the_paper_preset_no_arm_is_skipped_or_equal_to_another(name: str, tmp_path: Path) -> None:
    arms = plan(load_study(name), tmp_path, preset=PAPER, seeds=[0])
    assert not [each.arm.label for each in arms if each.skipped]
    configs = [each.config for each in arms if each.config]
    same = [(i, j) for i, one in enumerate(configs) for j in range(i) if one == configs[j]]
    if name == "fig18":  # its arm "default list" names the list that is the default
        return
    assert not same


def test_tasks_with_published_numbers_are_those_of_the_paper_in_both_presets() -> None:
    arms = [arm for name in ("fig5", "fig9", "table1") for arm in load_study(name).arms]
    known = {(arm.recipe, arm.flags) for arm in arms if arm.published is not None and arm.algorithm is None}
    for recipe, flags in known - {("passive-tmaze", ())}:
        small, paper = (config_from_flags(load_recipe(recipe, preset), (), flags).env for preset in (SMALL, PAPER))
        assert small == paper, (recipe, flags)


def test_numbers_of_figure_5() -> None:
    cheetah = figure_5_curve("half-cheetah-vel", "AMAGO", 1e3)
    assert cheetah[0] == (0.0, -525.57)
    assert cheetah[-1][0] == pytest.approx(612_000, rel=0.02)
    (panel,) = (panel for panel in load_study("fig5").panels if panel.title == "Wind")
    assert [arm.published for arm in panel.arms] == [61.1, 61.1, None, 61.0]
    assert panel.references == (("oracle", 62.0),)


def test_an_unknown_study_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown experiment 'fig77': did you mean 'fig7'\?"):
        load_study("fig77")


def test_a_new_file_is_a_new_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from yamame.studies.base import Arm, Panel, Study\n"
        "MINE = Study(name='fig99', title='Mine', source='nowhere',\n"
        "    panels=(Panel(title='a', arms=(Arm(label='b', recipe='wind'),)),))\n"
    )
    monkeypatch.setattr(yamame.studies, "__path__", [*yamame.studies.__path__, str(tmp_path)])
    assert study_names()[-3:] == ("fig99", "table1", "table2")
    mine = load_study("fig99")
    assert isinstance(mine, Study)
    (arm,) = plan(mine, tmp_path, preset=SMALL, seeds=[0, 1])
    assert [run.directory.name for run in arm.runs] == ["wind-seed-0", "wind-seed-1"]


def test_all_studies_are_listed_without_pytorch() -> None:
    program = "import sys, yamame.studies; yamame.studies.study_names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
