"""`yamame data` as a contract: exit codes, what goes to stdout, one line for every error."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_examples import editing, replace_record
from tiny import TINY_RUN, as_flags

from yamame.cli import main
from yamame.runs.directory import lock_run_dir

TRAIN = ["train", "passive-tmaze", "--env.horizon", "3", "--env-steps", "64", "--quiet", *as_flags(TINY_RUN)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("finished") / "run"
    assert main([*TRAIN, "--run-dir", str(run)]) == 0
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a run, and an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(finished, "run"))


def reported(capsys: pytest.CaptureFixture[str], *args: str | Path, code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["data", *map(str, args), "--json"]) == code
    out, err = capsys.readouterr()
    assert err == "" and out.count("\n") == 1
    report: dict[str, Any] = json.loads(out)
    return report


def refused(capsys: pytest.CaptureFixture[str], *args: str | Path) -> str:
    capsys.readouterr()
    assert main([str(arg) for arg in args]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("yamame: ") and err.count("\n") == 1
    return err


def spoil(run: Path, number: int) -> None:
    replace_record(run / "replay", number, b"foreign")


def test_info(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    info = reported(capsys, "info", run)
    assert info["trajectories"] == sum(info["tasks"].values()) == 16 and set(info["tasks"]) == {"passive-tmaze-3"}
    assert info["steps"] == 64 and 0 < info["record_bytes"] < info["file_bytes"]
    assert info["policy_versions"][0] == 0 < info["policy_versions"][1]
    assert (info["protected"], info["imported"], info["corrupted"]) == (0, 0, 0)
    assert reported(capsys, "info", run / "replay") == info
    assert main(["data", "info", str(run)]) == 0
    assert "16 (16 of passive-tmaze-3)" in capsys.readouterr().out


def remove(run: Path, number: int) -> None:
    with editing(run / "replay") as connection:
        assert connection.execute("DELETE FROM records WHERE id = ?", (number,)).rowcount == 1


def test_a_run_without_some_trajectories_resumes_after_a_repair(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (3, 9):
        remove(run, number)
    assert reported(capsys, "verify", run, code=1)["missing"] == [3, 9]
    said = refused(capsys, "resume", run, "--env-steps", "72", "--quiet")
    remedy = f"yamame data repair {run.resolve() / 'replay'} accepts the loss"
    assert f"lacks 2 of the 16 trajectories of the checkpoint: {remedy}" in said
    repaired = reported(capsys, "repair", run)
    assert repaired["recovered"] == 14 and [bad["id"] for bad in repaired["lost"]] == ["3", "9"]
    found = reported(capsys, "verify", run)
    assert (found["valid"], found["missing"], found["lost"]) == (14, [], [3, 9])
    assert main(["data", "verify", str(run)]) == 0
    assert "lost in a repair: trajectory 9" in capsys.readouterr().out
    assert main(["resume", str(run), "--env-steps", "72", "--quiet"]) == 0
    assert "2 of the 16 trajectories of the checkpoint are gone" in capsys.readouterr().err
    assert main(["resume", str(run), "--env-steps", "80", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_resume_reports_changed_files(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, metrics = run / "config.json", run / "metrics.jsonl"
    config.write_text(config.read_text().replace('"learning_rate": 0.0', '"learning_rate": 0.1'))
    metrics.write_bytes(metrics.read_bytes()[:-4] + b"\n")
    capsys.readouterr()
    assert main(["resume", str(run), "--env-steps", "72", "--quiet"]) == 0
    err = capsys.readouterr().err
    assert "the config differs from that of the checkpoint: learner.learning_rate 0.0" in err
    assert "metrics.jsonl lacks 3 bytes of the checkpoint and has 1 unreadable lines" in err
    assert err.count("\n") == 2


def test_verify_names_what_is_corrupted_and_changes_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reported(capsys, "verify", run) == {
        "valid": 16,
        "corrupted": [],
        "quarantined": [],
        "missing": [],
        "lost": [],
    }
    spoil(run, 7)
    for _ in range(2):
        report = reported(capsys, "verify", run, code=1)
        assert report["valid"] == 15 and [bad["id"] for bad in report["corrupted"]] == ["7"]
    assert main(["data", "verify", str(run)]) == 1
    assert "corrupted: trajectory 7: record is no trajectory record" in capsys.readouterr().out
    assert reported(capsys, "info", run)["corrupted"] == 1


def test_a_run_continues_without_corrupted_records(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(0, 16, 2):
        spoil(run, number)
    assert main(["resume", str(run), "--env-steps", "128", "--quiet"]) == 0
    lines = (run / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["replay/num_corrupted"] > 0
    report = reported(capsys, "verify", run, code=1)
    assert len(report["corrupted"]) + len(report["quarantined"]) == 8
    assert reported(capsys, "repair", run)["recovered"] == report["valid"]
    assert reported(capsys, "verify", run)["valid"] == report["valid"]


def test_a_run_whose_store_was_cut_off_is_refused_until_it_is_repaired(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (run / "replay" / "replay.sqlite").open("rb+") as file:
        file.truncate(2 * 8192)
    assert "yamame data repair" in refused(capsys, "resume", run, "--env-steps", "128", "--quiet")
    report = reported(capsys, "repair", run)
    assert report["recovered"] < 16 and report["backup_path"] == "run/replay.backup-1"
    assert main(["resume", str(run), "--env-steps", "128", "--quiet"]) == 0


def test_mistakes(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "does not exist" in refused(capsys, "data", "info", "nowhere")
    assert "unknown argument" in refused(capsys, "data", "info", run, "more")
    assert "VERB" in refused(capsys, "data")
    assert "has no command" in refused(capsys, "data", "inspect", run)
    with lock_run_dir(run):
        assert "another process is training" in refused(capsys, "data", "repair", run)
    shutil.rmtree(run / "replay")
    assert "no replay store" in refused(capsys, "data", "verify", run)


def test_the_command_line_stays_quick() -> None:
    script = "import sys, yamame.cli; assert 'torch' not in sys.modules and 'sqlite3' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_export_and_import(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    minari = pytest.importorskip("minari")
    exported = reported(capsys, "export", run, "--output", "./tmaze")
    assert (exported["episodes"], exported["steps"], exported["name"]) == (16, 64, "tmaze-v0")
    assert sum(len(episode) for episode in minari.MinariDataset(exported["data"])) == 64

    assert reported(capsys, "import", run, "./tmaze", "--protected") == {"imported": 16, "protected": True}
    assert reported(capsys, "import", run, "./tmaze") == {"imported": 16, "protected": False}
    info = reported(capsys, "info", run)
    assert (info["trajectories"], info["protected"], info["imported"], info["corrupted"]) == (48, 16, 16, 0)
    assert main(["resume", str(run), "--env-steps", "128", "--quiet"]) == 0
    info = reported(capsys, "info", run)
    assert (info["trajectories"], info["protected"], info["imported"], info["corrupted"]) == (64, 16, 16, 0)


def link_external(file: Any, folder: Path) -> None:
    import h5py

    del file["episode_3/rewards"]
    file["episode_3/rewards"] = h5py.ExternalLink(str(folder / "other.hdf5"), "/secret")


def store_externally(file: Any, folder: Path) -> None:
    (folder / "secret").write_bytes(bytes(64))
    del file["episode_3/rewards"]
    file.create_dataset("episode_3/rewards", (4,), "f4", external=[(str(folder / "secret"), 0, 16)])


def be_virtual(file: Any, _: Path) -> None:
    import h5py

    layout = h5py.VirtualLayout((10**10,), "f4")
    del file["episode_3/rewards"]
    file.create_virtual_dataset("episode_3/rewards", layout)


def announce_everything(file: Any, _: Path) -> None:
    del file["episode_3/rewards"]
    file.create_dataset("episode_3/rewards", (10**10,), "f4", chunks=(1 << 20,))


@pytest.mark.parametrize(
    ("spoil_file", "problem"),
    [
        (link_external, "is a link"),
        (store_externally, "is stored in other files"),
        (be_virtual, "is stored in other files"),
        (announce_everything, "announces 40000000000 bytes"),
    ],
)
def test_an_import_reads_no_other_files(
    spoil_file: Any, problem: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    h5py = pytest.importorskip("h5py")
    reported(capsys, "export", run, "--output", "./tmaze")
    with h5py.File("tmaze/main_data.hdf5", "r+") as file:
        spoil_file(file, Path.cwd())
    assert problem in refused(capsys, "data", "import", run, "./tmaze")
    assert reported(capsys, "info", run)["trajectories"] == 16


@pytest.mark.parametrize(("field", "value"), [("horizon", float("inf")), ("policy_version", "first"), ("extras", 3)])
def test_an_import_is_whole_or_nothing(field: str, value: Any, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    h5py = pytest.importorskip("h5py")
    reported(capsys, "export", run, "--output", "./tmaze")
    with h5py.File("tmaze/main_data.hdf5", "r+") as file:
        metadata = json.loads(bytes(file["episode_9/infos/yamame"][:]))
        del file["episode_9/infos/yamame"]
        file["episode_9/infos/yamame"] = np.frombuffer(json.dumps({**metadata, field: value}).encode(), np.uint8)
    refused(capsys, "data", "import", run, "./tmaze")
    assert reported(capsys, "info", run)["trajectories"] == 16


def test_mistakes_of_export_and_import(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = reported(capsys, "info", run)
    assert "no Minari dataset" in refused(capsys, "data", "import", run, "nowhere")
    assert "--output" in refused(capsys, "data", "export", run)
    assert "already exists" in refused(capsys, "data", "export", run, "--output", "./run")
    shutil.copytree(run / "replay", "alone")
    assert "belongs to no run" in refused(capsys, "data", "export", "alone", "--output", "./x")
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert "pip install 'yamame[minari]'" in refused(capsys, "data", "export", run, "--output", "./x")
    assert reported(capsys, "info", run) == before
