"""`kill -9` of a whole run at 100 random moments: resumed, it ends as the run that was never killed."""

import json
import multiprocessing
import shutil
from pathlib import Path

import numpy as np
import pytest
from killable import KILLED, counts_touches, dies_at_touch, killed_after, small_config, train, wait
from left_behind import fingerprint, measured, replay_of

from yamame.run_config import RunConfig
from yamame.runs.checkpoint import load_latest_checkpoint

KILLS = 100
CONFIG: RunConfig = small_config()


def env_steps_saved(directory: Path) -> int:
    """Environment steps of the latest checkpoint, whatever happened; it must be whole."""
    checkpoint = load_latest_checkpoint(directory / "checkpoints")
    assert checkpoint.skipped_corrupted == ()
    return int(checkpoint.state["env_steps"])


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_a_run_killed_at_a_hundred_moments_becomes_what_it_would_have_become(tmp_path: Path) -> None:
    undisturbed = tmp_path / "undisturbed"
    touches = multiprocessing.Value("q")
    assert wait(train(CONFIG, undisturbed, before=counts_touches(touches))) == 0
    assert touches.value > 500
    expected = fingerprint(undisturbed), replay_of(undisturbed), measured(undisturbed)
    rng = np.random.default_rng(0)
    kills, runs = 0, 0
    while kills < KILLS:
        runs += 1
        directory = tmp_path / f"run-{runs}"
        code, saved = KILLED, 0
        while code == KILLED:
            at_touch = rng.random() < 0.5
            if at_touch:
                code = wait(train(CONFIG, directory, before=dies_at_touch(int(rng.integers(touches.value)))))
            else:
                code = killed_after(train(CONFIG, directory), float(rng.uniform(0.0, 2.0)))
            kills += code == KILLED
            if not (directory / "config.json").exists():  # it had not started
                shutil.rmtree(directory, ignore_errors=True)
            else:
                now = env_steps_saved(directory)
                assert now >= saved
                saved = now
        assert code == 0
        assert (fingerprint(directory), replay_of(directory), measured(directory)) == expected
        print(json.dumps({"runs": runs, "kills": kills}))
