"""Attention, activations and values: what is drawn is what the networks of the checkpoints compute."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from yamame.algorithms.amago.analysis import analyze_trajectory
from yamame.data.verify import iter_valid_trajectories
from yamame.errors import UserError
from yamame.nets.introspection import PROBE_POINTS
from yamame.tools.figures import activations, attention, q_by_gamma
from yamame.tools.run_groups import checkpoint_updates, list_kept_checkpoints
from yamame.tools.trial_recording import record_trial
from yamame.training.run_files import read_config, read_task_spec
from yamame.training.trained_run import load_trained_run

pytestmark = pytest.mark.slow


def test_attention_of_every_head_at_a_step(tmaze: Path) -> None:
    run = tmaze / "full-seed-0"
    played = record_trial(load_trained_run(run), seed=5)
    looked = played.analysis.attention
    assert looked is not None
    for requested, step in ((None, len(played) - 1), (2, 2)):
        figure = attention.draw([run], attention.Options(step=requested, seed=5, num_frames=2))
        heatmap, frames = figure.axes[:2]
        weights = looked.for_query(step)
        shown = np.asarray(heatmap.images[0].get_array())
        assert shown.shape == (weights.shape[0] * weights.shape[1], step + 1)
        assert shown == pytest.approx(weights.reshape(shown.shape)) and shown.sum(1) == pytest.approx(1)
        heaviest = sorted(np.argsort(-weights.mean((0, 1)), kind="stable")[:2].tolist())
        assert [int(line.get_xdata()[0]) for line in heatmap.lines if line.get_marker() == "^"] == heaviest
        assert len(frames.child_axes) == 2
        percent = 100 * weights.mean((0, 1))[heaviest[0]]
        assert frames.child_axes[0].get_title().startswith(f"step {heaviest[0]}")
        assert f": {percent:.0f} %" in frames.child_axes[0].get_title()
        assert f"step {step} of 0 to {len(played) - 1}" in heatmap.get_title()
        frame = attention._frame(played, heaviest[0])
        assert frame is not None and np.array_equal(np.asarray(frames.child_axes[0].images[0].get_array()), frame)


def test_models_without_attention_are_an_error(tmaze: Path) -> None:
    run = tmaze / "no-memory-seed-0"
    with pytest.raises(UserError, match="has no attention: attention needs a run with a Transformer"):
        attention.draw([run], attention.Options())
    with pytest.raises(UserError, match="has no Transformer: activations needs a run with a Transformer"):
        activations.draw([run], activations.Options())
    with pytest.raises(UserError, match="--step 9: the trial has steps 0 to 3"):
        attention.draw([tmaze / "full-seed-0"], attention.Options(step=9))


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line.get_data() for line in axes.lines}


def test_activations_through_training(tmaze: Path) -> None:
    run = tmaze / "full-seed-0"
    checkpoints = list_kept_checkpoints(run)
    updates = [checkpoint_updates(path) for path in checkpoints]
    assert len(updates) >= 2 and updates == sorted(set(updates))
    figure = activations.draw([run], activations.Options(seed=3))
    assert [axes.get_title() for axes in figure.axes] == list(PROBE_POINTS)
    numbers = [record_trial(load_trained_run(run, str(path)), seed=3).analysis.max_abs_LPT for path in checkpoints]
    for place, axes in enumerate(figure.axes):
        ((label, (x, y)),) = lines(axes).items()
        assert label == "layer 1" and list(x) == updates
        assert y == pytest.approx([each[0, place].max() for each in numbers if each is not None])


def test_activations_of_a_single_checkpoint(tmaze: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(tmaze / "full-seed-0", tmp_path / "run"))
    for checkpoint in list_kept_checkpoints(run)[:-1]:
        for folder in ("checkpoints", "checkpoints/milestones", "checkpoints/best"):
            shutil.rmtree(run / folder / checkpoint.name, ignore_errors=True)
    (last,) = list_kept_checkpoints(run)
    figure = activations.draw([run], activations.Options())
    numbers = record_trial(load_trained_run(run, str(last))).analysis.max_abs_LPT
    assert numbers is not None
    for place, axes in enumerate(figure.axes):
        drawn = np.concatenate([line.get_ydata() for line in axes.lines])
        assert (drawn.min(), drawn.max()) == pytest.approx((numbers[0, place].min(), numbers[0, place].max()))
    (axes,) = q_by_gamma.draw([run], q_by_gamma.Options()).axes
    assert axes.get_xlabel() == "step of the trial"
    with pytest.raises(UserError, match=r"train with --checkpoint.milestone-interval-env-steps"):
        q_by_gamma.draw([run], q_by_gamma.Options(x_axis="training"))


def test_values_along_a_trial(tmaze: Path) -> None:
    run = tmaze / "full-seed-1"
    (axes,) = q_by_gamma.draw([run], q_by_gamma.Options(x_axis="trial", seed=2)).axes
    played = record_trial(load_trained_run(run), seed=2)
    gammas = played.analysis.gammas_G
    assert len(axes.lines) == len(gammas)
    by_label = lines(axes)
    for number, gamma in enumerate(gammas):
        acts = " (acting)" if number == len(gammas) - 1 else ""
        x, y = by_label[f"{gamma:.5f}".rstrip("0") + acts]
        assert list(x) == list(range(len(played))) and y == pytest.approx(played.analysis.q_TG[:, number])


def test_values_through_training(tmaze: Path) -> None:
    run = tmaze / "full-seed-0"
    (axes,) = q_by_gamma.draw([run], q_by_gamma.Options(num_trajectories=3)).axes
    checkpoints = list_kept_checkpoints(run)
    latest = list(iter_valid_trajectories(run / "replay", read_task_spec(run).schema))[-3:]
    scale = read_config(run).algorithm.learner.td.reward_scale
    x, y = next(data for label, data in lines(axes).items() if label.endswith("(acting)"))
    assert list(x) == [checkpoint_updates(path) for path in checkpoints]
    for path, drawn in zip(checkpoints, y, strict=True):
        agent = load_trained_run(run, str(path)).model
        values = np.concatenate([analyze_trajectory(agent, each, reward_scale=scale).q_TG[:, -1] for each in latest])
        assert drawn == pytest.approx(values.mean(), rel=1e-5)
    assert axes.get_xlabel() == "gradient updates" and "3 stored trajectories" in axes.get_title()
