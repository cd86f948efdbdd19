"""An agent that has solved a T-maze attends, at the junction, to the first timestep, which showed the cue."""

from pathlib import Path

import numpy as np
import pytest
from solved_tmaze import JUNCTION, solved_tmaze

from yamame.tools.trial_recording import TrialRecording, record_trial
from yamame.tools.viewer.rollouts import load_final_adaptation, measure_adaptation
from yamame.training.trained_run import load_trained_run

pytestmark = pytest.mark.slow

UP, DOWN = 1, 3


def recordings(folder: Path) -> dict[float, TrialRecording]:
    """One trial of either cue."""
    run, found = solved_tmaze(folder), {}
    for seed in range(20):
        recording = record_trial(load_trained_run(run), seed=seed, frames=False)
        found.setdefault(float(recording.trajectory.observation["observation"][0, 1]), recording)
        if len(found) == 2:
            return found
    raise AssertionError("twenty seeds with the same cue")


def test_a_head_attends_to_the_cue_at_the_junction(tmp_path: Path) -> None:
    for cue, recording in recordings(tmp_path).items():
        assert len(recording) == JUNCTION + 1 and recording.trajectory.reward.sum() == 1
        assert recording.trajectory.action[JUNCTION] == (UP if cue > 0 else DOWN)
        assert recording.analysis.attention is not None
        weights = recording.analysis.attention.for_query(JUNCTION)
        peaked = (weights.argmax(axis=2) == 0) & (weights.max(axis=2) > 0.5)
        assert peaked.any(), weights
        probability = recording.analysis.action_distributions.probability_TA
        assert probability is not None and probability[JUNCTION].argmax() == recording.trajectory.action[JUNCTION]


def test_the_value_rises_towards_the_reward_the_slower_the_longer_the_horizon(tmp_path: Path) -> None:
    recording = next(iter(recordings(tmp_path).values()))
    q_TG, discounts = recording.analysis.q_TG, recording.analysis.gammas_G
    np.testing.assert_allclose(q_TG[JUNCTION], 1.0, atol=0.1)
    near, far = q_TG[JUNCTION - 5, discounts < 0.5], q_TG[JUNCTION - 5, discounts > 0.99]
    assert (near < 0.05).all() and (far > 0.4).all()


def test_adaptation_is_loaded_or_measured(tmp_path: Path) -> None:
    run = solved_tmaze(tmp_path)
    loaded, measured = load_final_adaptation(run), measure_adaptation(load_trained_run(run), trials=8, seed=3)
    assert loaded is not None and (loaded.trials, loaded.source) == (64, "the end of the run")
    assert (measured.trials, measured.source) == (8, "the checkpoint of update 1,501")
    for found in (loaded, measured):
        assert found.return_per_attempt == [1.0] and found.success_per_attempt == [1.0]
        assert found.return_ci95 == [(1.0, 1.0)] and found.success_ci95 is not None
        assert found.success_ci95[0][1] == pytest.approx(1.0)
    (run / "result.json").unlink()
    assert load_final_adaptation(run) is None
