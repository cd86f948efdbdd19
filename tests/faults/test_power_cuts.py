"""Power cuts at 200 moments of a run: resumed, it ends as the run that was never cut."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from killable import small_config, train, wait
from left_behind import fingerprint, measured, replay_of
from power_cuts import Disk, compile_journal, read_journal, record_journal

CUTS = 200
PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
import torch
torch.set_num_threads(1)  # as in this process, which trains after the cuts
from killable import small_config
from yamame.training.run_files import RunMetadata
from yamame.training.start import train
train(small_config(), RunMetadata(recipe="small"), run_dir=Path(sys.argv[1]), quiet=True)
"""


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_a_run_after_a_power_cut_becomes_what_it_would_have_become(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    undisturbed, journal = tmp_path / "undisturbed", tmp_path / "journal"
    helpers = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers")]
    record_journal(compile_journal(tmp_path), PROGRAM.format(path=helpers), undisturbed, journal)
    expected = fingerprint(undisturbed), replay_of(undisturbed), measured(undisturbed)
    rng = np.random.default_rng(0)
    num_events = sum(1 for _ in read_journal(journal))
    cuts = set(rng.choice(num_events, CUTS, replace=False).tolist())
    disk, outcomes = Disk(), dict.fromkeys(("continued", "not started"), 0)
    for number, event in enumerate(read_journal(journal)):
        disk.apply(event)
        if number not in cuts:
            continue
        directory = tmp_path / f"cut-{number}"
        disk.restore(directory, rng, in_order=bool(number % 2))
        if not (directory / "config.json").exists():
            outcomes["not started"] += 1
        else:
            code = wait(train(small_config(), directory))
            assert code == 0, (number, capfd.readouterr().err)
            assert (fingerprint(directory), replay_of(directory), measured(directory)) == expected, number
            outcomes["continued"] += 1
        shutil.rmtree(directory)
    disk.require_complete(undisturbed)
    assert outcomes["continued"] > 0.8 * CUTS
    with capfd.disabled():
        print(json.dumps({"events": num_events, **outcomes}))
