"""Power cuts at 200 moments of a run: resumed, it ends as the run that was never cut. And 1,000 of a store alone."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from killable import small_config, train, wait
from left_behind import fingerprint, measured, replay_of
from power_cuts import Disk, compile_journal, read_journal, record_journal
from replay_examples import numbered
from store_examples import opened

from yamame.data.verify import verify_store

CUTS = 200
PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
import torch
torch.set_num_threads(1)  # as in this process, which trains after the cuts
from killable import small_config
from yamame.training.run_files import RunMetadata
from yamame.training.start import train_run
train_run(small_config(), RunMetadata(recipe="small"), run_dir=Path(sys.argv[1]), quiet=True)
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


STORE_CUTS = 1_000
STORE_PROGRAM = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from replay_examples import numbered
from store_examples import opened
from yamame.runs.durable_files import write_json
root = Path(sys.argv[1])
for session in range(4):
    with opened(root / "replay", capacity=30, cache_bytes=0) as store:
        for number in range(60):
            store.extend([numbered(1 + 37 * (number % 30), tag=tag + store.total_appended) for tag in range(4)])
            if number % 4 == 0:
                store.mark_checkpoint()
                write_json(root / "checkpoint.json", {{"ids": store.ids()}})
"""


@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_a_store_after_a_power_cut_has_the_trajectories_of_the_checkpoint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root, journal = tmp_path / "root", tmp_path / "journal"
    program = STORE_PROGRAM.format(path=[str(Path(__file__).parents[1] / "helpers")])
    record_journal(compile_journal(tmp_path), program, root, journal)
    rng = np.random.default_rng(0)
    num_events = sum(1 for _ in read_journal(journal))
    cuts = set(rng.choice(num_events, min(STORE_CUTS, num_events), replace=False).tolist())
    disk, num_checkpoints = Disk(), 0
    for number, event in enumerate(read_journal(journal)):
        disk.apply(event)
        if number not in cuts:
            continue
        directory = tmp_path / f"cut-{number}"
        disk.restore(directory, rng, in_order=bool(number % 2))
        if (directory / "checkpoint.json").exists():
            ids = json.loads((directory / "checkpoint.json").read_text())["ids"]
            report = verify_store(directory / "replay", None, needed_ids=ids)
            assert (report.corrupted, report.missing) == ([], []), number
            with opened(directory / "replay", capacity=30, cache_bytes=0) as store:
                store.rollback(ids[-1])
                assert list(store.ids()) == ids, number
                for trajectory_id in ids:
                    assert store.get(trajectory_id).reward[0] == 1000 * trajectory_id + 1
                assert store.append(numbered(3)) > ids[-1]
            num_checkpoints += 1
        shutil.rmtree(directory)
    disk.require_complete(root)
    assert num_checkpoints > 0.8 * len(cuts)
    with capfd.disabled():
        print(json.dumps({"events": num_events, "checkpoints": num_checkpoints}))
