"""Runs of one experiment are found by one rule, in figures, in the viewer and in what a recipe expects."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from results import evaluation_of, result_of

from yamame.config.differences import flatten_config
from yamame.config.serialization import to_json
from yamame.envs.env_fn import EnvFnConfig
from yamame.metrics.registry import EVAL_RETURN
from yamame.recipes import config_from_flags, load_recipe
from yamame.recipes.settings.presets import apply_algorithm, apply_variants
from yamame.run_config import RunConfig, experiment_settings
from yamame.tools.figures import ablation_bars, learning_curves
from yamame.tools.plots import RANDOM
from yamame.tools.run_groups import arm_of, arm_order, common_random_return, group_by_seed

BASE = load_recipe("popgym").make_config(load_recipe("popgym").env)


def changed(**parts: Any) -> RunConfig:
    """Return the config of the recipe with other values, of nested configs too."""
    return replace(
        BASE,
        **{
            name: replace(getattr(BASE, name), **value) if isinstance(value, dict) else value
            for name, value in parts.items()
        },
    )


SEEDS = {
    "one": BASE,
    "two": changed(seed=7),
    "evaluated": changed(eval={"trials": 3, "final_trials": 4, "interval_env_steps": 5}),
    "elsewhere": changed(compute={"device": "cuda"}, checkpoint={"interval_seconds": 7.0}, env={"num_workers": 0}),
    "cached": changed(replay={"cache_bytes": 1 << 20}),
}
LENGTHS = {"longer": changed(env_steps=12_345), "past-its-solution": changed(eval={"stop_return": 0.1})}
OTHERS = {
    "narrow": changed(replay={"batch_size": 3}),
    "chosen": changed(eval={"choose_policy": not BASE.eval.choose_policy}),
    "async": changed(async_collection=not BASE.async_collection),
}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed, (name, config) in enumerate((SEEDS | LENGTHS | OTHERS).items()):
        write_run(tmp_path / name, replace(config, seed=seed))
    return tmp_path


def write_run(run: Path, config: RunConfig, *, env_steps: int = 0, random_return: float | None = None) -> None:
    """Write the files of a run that has made some steps; it is finished if there is a return of random actions."""
    run.mkdir()
    (run / "config.json").write_text(json.dumps(to_json(config)))
    (run / "metadata.json").write_text(json.dumps({"recipe": "popgym"}))
    line = {"env_steps": env_steps, "updates": 1, EVAL_RETURN: 1.0}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    if random_return is not None:
        result = result_of([1.0], env_steps=env_steps, random_baseline=evaluation_of([random_return]))
        (run / "result.json").write_text(json.dumps(result))


def test_a_group_has_the_longest_run_of_each_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed, env_steps, random_return in (
        ("a", 0, 100, 0.0),
        ("b", 0, 300, None),
        ("c", 1, 50, None),
        ("d", 1, 50, 0.0),
    ):
        write_run(tmp_path / name, changed(seed=seed), env_steps=env_steps, random_return=random_return)
    (group,) = group_by_seed([tmp_path])
    assert [run.name for run in group.runs] == ["b", "d"]
    assert [line.split(" is left out: ")[0] for line in capsys.readouterr().err.splitlines()] == [
        str(tmp_path / name) for name in ("a", "c")
    ]


def test_random_actions_are_drawn_if_all_groups_have_one_task(tmp_path: Path) -> None:
    other = changed(env={"name": "CountRecallEasy"})
    for name, config in (("full", BASE), ("narrow", OTHERS["narrow"]), ("elsewhere", other)):
        write_run(tmp_path / name, config, env_steps=5, random_return=0.25)
    same, apart = [tmp_path / "full", tmp_path / "narrow"], [tmp_path / "full", tmp_path / "elsewhere"]
    assert common_random_return(group_by_seed(same)) == 0.25
    assert common_random_return(group_by_seed(apart)) is None
    for module in (learning_curves, ablation_bars):
        lines = [
            [line.get_label() for line in module.draw(paths, module.Options()).axes[0].lines] for paths in (same, apart)
        ]
        assert [RANDOM in labels for labels in lines] == [True, False], module


def test_figures_and_viewer_have_the_same_groups(runs: Path) -> None:
    pytest.importorskip("starlette")
    from yamame.tools.viewer.run_index import RunIndex
    from yamame.tools.viewer.runs import SummaryCache

    in_figures = [{run.name for run in group.runs} for group in group_by_seed([runs])]
    index = RunIndex([runs])
    in_viewer: dict[str, set[str]] = {}
    for summary in SummaryCache(index).get(list(index.found().entries.values())):
        in_viewer.setdefault(summary.group, set()).add(Path(summary.name).name)
    assert sorted(map(sorted, in_figures)) == sorted(map(sorted, in_viewer.values()))
    assert {*SEEDS, *LENGTHS} in in_figures and all({name} in in_figures for name in OTHERS)


def test_the_length_of_a_run_plays_a_part_in_its_result_alone() -> None:
    def settings(config: RunConfig) -> dict[str, Any]:
        return experiment_settings(flatten_config(config), with_length=True)

    assert all(settings(config) == settings(BASE) for config in SEEDS.values())
    assert all(settings(config) != settings(BASE) for config in (LENGTHS | OTHERS).values())


def test_a_recipe_expects_its_result_of_every_seed() -> None:
    recipe = load_recipe("popgym")
    assert all(recipe.expected_result(config) == recipe.expected_result(BASE) != "" for config in SEEDS.values())
    for flags in (["--env-steps", "77"], ["--replay.batch-size", "3"]):
        assert recipe.expected_result(config_from_flags(recipe, [], flags)) == ""


def test_groups_of_several_algorithms_are_named_by_them(tmp_path: Path) -> None:
    recipe = load_recipe("popgym")
    configs = {
        "1": BASE,
        "2": apply_algorithm(BASE, "ppo"),
        "3": apply_variants(apply_algorithm(BASE, "ppo"), ["gru"]),
        "4": apply_algorithm(BASE, "recurrent_sac"),
    }
    for name, config in configs.items():
        run = tmp_path / f"2026112{name}-1015"
        run.mkdir()
        (run / "config.json").write_text(json.dumps(to_json(config)))
        (run / "metadata.json").write_text(json.dumps({"recipe": recipe.name}))
    labels = [group.label.removesuffix("-1015") for group in group_by_seed([tmp_path])]
    assert [label.partition(": ")[2] for label in labels] == ["amago", "ppo", "ppo: gru", "recurrent_sac"]

    for name, arm in (("1", "full"), ("3", "ppo+gru"), ("4", "recurrent_sac")):
        (tmp_path / f"2026112{name}-1015").rename(tmp_path / f"{arm}-seed-0")
    (tmp_path / "20261122-1015").rename(tmp_path / "of-mine-seed-0")
    labels = [group.label for group in group_by_seed([tmp_path])]
    assert sorted(labels) == ["full: amago", "of-mine: ppo", "ppo+gru", "recurrent_sac"]


def test_arms_of_a_sweep_are_found_by_the_names_of_their_runs() -> None:
    names = ["ppo", "ppo+gru", "Env-recurrent_sac", "Env-recurrent-ppo", "Env-full", "Env-no-memory+gru", "Env-other"]
    arms = ["ppo", "ppo+gru", "recurrent_sac", "recurrent-ppo", "full", "no-memory+gru", None]
    assert [arm_of(Path(f"{name}-seed-3")) for name in names] == arms
    assert sorted(["gru", "ppo+gru", "ppo", "full"], key=arm_order) == ["full", "ppo", "gru", "ppo+gru"]


def test_groups_are_named_by_their_environment(tmp_path: Path) -> None:
    """Not by the recipe of all environments of Gymnasium."""
    recipe = load_recipe("gymnasium")
    for name in ("CartPole-v1", "Acrobot-v1"):
        for seed in ("0", "1"):
            config = config_from_flags(recipe, [], ["--env.id", name, "--env.horizon", "5", "--seed", seed])
            run = tmp_path / f"202611{len(name)}{seed}-1015"
            run.mkdir()
            (run / "config.json").write_text(json.dumps(to_json(config)))
            (run / "metadata.json").write_text(json.dumps({"recipe": recipe.name}))
    assert [group.label for group in group_by_seed([tmp_path])] == ["Acrobot-v1", "CartPole-v1"]


def test_a_task_of_a_partial_function_has_its_name() -> None:
    def beacon(width: int) -> None:
        """Stand for a function that makes an environment."""

    assert EnvFnConfig(env_fn=partial(partial(beacon), 3), horizon=1).task_name == "beacon"


def test_settings_that_earlier_versions_had_play_no_part() -> None:
    fields = flatten_config(BASE)
    earlier = {**fields, "replay.max_disk_bytes": 1 << 40, "ray.orphan_timeout_seconds": 9.0}
    assert experiment_settings(earlier) == experiment_settings(fields)
