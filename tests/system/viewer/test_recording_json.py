"""Recorded trials as JSON: actions are those that the environment gets, in its own units."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported_runs import VECTOR, Random, train
from gymnasium import spaces

from yamame.data.actions import to_env_action
from yamame.tools.trial_recording import record_trial
from yamame.tools.viewer.recording_json import UniqueFrames, recording_to_json
from yamame.training.trained_run import load_trained_run

pytestmark = pytest.mark.slow

BOUNDS = spaces.Tuple(
    [spaces.Box(np.array([-2.0, 5.0]), np.array([3.0, 15.0]), dtype=np.float64), spaces.Box(0, 9, (1,), np.int64)]
)
NUMBERS = spaces.MultiDiscrete([3, 2], start=[5, -1])


def recorded_run(folder: Path, action_space: Any) -> tuple[dict[str, Any], Any]:
    """A recorded trial of a run as JSON, and what an environment got in it."""
    trained = train(folder, "feedforward", VECTOR, action_space)
    config = replace(
        trained.config, env=replace(trained.config.env, env_fn=partial(Random, VECTOR, action_space, False))
    )
    run = load_trained_run(trained.directory, config=config)
    recording = record_trial(run, frames=False)
    return recording_to_json(recording, UniqueFrames.from_recording(recording)), recording


def test_continuous_actions_are_in_units_of_the_environment(tmp_path: Path) -> None:
    recorded, recording = recorded_run(tmp_path, BOUNDS)
    first, second = to_env_action(BOUNDS, recording.trajectory.action)
    np.testing.assert_allclose(recorded["actions_taken"], np.concatenate([first, second], axis=1), rtol=1e-4)
    assert recorded["action_bounds"] == [[-2.0, 3.0], [5.0, 15.0], [0.0, 9.0]]
    analysis, drawn = recorded["analysis"], recording.analysis.action_distributions
    for name, gaussian in (
        ("mean", drawn.mean_TA),
        ("low", drawn.mean_TA - drawn.std_TA),
        ("high", drawn.mean_TA + drawn.std_TA),
    ):
        expected = [-2.0, 5.0, 0.0] + (np.tanh(gaussian) + 1.0) / 2.0 * np.array([5.0, 10.0, 9.0])
        np.testing.assert_allclose(analysis[name], expected, rtol=1e-3, atol=1e-4)


def test_choices_without_names_are_the_numbers_that_the_environment_gets(tmp_path: Path) -> None:
    recorded, recording = recorded_run(tmp_path, NUMBERS)
    assert recorded["actions"] == ("0: 5", "0: 6", "0: 7", "1: -1", "1: 0") and recorded["action_bounds"] is None
    chosen = [[recorded["actions"][place] for place in places] for places in recorded["actions_taken"]]
    got = to_env_action(NUMBERS, recording.trajectory.action)
    assert chosen == [[f"0: {first}", f"1: {second}"] for first, second in got.tolist()]
