"""A run of recurrent SAC or TD3 that is killed, and resumed, is the run that was never killed, to the bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from recurrent_agents import TINY_RECURRENT
from test_exact_resume import MOMENTS, Killed, at, killed, outcome, start, train

from yamame.algorithms.recurrent_sac.config import RecurrentSACConfig
from yamame.algorithms.recurrent_sac.learner import RecurrentSAC, RecurrentSACLearnerConfig
from yamame.collect.exploration import NoExploration
from yamame.data.sampler import ReplayConfig
from yamame.envs.config import EnvConfig
from yamame.envs.tmaze import PassiveTMazeConfig
from yamame.envs.wind import WindConfig
from yamame.run_config import CheckpointConfig, EvalConfig, RunConfig

pytestmark = pytest.mark.slow


TASKS: dict[str, tuple[EnvConfig, RecurrentSACConfig]] = {
    "sac": (PassiveTMazeConfig(horizon=4), RecurrentSACConfig(agent=replace(TINY_RECURRENT, shared=True))),
    "td3": (
        WindConfig(horizon=10),
        RecurrentSACConfig(agent=TINY_RECURRENT, learner=RecurrentSACLearnerConfig(method="td3")),
    ),
}


@pytest.mark.parametrize("task", list(TASKS))
def test_killed_again_and_again(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env, algorithm = TASKS[task]
    config = RunConfig(
        env=env,
        num_envs=8,
        env_steps=320,
        algorithm=algorithm,
        exploration=NoExploration(random_env_steps=60),
        replay=ReplayConfig(batch_size=4),
        updates_per_env_step=0.05,
        env_steps_per_iteration=56,
        eval=EvalConfig(trials=4, final_trials=8, num_envs=8, interval_env_steps=200),
        checkpoint=CheckpointConfig(interval_seconds=0.0),
    )
    monkeypatch.setitem(MOMENTS, "updating", (RecurrentSAC, "update"))
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    start(undisturbed, config)
    assert train(undisturbed, config).is_finished()
    start(disturbed, config)
    rng, kills = np.random.default_rng(0), 0
    for moment in ("updating", "acting", "updating", "saving"):
        with at(moment, int(rng.integers(1, 3)), killed):
            try:
                train(disturbed, config)
            except Killed:
                kills += 1
    assert train(disturbed, config).is_finished() and kills >= 3
    assert outcome(disturbed, config) == outcome(undisturbed, config)
