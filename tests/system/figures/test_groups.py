"""Runs are grouped by what they are, and called by what sets them apart."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from yamame.envs.tmaze import PassiveTMazeConfig
from yamame.errors import UserError
from yamame.recipes import load_recipe
from yamame.recipes.settings.presets import apply_variants, replace_learner_fields
from yamame.tools.figures import ablation_bars, learning_curves
from yamame.tools.plots import save
from yamame.tools.run_groups import group_by_seed, make_labels, resolve_runs

pytestmark = pytest.mark.slow


def test_seeds_are_one_group(tmaze: Path) -> None:
    groups = group_by_seed([tmaze])
    assert [(group.label, [run.name for run in group.runs]) for group in groups] == [
        ("full", ["full-seed-0", "full-seed-1"]),
        ("no-memory", ["no-memory-seed-0"]),
    ]
    assert resolve_runs([tmaze / "full-seed-1", tmaze]) == [
        tmaze / name for name in ("full-seed-1", "full-seed-0", "no-memory-seed-0")
    ]
    with pytest.raises(UserError, match="no run was given"):
        resolve_runs([])
    with pytest.raises(UserError, match="is not a run directory"):
        resolve_runs([tmaze / "full-seed-0/replay"])


def test_labels_name_the_folder_and_the_difference(tmaze: Path, tmp_path: Path) -> None:
    for new, old in (("a", "full-seed-1"), ("b", "no-memory-seed-0"), ("c", "full-seed-0")):
        shutil.copytree(tmaze / old, tmp_path / new)
    groups = group_by_seed([tmp_path / "b", tmp_path / "a", tmp_path / "c"])
    assert [(group.label, [run.name for run in group.runs]) for group in groups] == [
        ("b: no-memory", ["b"]),
        ("passive-tmaze", ["a", "c"]),  # their names have nothing in common
    ]
    (tmp_path / "a").rename(tmp_path / "plain-1")
    (tmp_path / "c").rename(tmp_path / "plain-2")
    assert [group.label for group in group_by_seed([tmp_path])] == ["b: no-memory", "plain"]


def test_hostile_names_are_drawn_as_they_are(tmaze: Path, tmp_path: Path) -> None:
    name = r"$\frac{$<script>"
    for new, old in ((f"{name}-seed-0", "full-seed-0"), ("b-seed-0", "no-memory-seed-0")):
        shutil.copytree(tmaze / old, tmp_path / new)
    for figure_module, options in ((learning_curves, learning_curves.Options(title=name)), (ablation_bars, None)):
        figure = figure_module.draw([tmp_path], options or ablation_bars.Options())
        save(figure, tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size > 2000


def test_labels_say_what_sets_experiments_apart() -> None:
    recipe = load_recipe("passive-tmaze")
    base = recipe.make_config(PassiveTMazeConfig(horizon=30))
    learner = base.algorithm.learner
    steps = replace_learner_fields(base, td=replace(learner.td, n_step=1), learning_rate=0.5)
    many = replace(steps, num_envs=3, deterministic_actions=False)
    assert make_labels([("t", base)]) == ["t"]
    experiments = [("t", many), ("t", base), ("t", apply_variants(base, ["gru"])), ("t", steps)]
    assert make_labels(experiments) == [
        "num_envs 3, deterministic_actions false and 2 more",
        "t",
        "gru",
        "n_step 1, learning_rate 0.5",
    ]
    other = [("t", base), ("u", base), ("t", replace(base, num_envs=5, seed=3))]
    assert make_labels(other) == ["t", "u", "t: num_envs 5"]
