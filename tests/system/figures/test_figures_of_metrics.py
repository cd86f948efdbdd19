"""Learning curves and bars: what is drawn is what the runs measured."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.container import ErrorbarContainer

from yamame.errors import UserError
from yamame.metrics.confidence import mean_of, wilson_ci95
from yamame.metrics.registry import EVAL_RETURN, read_metrics
from yamame.runs.checkpoint import load_latest_checkpoint
from yamame.tools.figures import ablation_bars, learning_curves
from yamame.training.trained_run import TrainedRun

pytestmark = pytest.mark.slow


def result(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "result.json").read_text())
    return found


def lines(axes: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Label -> x and y of every line that has one."""
    return {line.get_label(): line.get_data() for line in axes.lines if not line.get_label().startswith("_")}


def evaluations(run: Path) -> tuple[list[float], list[float]]:
    """Of the metrics well before the end, and the final one."""
    end = result(run)["env_steps"]
    kept = [line for line in read_metrics(run) if EVAL_RETURN in line and line["env_steps"] < end - 30]
    return [*(line["env_steps"] for line in kept), end], [
        *(line[EVAL_RETURN] for line in kept),
        result(run)["return_mean"],
    ]


def test_a_line_for_each_experiment_and_random_actions(tmaze: Path) -> None:
    figure = learning_curves.draw([tmaze], learning_curves.Options())
    (axes,) = figure.axes
    drawn = lines(axes)
    assert list(drawn) == ["full (2 seeds)", "no-memory", "random actions"]
    env_steps, returns = evaluations(tmaze / "no-memory-seed-0")
    assert len(env_steps) >= 3
    assert drawn["no-memory"][0].tolist() == env_steps and drawn["no-memory"][1].tolist() == returns
    curves = [evaluations(tmaze / f"full-seed-{seed}") for seed in (0, 1)]
    x, mean = drawn["full (2 seeds)"]
    of_seeds = np.stack([np.interp(x, *curve) for curve in curves])
    assert mean == pytest.approx(of_seeds.mean(0))
    assert not [each for each in axes.collections if isinstance(each, PolyCollection)], "a band of two seeds"
    thin = [each for each in axes.lines if each.get_linewidth() == 1]
    assert [(each.get_xdata().tolist(), each.get_ydata().tolist()) for each in thin] == curves
    train_state = load_latest_checkpoint(tmaze / "full-seed-0/checkpoints").state["train_state"]
    assert set(drawn["random actions"][1]) == {train_state["random_baseline"]["return_mean"]}
    assert axes.get_xlabel() == "environment steps" and "Return" in axes.get_ylabel()
    legend = axes.get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == list(drawn)


def test_any_metric_along_anything(tmaze: Path) -> None:
    run = tmaze / "full-seed-0"
    options = learning_curves.Options(metric="loss/td", x_axis="updates", title="Loss")
    (axes,) = learning_curves.draw([run], options).axes
    logged = [(line["updates"], line["loss/td"]) for line in read_metrics(run) if line.get("loss/td") is not None]
    ((x, y),) = lines(axes).values()
    assert list(zip(x, y, strict=True)) == logged and len(logged) > 2
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("gradient updates", "TD loss", "Loss")
    with pytest.raises(UserError, match=r"has logged no loss/x: choose another --metric"):
        learning_curves.draw([run], learning_curves.Options(metric="loss/x"))


def test_training_is_shown_where_a_run_has_no_evaluations(maze: Path) -> None:
    (axes,) = learning_curves.draw([maze], learning_curves.Options()).axes
    assert lines(axes)["maze-runner"][1][-1] == result(maze)["return_mean"]
    metrics = [line for line in read_metrics(maze) if line.get("rollout/return_mean") is not None]
    (axes,) = learning_curves.draw([maze], learning_curves.Options(metric="rollout/return_mean")).axes
    assert lines(axes)["maze-runner"][1].tolist() == [line["rollout/return_mean"] for line in metrics]


def bars(axes: Any) -> list[float]:
    return [patch.get_height() for patch in axes.patches]


def test_a_bar_for_each_variant_with_its_interval(tmaze: Path) -> None:
    figure = ablation_bars.draw([tmaze], ablation_bars.Options())
    of_return, of_success = figure.axes
    results = {name: result(tmaze / name) for name in ("full-seed-0", "full-seed-1", "no-memory-seed-0")}
    for axes, metric in ((of_return, "return_mean"), (of_success, "success_rate")):
        full = mean_of([results[f"full-seed-{seed}"][metric] for seed in (0, 1)])
        alone = results["no-memory-seed-0"][metric]
        assert bars(axes) == pytest.approx([full.mean, alone])
        assert [label.get_text() for label in axes.get_xticklabels()] == ["full", "no-memory"]
        whiskers = [
            container.lines[2][0].get_segments()[0][:, 1]
            for container in axes.containers
            if isinstance(container, ErrorbarContainer)
        ]
        (dots,) = [line for line in axes.lines if line.get_marker() == "o"]
        assert list(dots.get_ydata()) == [results[f"full-seed-{seed}"][metric] for seed in (0, 1)]
        if metric == "return_mean":
            ends = results["no-memory-seed-0"]["return_ci95"]
        else:
            ends = [float(end[0]) for end in wilson_ci95(np.array([alone * 16]), np.array([16.0]))]
        assert whiskers == [pytest.approx([min(ends[0], alone), max(ends[1], alone)])]
        assert {text.get_text() for text in axes.texts} == {f"{full.mean:.3g}", f"{alone:.3g}"}
    assert of_return.get_ylabel() == "mean return (1 to 2 seeds, 95 % CI)" and of_return.get_title() == "Final return"


def test_other_metrics_and_unfinished_runs(tmaze: Path, tmp_path: Path) -> None:
    options = ablation_bars.Options(metrics=("env_steps",))
    (axes,) = ablation_bars.draw([tmaze / "full-seed-0"], options).axes
    assert bars(axes) == [result(tmaze / "full-seed-0")["env_steps"]]
    with pytest.raises(UserError, match=r"no nothing in the results of the runs: choose one of .*return_mean"):
        ablation_bars.draw([tmaze], ablation_bars.Options(metrics=("nothing",)))
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    for name in ("config.json", "metadata.json"):
        (unfinished / name).write_text((tmaze / "full-seed-0" / name).read_text())
    with pytest.raises(UserError, match="is not finished"):
        ablation_bars.draw([unfinished], ablation_bars.Options())


def test_bars_of_instructions(tmaze: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    success = {"collect wood": 0.75, "make table, eat cow": 0.25}
    requested = []

    def evaluate(run: TrainedRun, *, trials: int, seed: int | None, instruction: str) -> dict[str, Any]:
        requested.append((run.directory.name, trials, instruction))
        lost = 0.25 if "no-memory" in run.directory.name else 0.0
        return {"success_rate": success[instruction] - lost, "trials": trials}

    monkeypatch.setattr(TrainedRun, "evaluate", evaluate)
    options = ablation_bars.Options(instructions=tuple(success), trials=8)
    (axes,) = ablation_bars.draw([tmaze], options).axes
    assert bars(axes) == [0.75, 0.25, 0.5, 0.0]
    assert len(requested) == 6 and {trials for _, trials, _ in requested} == {8}
    assert [label.get_text() for label in axes.get_xticklabels()] == ["collect wood", "make table,\neat cow"]
    legend = axes.get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == ["full", "no-memory"]
