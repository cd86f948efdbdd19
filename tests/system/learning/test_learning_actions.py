"""Several choices at once, and rules about what is allowed, are learned, with the settings of an untuned task."""

from pathlib import Path
from typing import Any

import pytest
from action_environments import STEPS, LegalMoves, RepeatBits, RepeatPair

import yamame

pytestmark = [pytest.mark.learning, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(("make", "random"), [(RepeatPair, 1 / 12), (RepeatBits, 1 / 2), (LegalMoves, 1 / 3)])
def test_nine_tenths_of_the_optimum(make: Any, random: float, tmp_path: Path) -> None:
    run = yamame.train(make, horizon=STEPS, run_dir=tmp_path / "run", env_steps=24_000, **SETTINGS)
    print(make.__name__, run.result["return_mean"], run.result["wall_seconds"])
    assert run.result["return_mean"] >= 0.9 > 1.5 * random


SETTINGS: dict[str, Any] = {
    "env.num_workers": 0,
    "updates_per_env_step": 0.25,
    "learner.learning_rate": 1e-3,
    "eval": {"interval_env_steps": 1200, "trials": 64, "final_trials": 256, "stop_return": 0.97},
}
